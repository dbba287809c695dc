"""The page for docs: the same results as Markdown, with the pictures beside it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apes.paper import EXPERIMENTS
from apes.paper.findings import FINDINGS
from apes.paper.run import shown
from apes.storage.files import write_bytes, write_whole


def write_page(results: Mapping[str, dict[str, Any]], folder: Path, page: Path, seconds: float) -> None:
    """Write a Markdown page, and copy the pictures into ``figures/reproduction`` beside it.

    Args:
        results: By name of experiment.
        folder: Where the pictures are.
        page: The file to write.
        seconds: How long everything took, what several experiments share counted once.
    """
    pictures = page.parent / "figures" / "reproduction"
    setting = next(iter(results.values()))["setting"]
    lines = [
        "# The paper, reproduced",
        "",
        f"Made by `{_command(results)}`. {setting['users']:,} users, {setting['rounds']} rounds, "
        f"{len(setting['seeds'])} seeds, data set {setting['data']}. {seconds / 60:.0f} minutes on two cores; runs "
        "that several tables and figures share are counted in the time of each.",
        "",
        "*As published*: the authors' settings (unit-norm images, label split, FedProx with mu 0.01, learning rate 1 "
        "and "
        "10 local epochs, continuous Clip-Laplace, C = 0.1). *Ours*: gradients, coded reports, our schedule, the same "
        "budgets, split and C. Only figures called certified are proved.",
        "",
    ]
    for name, result in results.items():
        view = shown(EXPERIMENTS[name], result)
        lines += [f"## {result['title']}", ""]
        if EXPERIMENTS[name].draw is not None:
            _copy(folder / f"{name}.png", pictures / f"{name}.png")
            lines += [f"![{result['title']}](figures/reproduction/{name}.png)", ""]
        lines += [view["caption"], ""]
        for table in view["tables"]:
            lines += _table(table)
        lines += [f"`{result['command']}`, {result['seconds']:.0f} s.", ""]
    lines += ["## Where the paper does not agree with itself, or with what is proved", ""]
    lines += [f"- {finding}" for finding in FINDINGS]
    text = "\n".join(lines) + "\n"
    write_bytes(page, text.encode())


def _command(results: Mapping[str, dict[str, Any]]) -> str:
    command: str = next(iter(results.values()))["command"]
    words = command.split()
    words[2] = "all"
    return " ".join(words)


def _copy(source: Path, target: Path) -> None:
    def write(file: Any) -> None:
        with source.open("rb") as picture:
            shutil.copyfileobj(picture, file)

    write_whole(target, write)


def _table(table: dict[str, Any]) -> list[str]:
    lines = [f"**{table['title']}**", "", "| " + " | ".join(table["headings"]) + " |"]
    lines.append("|" + "---|" * len(table["headings"]))
    lines += ["| " + " | ".join(row) + " |" for row in table["rows"]]
    return [*lines, "", *([table["note"], ""] if table["note"] else [])]
