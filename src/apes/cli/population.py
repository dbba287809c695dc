"""Options of the commands that ask about a population: who takes part, and what a round of theirs reveals."""

from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting.exposure import Exposure
from apes.budgets import make_budgets
from apes.errors import ParameterError
from apes.terms.terms import Terms

Budgets = Annotated[str, typer.Option(help="Local budgets, as for train.")]
Users = Annotated[int, typer.Option(help="Number of users.")]
Dimensions = Annotated[int, typer.Option(help="Coordinates of a report.")]
Levels = Annotated[str, typer.Option(help="Levels of a coded report, 2 to 256, or 'continuous'.")]
FrameworkName = Annotated[str, typer.Option(help="apes, s-apes-first, s-apes-threshold, or s-apes with random-b.")]
SparsifierName = Annotated[str | None, typer.Option(help="As for train.")]
Keep = Annotated[float | None, typer.Option(help="Fraction of coordinates kept, as for train.")]
Seed = Annotated[int, typer.Option(help="Seed of the budgets.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a picture into this PNG file.")]


def certified_terms(levels: str, **choices: Any) -> Terms:
    """Terms with a certificate."""
    terms = Terms(levels=int(levels) if levels.isdigit() else levels, **choices)
    if terms.why_not_certified is not None:
        raise ParameterError(f"framework must be one with a certificate: {terms.why_not_certified}")
    return terms


def exposure_of(terms: Terms, budgets: str, users: int, seed: int, dimensions: int) -> Exposure:
    """What a round with these participants reveals."""
    return terms.exposure(0, make_budgets(budgets, users, seed), dimensions)
