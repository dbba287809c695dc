"""Pages for people: one HTML file with everything in it, readable offline, in light and dark, on paper and on a phone.

What a page says may be a stranger's text: names of columns, files and levels. All of it goes through `escaped`, and
what cannot be seen is spelt out. A page loads nothing and runs nothing, and says so to the browser.
"""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from apes.storage.files import write_bytes

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ink: #1b6ca8; --against: #b3541e; --soft: #8882; }
@media (prefers-color-scheme: dark) { :root { --ink: #6db3e8; --against: #e8965a; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1.5rem;
  overflow-wrap: break-word; }
h1 { margin-bottom: .2rem; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
nav a { margin-right: 1rem; white-space: nowrap; } a { color: var(--ink); } p, li { max-width: 60rem; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; } th { border-bottom-width: 2px; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
table.words th, table.words td { text-align: left; vertical-align: top; } table.words th { border-bottom-width: 1px; }
code { background: var(--soft); padding: .1rem .35rem; border-radius: 3px; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .8rem; border-radius: 4px; overflow-x: auto; white-space: pre-wrap; }
pre code { background: none; padding: 0; }
.lead { font-size: 1.15rem; } .quiet { opacity: .75; font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { width: 100%; height: auto; max-width: 36rem; } svg text { fill: currentColor; font-size: 11px; }
svg .grid { stroke: var(--line); } svg .ours { stroke: var(--ink); } svg .against { stroke: var(--against); }
svg path, svg line { fill: none; } svg .curve { stroke-width: 2; } svg .dashed { stroke-dasharray: 5 4; }
svg circle.ours { fill: var(--ink); } svg text.ours { fill: var(--ink); } svg text.against { fill: var(--against); }
svg text.ours, svg text.against { stroke: Canvas; stroke-width: 3px; paint-order: stroke; }
table + .figures, .figures + table { margin-top: 1rem; }
.bar { display: inline-block; height: .7rem; background: var(--ink); border-radius: 2px; min-width: 1px; }
.bars { display: block; width: 8rem; text-align: left; }
@media (max-width: 30rem) { body { padding: .8rem; } h1 { font-size: 1.5rem; } h2 { margin-top: 2rem; }
  .bars { width: 3rem; } svg text { font-size: 14px; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  figure, table, pre { break-inside: avoid; } h2 { break-after: avoid; margin-top: 1.5rem; }
  .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def escaped(text: object) -> str:
    r"""A text for HTML, as it is: no sign of it is markup, and signs that do not show are spelt out.

    >>> escaped("<b>a & b\x1b[31m\u202e")
    '&lt;b&gt;a &amp; b\\x1b[31m\\u202e'
    """
    seen = (sign if unicodedata.category(sign) not in _HIDDEN else ascii(sign)[1:-1] for sign in str(text))
    return html.escape("".join(seen))


def code(text: object) -> str:
    """A text to copy."""
    return f"<code>{escaped(text)}</code>"


def paragraph(text: object, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_kind(kind)}>{escaped(text)}</p>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table; its cells are HTML already."""
    head = "".join(f'<th scope="col">{escaped(heading)}</th>' for heading in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table{_kind(kind)}>{f'<thead><tr>{head}</tr></thead>' if headings else ''}<tbody>\n{body}</tbody></table>"


def words(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are, which is HTML already."""
    body = "\n".join(f'<tr><th scope="row">{escaped(name)}</th><td>{value}</td></tr>' for name, value in rows)
    return f'<table class="words"><tbody>\n{body}</tbody></table>'


def section(name: str, title: str, *blocks: str) -> str:
    """A part of a page, with a heading of second rank that links lead to."""
    return f'<section>\n<h2 id="{escaped(name)}">{escaped(title)}</h2>\n' + "\n".join(blocks) + "\n</section>"


def document(title: str, links: Iterable[tuple[str, str]], body: str) -> str:
    """A whole page: title and links are texts (a name of a part, and what to call it), the body is HTML."""
    to_parts = "\n".join(f'<a href="#{escaped(name)}">{escaped(called)}</a>' for name, called in links)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><meta name="referrer" content="no-referrer">
<title>{escaped(title)}</title><style>{_STYLE}</style></head>
<body><nav aria-label="Parts of this page">{to_parts}</nav>
<main>
{body}
</main></body></html>
"""


def write_document(path: Path, page: str) -> None:
    """Write a page; the file appears whole or not at all."""
    write_bytes(path, page.encode())


def _kind(kind: str) -> str:
    return f' class="{escaped(kind)}"' if kind else ""
