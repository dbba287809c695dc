"""What a table or figure is made of."""

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
    """A table for people, made from the figures; every row has a cell of text for each heading."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""  # what one sees in it


@dataclass(frozen=True)
class Experiment:
    """One table or figure, of the paper or beyond it; all that people see is made from the figures alone."""

    name: str  # as on the command line
    title: str
    parts: Callable[[Setting], list[Part]]  # what has to be worked out for it
    figures: Callable[[Setting, Results], Figures]  # plain values, from the worked-out parts
    tables: Callable[[Figures], list[Table]]
    caption: Callable[[Figures], str]  # what one sees
    draw: Callable[[Figures], Figure] | None = None  # None for the paper's tables
    is_of_paper: bool = True  # else it goes beyond the paper, and is made only when asked for by name
