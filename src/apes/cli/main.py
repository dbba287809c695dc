"""The command line: parse, call, print."""

import json
import resource
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import NEIGHBOURS
from apes.cli import display
from apes.cli.accounting import account_command, audit_command, plan_command
from apes.cli.converge import converge_command
from apes.cli.data import data_app
from apes.cli.federation import federation_app, shuffler_command, vault_command
from apes.cli.options import make_plan, with_plan_options
from apes.cli.plots.pictures import draw_accuracy
from apes.cli.reproduce import reproduce_command
from apes.cli.shared import Json, says_what_went_wrong
from apes.data import Dataset
from apes.errors import ParameterError
from apes.models.logistic import LogisticRegression
from apes.storage.version import __version__
from apes.terms.plan import Plan
from apes.training.analysis import Progress
from apes.training.run_folder import RunFolder
from apes.training.train import TrainingResult, train

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(data_app, name="data")
app.command("account")(account_command)
app.command("plan")(plan_command)
app.command("audit")(audit_command)
app.command("converge")(converge_command)
app.command("reproduce")(reproduce_command)
app.command("vault")(vault_command)
app.command("shuffler")(shuffler_command)
app.add_typer(federation_app, name="federation")


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Personalised private federated learning in the shuffle model."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("train")
@says_what_went_wrong
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
    dataset = display.dataset(plan, data_dir)
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
            show(progress.metrics[-1])

        accountant = plan.accountant(_dimensions(dataset))
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
    budgets, event = result.population_budgets, result.events[-1]
    low, high = float(budgets.min()), float(budgets.max())
    return {
        "framework": plan.framework,
        "budgets": plan.budgets,
        "users": plan.users,
        "dimensions": event.dimensions,
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
        "local_epsilon": {
            "coordinate": [low, high],
            "user": [event.coordinates_from_data * low, event.coordinates_from_data * high],
        },
        "version": __version__,
        "out": None if folder is None else str(folder.path),
    }
