"""The report: the page as one HTML file with the pictures in it, readable offline."""

import base64
import html
from collections.abc import Mapping
from pathlib import Path

from markdown_it import MarkdownIt

from apes.paper.findings import findings
from apes.paper.page import Result, markdown
from apes.storage.files import write_bytes

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ink: #1b6ca8; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1.5rem; }
h1 { margin-bottom: .2rem; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
nav a { margin-right: 1rem; white-space: nowrap; } a { color: var(--ink); } p, li { max-width: 60rem; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; } th { border-bottom-width: 2px; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
code { background: #8882; padding: .1rem .35rem; border-radius: 3px; }
"""


def write_report(results: Mapping[str, Result], folder: Path, seconds: float) -> Path:
    """Write ``report.html`` into the folder with the pictures; results and seconds as for `write_page`."""
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False}).enable("table")
    tokens = parser.parse(markdown(results, ".", seconds))
    sections = [*results, *(["findings"] if findings(results) else [])]
    headings = [token for token in tokens if token.type == "heading_open" and token.tag == "h2"]
    for heading, name in zip(headings, sections, strict=True):
        heading.attrs["id"] = name
    for token in tokens:
        for image in token.children or ():
            if image.type == "image":
                data = base64.b64encode((folder / str(image.attrs["src"])).read_bytes()).decode()
                image.attrs["src"] = f"data:image/png;base64,{data}"
    title = html.escape(tokens[1].content)  # of the first heading
    links = "\n".join(f'<a href="#{name}">{name}</a>' for name in sections)
    path = folder / "report.html"
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head>
<body><nav>{links}</nav>
{parser.renderer.render(tokens, parser.options, {})}</body></html>
"""
    write_bytes(path, page.encode())
    return path
