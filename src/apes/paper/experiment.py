"""What a table or figure of the paper is made of."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from apes.paper.parts import Part
from apes.paper.setting import Setting

Figures = dict[str, Any]
Results = Callable[[Part], dict[str, Any]]


@dataclass(frozen=True)
class Table:
    """A table for people, made from the figures.

    Attributes:
        title: What it is about.
        headings: Of the columns.
        rows: Cells as text, as many as headings.
        note: What one sees in it.
    """

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes:
        name: As on the command line.
        title: What it shows.
        parts: What has to be worked out for it.
        figures: The figures, plain values, from the worked-out parts.
        tables: Tables, from the figures alone.
        caption: What one sees, from the figures alone.
        draw: The picture, from the figures alone; None for the paper's tables.
    """

    name: str
    title: str
    parts: Callable[[Setting], list[Part]]
    figures: Callable[[Setting, Results], Figures]
    tables: Callable[[Figures], list[Table]]
    caption: Callable[[Figures], str]
    draw: Callable[[Figures], Figure] | None = None


def accuracies(parts: Iterable[Part], result: Results, rounds: int | None = None) -> dict[str, Any]:
    """Accuracy in per cent of several runs of one cell: each, mean and spread (sample standard deviation).

    Args:
        parts: The runs.
        result: Where their results are.
        rounds: After how many rounds; by default after all of them.
    """
    last = -1 if rounds is None else rounds - 1
    runs = [100 * float(result(part)["accuracy_by_round"][last]) for part in parts]
    return {"runs": runs, "mean": mean(runs), "spread": stdev(runs) if len(runs) > 1 else 0.0}


def spread(cell: dict[str, Any]) -> str:
    """Mean and spread of a cell as text."""
    return f"{cell['mean']:.2f} ± {cell['spread']:.2f}"


def signed(difference: float) -> str:
    """A difference with its sign."""
    return f"{difference:+.2f}"


def below(gap: float) -> str:
    """How far something lies below another, in points, as text; a negative gap is above it."""
    return f"{abs(gap):.2f} points {'below' if gap >= 0 else 'above'}"
