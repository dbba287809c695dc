"""What a table or figure of the paper is made of."""

from collections.abc import Callable
from dataclasses import dataclass
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
