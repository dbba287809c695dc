"""The report: one self-contained page with every picture and table, readable offline."""

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apes.paper import EXPERIMENTS
from apes.paper.findings import FINDINGS
from apes.paper.run import shown
from apes.storage.files import write_bytes

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ink: #1b6ca8; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1.5rem; }
h1 { margin-bottom: .2rem; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
nav a { margin-right: 1rem; white-space: nowrap; } a { color: var(--ink); }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
figcaption { max-width: 60rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
code { background: #8882; padding: .1rem .35rem; border-radius: 3px; } .note { color: #777; font-size: .9rem; }
"""


def write_report(results: Mapping[str, dict[str, Any]], folder: Path) -> Path:
    """Write ``report.html`` from results and pictures in a folder.

    Args:
        results: By name of experiment, as `apes.paper.run.write` returns them.
        folder: Where the pictures are, and where the page goes.
    """
    sections = "\n".join(_section(result, folder) for result in results.values())
    links = " ".join(f'<a href="#{name}">{name}</a>' for name in results)
    first = next(iter(results.values()))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Echo of Neighbors, reproduced</title><style>{_STYLE}</style></head>
<body><h1>Echo of Neighbors, reproduced</h1>
<p>{_setting(first)}</p><nav>{links} <a href="#findings">findings</a></nav>
{sections}
<h2 id="findings">Where the paper does not agree with itself, or with what is proved</h2>
<ul>{"".join(f"<li>{html.escape(finding)}</li>" for finding in FINDINGS)}</ul>
</body></html>
"""
    path = folder / "report.html"
    write_bytes(path, page.encode())
    return path


def _setting(result: dict[str, Any]) -> str:
    setting = result["setting"]
    size = "coarse version (--quick)" if setting["quick"] else "full size"
    return html.escape(
        f"APES {result['version']}, {size}: {setting['users']:,} users, {setting['rounds']} rounds, "
        f"{len(setting['seeds'])} seeds, data set {setting['data']}. Published figures are what the literature prints; "
        "only figures called certified are proved."
    )


def _section(result: dict[str, Any], folder: Path) -> str:
    experiment = EXPERIMENTS[result["name"]]
    view = shown(experiment, result)
    picture = folder / f"{result['name']}.png"
    figure = ""
    if experiment.draw is not None:
        data = base64.b64encode(picture.read_bytes()).decode()
        figure = f'<img alt="{html.escape(result["title"])}" src="data:image/png;base64,{data}">'
    data_line = f" Data: {'; '.join(result['data'])}." if result["data"] else ""
    return (
        f'<h2 id="{result["name"]}">{html.escape(result["title"])}</h2>'
        f"<figure>{figure}<figcaption>{html.escape(view['caption'])}</figcaption></figure>"
        + "".join(_table(table) for table in view["tables"])
        + f'<p class="note">Made by <code>{html.escape(result["command"])}</code> in {result["seconds"]:.0f} s.'
        f"{html.escape(data_line)}</p>"
    )


def _table(table: dict[str, Any]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in table["headings"])
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"])
    note = f'<p class="note">{html.escape(table["note"])}</p>' if table["note"] else ""
    return (
        f"<h3>{html.escape(table['title'])}</h3>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'
    )
