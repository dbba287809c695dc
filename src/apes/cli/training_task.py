"""The task of `apes train`: who trains what under which plan, and the folder that the run is kept in."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from apes.cli import display
from apes.cli.choices import Choices
from apes.cli.subjects import levels_chosen, subjects, tell_clipped
from apes.features.feature_map import FeatureMap
from apes.models.model import Model
from apes.partitions.partitions import Partitions
from apes.people.people import People
from apes.terms.fitting import fitted
from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.basis import basis_of
from apes.training.cohort import cohort_names
from apes.training.keys import RunKeys
from apes.training.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class Task:
    """Who trains what, under which plan, with everything settled."""

    people: People | Partitions
    model: Model
    features: FeatureMap | None
    plan: Plan
    source: str  # where the data is from


def task_of(chosen: Choices, data_dir: Path | None, cache_mb: int | None) -> Task:
    """Read the people, and settle what the plan leaves open."""
    people, model, source = subjects(chosen.people, data_dir, cache_mb)
    tell_clipped(people.facts)
    features = chosen.people.feature_map() if isinstance(chosen.people, Simulation) else None
    with display.working() as say:
        say("fitting clip bound and cap to the budgets")
        plan = fitted(chosen.plan, people.budgets, model)
    return Task(people, model, features, plan, source)


def new_folder(
    path: Path, chosen: Choices, task: Task, data_dir: Path | None, keys: RunKeys | None = None
) -> RunFolder | None:
    """A folder for the run, or None if not even its first round keeps within the target; by default with new keys."""
    terms, people, dimensions = task.plan.terms, task.people, task.model.dimensions
    accountant = terms.accountant(people.budgets.size, settled=True, keep=True)
    budgets = terms.applied(people.budgets)
    with display.working() as say:
        say("settling who takes part")
        own = terms.targets(budgets, people.targets, of_table=people.schema is not None)
        cohorts = terms.cohorts(budgets, dimensions, own)
    # What cannot be calibrated is refused before there is a folder.
    terms.calibrator(task.plan.calibration).standard_error(budgets)
    if not cohorts or not accountant.allows(terms.exposure(1, budgets[cohorts[0]], dimensions)):
        return None
    basis = basis_of(accountant, len(cohorts), cohort_names(cohorts, budgets), is_seeded=task.plan.seed is not None)
    facts: dict[str, Any] = {"data": task.source, "schema": people.schema, "data_dir": data_dir}
    facts["levels"] = levels_chosen(people, budgets)
    facts |= {"keys": RunKeys.draw(task.plan.seed) if keys is None else keys, "shown": _shown(chosen)}
    return RunFolder.create(path, chosen.as_dict(), basis, **facts)


def _shown(chosen: Choices) -> dict[str, Any]:
    """What may be shown of the choices: no seed, which noise may follow from, and no paths of this machine.

    Of a table its schema says what is public.
    """
    is_table = isinstance(chosen.people, OwnTable)
    kinds = (Plan,) if is_table else (Simulation, Plan)
    names = {field.name for kind in kinds for field in fields(kind)} - {"seed", "mechanism"}
    choices = {name: value for name, value in chosen.as_dict().items() if name in names and not _is_place(value)}
    return {"choices": choices, "data": "own table" if is_table else chosen.people.data}


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("file:")
