"""The results as a page of Markdown, with the pictures beside it; the report is made from the same text."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from apes.accounting.words import counted
from apes.paper.experiments import EXPERIMENTS
from apes.paper.findings import findings
from apes.storage.files import write_bytes

Result = dict[str, Any]

_COLUMNS = (
    "*As published*: the authors' settings (unit-norm images, label split, FedProx with mu 0.01, learning rate 1 and "
    "10 local epochs, continuous Clip-Laplace, C = 0.1). *Ours*: gradients, coded reports, our schedule, the same "
    "budgets, split and C. Only figures called certified are guarantees."
)


def write_page(results: Mapping[str, Result], folder: Path, page: Path, seconds: float) -> None:
    """Write a Markdown page, and copy the pictures, which are in the folder, into ``figures/reproduction`` beside it.

    Results are by name of experiment; the seconds are of everything, what several experiments share counted once.
    """
    beside = "figures/reproduction"
    for name in results:
        if EXPERIMENTS[name].draw is not None:
            write_bytes(page.parent / beside / f"{name}.png", (folder / f"{name}.png").read_bytes())
    write_bytes(page, markdown(results, beside, seconds).encode())


def markdown(results: Mapping[str, Result], pictures: str, seconds: float) -> str:
    """The text of the page: a title, a heading of second rank for every result, and one for findings on the paper.

    The pictures are where the page sees them.
    """
    is_of_paper = of_paper(results)
    blocks = ["# The paper, reproduced" if is_of_paper else "# Beyond the paper"]
    blocks += [
        _setting(list(results.values()), seconds),
        *([_COLUMNS] if is_of_paper and _trained(results.values()) else []),
    ]
    for result in results.values():
        blocks += _section(result, pictures)
    if found := findings(results):
        blocks.append("## Where the paper does not agree with itself, or with what is proved")
        blocks.append("\n".join(f"- {finding}" for finding in found))
    return "\n\n".join(blocks) + "\n"


def of_paper(results: Mapping[str, Result]) -> bool:
    """Whether there is anything of the paper among the results: then its columns are explained."""
    return any(EXPERIMENTS[name].is_of_paper for name in results)


def _setting(results: list[Result], seconds: float) -> str:
    setting, words = results[0]["setting"], results[0]["command"].split()
    if len(results) > 1:
        words[2] = "all"
    size = "a coarse version" if setting["quick"] else "full size"
    # Alone, one that stops earlier says so.
    if len(results) == 1:
        setting = setting | results[0]["figures"].get("size", {})
    took = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    rounds = f"{counted(setting['rounds'], 'round')}, " if EXPERIMENTS[results[0]["name"]].is_of_paper else ""
    trained = (
        f" Trained with {counted(setting['users'], 'user')}, {rounds}{counted(len(setting['seeds']), 'seed')}, data "
        f"set {setting['data']}, where nothing else is said."
        if _trained(results)
        else ""
    )
    shared = "; runs that several tables and figures share are counted in the time of each" if len(results) > 1 else ""
    return (
        f"Made by `{' '.join(words)}`, APES {results[0]['version']}, {size}.{trained} {took} on "
        f"{counted(os.cpu_count() or 1, 'core')}{shared}."
    )


def _trained(results: Iterable[Result]) -> bool:
    """Whether anything was trained, on data, for any of them; bounds and laws are worked out without."""
    return any(result["data"] for result in results)


def _section(result: Result, pictures: str) -> Iterator[str]:
    experiment, figures = EXPERIMENTS[result["name"]], result["figures"]
    yield f"## {result['title']}"
    if experiment.draw is not None:
        yield f"![{result['title']}]({pictures}/{result['name']}.png)"
    yield experiment.caption(figures)
    for table in experiment.tables(figures):
        head, *body = (f"| {' | '.join(row)} |" for row in (table.headings, *table.rows))
        yield f"**{table.title}**"
        yield "\n".join([head, "|" + "---|" * len(table.headings), *body])
        if table.note:
            yield table.note
    yield f"`{result['command']}`, {result['seconds']:.0f} s."
