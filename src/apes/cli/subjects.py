"""Who trains what: made-up people on a named set, or those of an own table; and what is to be said of a table."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from apes.accounting.account import BudgetGroup
from apes.checks import unused
from apes.cli import display
from apes.mathematics.arrays import F64
from apes.models.model import Model
from apes.population import People
from apes.terms.own_table import OwnTable
from apes.terms.simulation import Simulation
from apes.training.train import TrainingResult


def subjects(chosen: Simulation | OwnTable, data_dir: Path | None) -> tuple[People, Model, str]:
    """People, model, and where the data came from."""
    if isinstance(chosen, Simulation):
        dataset = display.dataset(chosen, data_dir)
        return chosen.people(dataset), chosen.model(dataset), dataset.provenance
    unused({"data_dir": None if data_dir is None else str(data_dir)}, "data is a file")
    with display.steps(f"reading {escape(Path(chosen.data).name)}", "read") as progress:
        people = chosen.people(progress)
    return people, chosen.model(people), f"own table: {chosen.data}"


def of_table(people: People, result: TrainingResult) -> dict[str, Any]:
    """What is to be said of a table; nothing where there is none."""
    if people.schema is None or people.facts is None:
        return {}
    said: dict[str, Any] = {"schema_sha256": people.schema.digest, **asdict(people.facts)}
    loss, target = result.metrics[-1].loss, people.schema.target
    if target is not None and loss is not None:
        said["root_mean_square_error"] = target.half * math.sqrt(loss)
    return {"table": said}


def named_groups(groups: Iterable[BudgetGroup], people: People, applied: F64) -> list[dict[str, Any]]:
    """Groups of users by their budgets as they were applied, with the levels that they chose, if they did among levels.

    A level is named in the group of those who chose it; one that nobody who trains chose is named nowhere, since
    nothing is proved for it.
    """
    told = [asdict(group) for group in groups]
    levels = () if people.schema is None else people.schema.budget_levels
    for group in told if levels else ():
        group["levels"] = []
    for name, budget in levels:
        theirs = applied[people.budgets == budget]
        if theirs.size:
            next(group for group in told if theirs[0] <= group["budget"])["levels"].append(name)
    return told


def budgets_said(chosen: Simulation | OwnTable) -> str | None:
    """Where budgets came from: a law, or a column."""
    column = getattr(chosen, "budget_column", None)
    return chosen.budgets if column is None else f"column {column}"
