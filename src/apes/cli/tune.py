"""The command tune: search on public data for the plan that private data is then trained by."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apes.checks import one_of
from apes.cli import answers, display, shared
from apes.data import NAMES, load
from apes.defaults import BUDGETS, DATA, DELTA_IN_WORDS, TARGET_EPSILON, USERS
from apes.errors import ParameterError
from apes.storage.version import __version__

if TYPE_CHECKING:
    from apes.training.tuning import Trial, Tuned

_DATA = f"A public or synthetic data set: {', '.join(NAMES)}. Its test part is never looked at."
_FOR = "The private data set that the plan is for; never looked at, and refused if it is the public one."
_FEATURES = "Keep to these features; by default oriented gradients with as many cells as suit."


# parameters: one per option, as typer wants it.
def tune_command(
    data: Annotated[str, typer.Option(help=_DATA)] = DATA,
    data_dir: shared.DataDir = None,
    users: Annotated[int, typer.Option(help="Users who will train.")] = USERS,
    budgets: shared.Budgets = BUDGETS,
    split: Annotated[str, typer.Option(help="How images are spread over users, as for train.")] = "iid",
    target_epsilon: Annotated[
        float, typer.Option(help="Certified central epsilon of all rounds together.")
    ] = TARGET_EPSILON,
    delta: Annotated[float | None, typer.Option(help=f"Its delta (default {DELTA_IN_WORDS}).")] = None,
    features: Annotated[str | None, typer.Option(help=_FEATURES)] = None,
    for_data: Annotated[str | None, typer.Option("--for", help=_FOR)] = None,
    runs: Annotated[int, typer.Option(help="Trainings in all, 8 to 10,000.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the search and of its runs.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Worker threads (default: one per core).")] = None,
    out: Annotated[Path, typer.Option(help="File to write the plan to.")] = Path("plan.json"),
    as_json: shared.Json = False,
) -> None:
    """Find the plan that trains best at a target, on public data; `apes train --plan FILE` takes it."""
    one_of("data", data, NAMES)
    if for_data == data:
        raise ParameterError(f"data must be public, and other than the private set of --for; got {data!r}")
    if out.exists():
        raise ParameterError(f"out must be a file that is not there yet, got {str(out)!r}")
    shared.check_place("out", out)
    chosen: dict[str, Any] = {"users": users, "budgets": budgets, "split": split}
    chosen |= {} if features is None else {"features": features}
    aim: dict[str, Any] = {"target_epsilon": target_epsilon} | ({} if delta is None else {"delta": delta})
    began = time.perf_counter()
    tuned = _tuned(chosen | {"data": data}, aim, (runs, seed, threads), data_dir)
    found = {"for": for_data, "runs": runs, "seed": seed, "version": __version__} | _found(tuned)
    choices = chosen | aim | tuned.best.choices
    _write(out, choices, data, found)
    facts: dict[str, Any] = {"out": str(out), "choices": choices, "found_on": data, "found": found}
    facts["seconds"] = time.perf_counter() - began
    shared.tell(facts, as_json, lambda: answers.tuned(found, str(out)))


def _tuned(
    chosen: dict[str, Any], aim: dict[str, Any], size: tuple[int, int, int | None], data_dir: Path | None
) -> "Tuned":
    """Search under a bar, with as many runs, from this seed, on so many threads as ``size`` says."""
    from apes.terms.plan import Plan
    from apes.terms.simulation import Simulation
    from apes.training.tuning import tune
    from apes.training.workers import Workers

    runs, seed, threads = size
    simulation, plan, workers = Simulation(**chosen, seed=seed), Plan(**aim, seed=seed), Workers(threads=threads)
    with display.steps("making the digits", "images") as made:
        dataset = load(simulation.data, data_dir=data_dir, progress=made, only_training=True)
    with display.shares("tuning") as progress:
        fixed = ("cells",) if "features" in chosen else ()
        return tune(dataset, simulation, plan, runs=runs, fixed=fixed, workers=workers, progress=progress)


def _write(out: Path, choices: dict[str, Any], data: str, found: dict[str, Any]) -> None:
    from apes.storage.settings import write_settings
    from apes.training.plan_file import PlanFile

    write_settings(out, PlanFile(choices, data, found))


def _found(tuned: "Tuned") -> dict[str, Any]:
    """How the search went, as plain values."""

    def plain(trial: "Trial") -> dict[str, Any]:
        return {"choices": trial.choices, "accuracy": trial.accuracy, "spread": trial.spread, "runs": trial.accuracies}

    found: dict[str, Any] = {"best": plain(tuned.best), "default": plain(tuned.default), "baseline": tuned.baseline}
    return found | {"trials": [plain(trial) for trial in tuned.trials]}
