"""The report: the page as one HTML file with the pictures in it, readable offline."""

import base64
from collections.abc import Mapping
from pathlib import Path

from markdown_it import MarkdownIt

from apes.paper.findings import findings
from apes.paper.page import Result, markdown
from apes.storage.documents import document, write_document


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
    links = [(name, name) for name in sections]
    path = folder / "report.html"
    write_document(path, document(tokens[1].content, links, parser.renderer.render(tokens, parser.options, {})))
    return path
