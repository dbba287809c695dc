"""The command train: users, shuffler and analyzer simulated in one process."""

import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apes.accounting.account import by_group, local_figures
from apes.cli import display, shared
from apes.cli.choices import Choices, make_choices
from apes.cli.subjects import budgets_said, named_groups, of_table, subjects
from apes.errors import ParameterError
from apes.features.feature_map import FeatureMap
from apes.models.model import Model
from apes.partitions.partitions import Partitions
from apes.people.people import People
from apes.storage.version import __version__
from apes.terms.fitting import fitted
from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.basis import basis_of
from apes.training.cohort import cohort_names
from apes.training.crews.crew import Crew
from apes.training.memory import check_memory
from apes.training.run import Progress
from apes.training.run_files import ACCOUNT, ACCURACY, check_new
from apes.training.run_folder import RunFolder
from apes.training.train import TrainingResult, train
from apes.training.workers import Workers


def run_training(
    choices: dict[str, Any],
    *,
    data_dir: Path | None,
    out: Path | None,
    resume: Path | None,
    preset: str,
    plan_file: Path | None,
    threads: int | None,
    workers: int | None,
    cluster: str | None,
    cache_mb: int | None,
    as_json: bool,
) -> None:
    """Train as the options of `apes train` say (`apes.cli.train_options`)."""
    if resume is not None and out is not None:
        raise ParameterError(f"out must be left out: --resume goes on in its own folder; got {str(out)!r}")
    earlier = None if resume is None else RunFolder.open(resume)
    before = None if earlier is None else earlier.config["choices"]
    chosen = make_choices(choices, before, preset, plan_file, tables=True)
    who = Workers(threads=threads, processes=workers, cluster=cluster)
    if out is not None:
        check_new(out)
    # Everything that can be refused is refused before a folder is made: workers who are not there, too.
    task = _task(chosen, data_dir, cache_mb)
    check_memory(task.model.dimensions, task.plan.terms, task.people.budgets.size, who)
    with who.open() as crew:
        folder = earlier if out is None else _new_folder(out, chosen, task)
        began = time.perf_counter()
        result = _train(task, folder, crew)
        summary = _summary(chosen.people, task, result, time.perf_counter() - began) | of_table(task.people, result)
        summary |= {"workers": asdict(crew.facts), "out": None if folder is None else str(folder.path)}
    if folder is not None:
        _finish(folder, result, summary)
    shared.tell(summary, as_json, lambda: display.summary(summary))


@dataclass(frozen=True, eq=False)
class _Task:
    """Who trains what, under which plan, with everything settled."""

    people: People | Partitions
    model: Model
    features: FeatureMap | None
    plan: Plan
    source: str  # where the data is from


def _train(task: _Task, folder: RunFolder | None, crew: Crew) -> TrainingResult:
    """Train, from where the folder's run is, and let a person watch."""
    reached = None if folder is None else folder.load()
    what, done = (task.plan.framework, task.plan.terms.rounds), reached.rounds if reached else 0
    with display.training_rounds(*what, done, lambda: f" on {crew.facts}") as show:

        def after_round(progress: Progress) -> None:
            if folder is not None:
                folder.save(progress)
            show(progress.metrics[-1])

        how: dict[str, Any] = {"workers": crew, "resume": reached, "after_round": after_round}
        return train(task.model, task.people, task.plan, features=task.features, **how)


def _task(chosen: Choices, data_dir: Path | None, cache_mb: int | None) -> _Task:
    people, model, source = subjects(chosen.people, data_dir, cache_mb)
    features = chosen.people.feature_map() if isinstance(chosen.people, Simulation) else None
    with display.working() as say:
        say("fitting clip bound and cap to the budgets")
        plan = fitted(chosen.plan, people.budgets, model)
    return _Task(people, model, features, plan, source)


def _new_folder(path: Path, chosen: Choices, task: _Task) -> RunFolder | None:
    """A folder for the run, or None if not even its first round keeps within the target."""
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
    basis = basis_of(accountant, len(cohorts), cohort_names(cohorts, budgets))
    return RunFolder.create(path, chosen.as_dict(), basis, data=task.source, schema=people.schema)


def _finish(folder: RunFolder, result: TrainingResult, summary: dict[str, Any]) -> None:
    """Write the model, the summary, a picture of how it went and one of what it cost whom."""
    from apes.cli.plots import draw_accuracy, draw_run_account

    folder.finish(result.weights, summary)
    what = f"{summary['framework']} on {Path(summary['data']).name}"
    title = f"{what}: {summary['users']:,} users, budgets {summary['budgets']}"
    if result.metrics[-1].loss is not None:
        draw_accuracy(result.metrics, title, folder.path / ACCURACY)
    if result.guarantee.why_not_certified is None:
        groups, spent = by_group(result.guarantee, result.budgets), [entry.epsilon or 0.0 for entry in result.metrics]
        draw_run_account(groups, spent, result.guarantee, folder.path / ACCOUNT)


def _summary(simulation: Simulation | OwnTable, task: _Task, result: TrainingResult, seconds: float) -> dict[str, Any]:
    """What a run came to, as plain values."""
    plan = result.plan
    low, high = float(result.budgets.min()), float(result.budgets.max())
    exposure, last = result.exposures[-1], result.metrics[-1]
    noise = plan.terms.calibrator(plan.calibration).standard_error(result.budgets)
    optimizer = plan.schedule.steps(plan.terms, task.model, noise)
    local = {"coordinate": [low, high], "user": [exposure.charged * low, exposure.charged * high]}
    if exposure.norm is not None:
        of_both = [local_figures(exposure, budget, result.guarantee.delta) for budget in (low, high)]
        local["user_at_delta"] = [figures["user_at_delta"] for figures in of_both]
    proved = result.guarantee.as_dict([entry.epsilon for entry in result.metrics])
    if proved["epsilon"] is not None:
        proved["by_budget"] = named_groups(by_group(result.guarantee, result.budgets), task.people, result.budgets)
    return {
        "framework": plan.framework,
        "budgets": budgets_said(simulation),
        "users": result.budgets.size,
        "dimensions": exposure.dimensions,
        "rounds": len(result.metrics),
        "clip": plan.terms.clip,
        "norm": plan.norm,
        "cap": plan.cap,
        "levels": exposure.levels,
        "seed": plan.seed,
        "data": simulation.data,
        "split": getattr(simulation, "split", None),
        "features": getattr(simulation, "features", None),
        "learning_rate": optimizer.learning_rate,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "accuracy_by_round": [entry.accuracy for entry in result.metrics],
        "loss_by_round": [entry.loss for entry in result.metrics],
        "model_sha256": result.model_sha256,
        "seconds": seconds,
        "seconds_per_round": sorted(entry.seconds for entry in result.metrics)[len(result.metrics) // 2],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "local_epsilon": local,
        "version": __version__,
        "certified": proved,
    }
