"""Advice as a page to hand around: one file of HTML that loads nothing, in light and dark, on paper too."""

from collections.abc import Iterable
from html import escape

from apes.advice.advise import Advice
from apes.advice.way import Way
from apes.advice.words import change_in_words, figure, question_in_words
from apes.storage.version import __version__

MARK = '<meta name="generator" content="apes advise">'
"""What tells a page of ours from any other file."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --faint: #5b6675; --paper: #fff; --line: #d5dbe3; --ours: #1b6ca8;
  --bad: #b3541e; --soft: #eef4f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --faint: #a3afbf; --paper: #14181f; --line: #333c49;
  --ours: #6db3e8; --bad: #e79a6b; --soft: #1b2530; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .5rem 0; } .faint { color: var(--faint); } .bad { color: var(--bad); }
.best { background: var(--soft); border-left: 4px solid var(--ours); padding: .9rem 1.1rem; margin: 1.4rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 600; color: var(--faint); } th.left, td.left { text-align: left; } tr.first td { font-weight: 600; }
.bar { display: block; height: .35rem; margin-top: .25rem; background: var(--ours); border-radius: 2px;
  max-width: 100%; } .bar.over { background: var(--bad); }
pre { background: var(--soft); padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0;
  font-size: .85rem; } ol { padding-left: 1.4rem; } li { margin: .6rem 0; }
@media print { :root { --ink: #000; --paper: #fff; --soft: #f2f2f2; --faint: #444; --line: #999; } body { padding: 0; }
  tr, li, .best { break-inside: avoid; } }
"""


def page_of(advice: Advice) -> str:
    """The whole page."""
    title = "How to train within the target"
    best = advice.best
    told = "Nothing keeps within the target: take fewer rounds, a larger target or more people."
    if best is not None:
        told = f"<strong>Recommended: {escape(best.name)}, {escape(change_in_words(best))}.</strong> "
        told += escape(best.reason)
        told += f"<pre>{escape(best.command)}</pre>"
    body = [
        f"<h1>{title}</h1><p>{escape(question_in_words(advice.question))}</p>",
        f'<div class="best">{told}</div>',
        f"<h2>Certified ways, best first</h2>{_ways(advice)}",
        f"<h2>Epsilon by own budget, over all rounds</h2>{_groups(advice)}",
        f"<h2>How to do it</h2>{_commands(advice.ways)}",
        f"<h2>What is protected</h2><p>{escape(advice.unit)}</p>",
        f"<h2>Whom one relies on</h2><p>{escape(advice.trust)}</p>",
        f"<h2>What the accuracy is</h2><p>{escape(advice.basis)}</p>",
        f'<p class="faint">Every epsilon here is proved (docs/proofs.md). APES {escape(__version__)}.</p>',
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{MARK}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _ways(advice: Advice) -> str:
    """The ways with their figures; a bar shows epsilon against the target."""
    target = advice.question.target_epsilon
    rows = []
    for way in advice.ways:
        width, over = min(100.0, 100 * way.epsilon / target), "" if way.meets_target else " over"
        epsilon = f'{figure(way.epsilon)}<span class="bar{over}" style="width:{width:.0f}%"></span>'
        accuracy = "not measured" if way.accuracy is None else f"{100 * way.accuracy:.1f} %"
        words = escape(way.name if way.meets_target else f"{way.name} (beyond the target)")
        rows.append(
            (words, escape(change_in_words(way)), epsilon, accuracy, f"{way.noise:.2g}", f"{way.noise_of_weight:.2g}")
        )
    headings = (
        "way",
        "with",
        f"epsilon (target {target:g})",
        "expected accuracy",
        "noise per round",
        "noise in a weight",
    )
    return _table(headings, rows, left=2)


def _groups(advice: Advice) -> str:
    """What every way costs people by their budgets."""
    groups = advice.ways[0].groups
    headings = ("way", *(f"up to {group.budget:.3g} ({100 * group.share:.3g} %)" for group in groups))
    rows = [
        (escape(f"{way.name}, {change_in_words(way)}"), *(figure(group.epsilon) for group in way.groups))
        for way in advice.ways
    ]
    return _table(headings, rows, left=1)


def _commands(ways: Iterable[Way]) -> str:
    items = (
        f"<li>{escape(f'{way.name}, {change_in_words(way)}: {way.reason}')}<pre>{escape(way.command)}</pre></li>"
        for way in ways
    )
    return f"<ol>{''.join(items)}</ol>"


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]], left: int) -> str:
    """A numbered table; cells are HTML, headings are text, the first ``left`` columns are words."""

    def cell(kind: str, place: int, content: str) -> str:
        return f"<{kind}{' class=left' if place < left else ''}>{content}</{kind}>"

    head = "<th>#</th>" + "".join(cell("th", place, escape(text)) for place, text in enumerate(headings))
    lines = [
        f"<tr{' class=first' if number == 1 else ''}><td>{number}</td>"
        + "".join(cell("td", place, content) for place, content in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows, start=1)
    ]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
