"""The command account: what is proved about a population, or about a run from its log alone."""

# parameters: a command has one per option.

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting.account import Account, Question, account
from apes.cli import display
from apes.cli.plots.account import draw_account
from apes.cli.population import (
    Budgets,
    Dimensions,
    FrameworkName,
    Keep,
    Levels,
    Plot,
    Seed,
    SparsifierName,
    Users,
    certified_terms,
    exposure_of,
)
from apes.cli.shared import Json, says_what_went_wrong
from apes.training.run_folder import RunFolder


@says_what_went_wrong
def account_command(
    budgets: Budgets = "uniform2",
    users: Users = 10_000,
    dimensions: Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds with the same participants.")] = 40,
    delta: Annotated[float, typer.Option(help="Delta of the user-level guarantees.")] = 3.6e-5,
    levels: Levels = "256",
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds per coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    framework: FrameworkName = "apes",
    sparsifier: SparsifierName = None,
    keep: Keep = None,
    seed: Seed = 1,
    run: Annotated[Path | None, typer.Option(help="Certify this run again, from its log alone.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim."""
    if run is not None:
        _account_of_run(run, as_json)
        return
    terms = certified_terms(levels, framework=framework, sparsifier=sparsifier, keep=keep)
    exposure = exposure_of(terms, budgets, users, seed, dimensions)
    began = time.perf_counter()
    with display.working() as show:
        result = account(Question(exposure, rounds, delta, delta_s, colluders), show)
    answer = _as_dict(result) | {"seconds": time.perf_counter() - began}
    if plot is not None:
        draw_account(result, plot)
    display.account(answer)
    if as_json:
        typer.echo(json.dumps(answer))


def _account_of_run(path: Path, as_json: bool) -> None:
    """Charge again what a run's log says was released."""
    with display.working() as show:
        show("certifying the run again")
        by_round, guarantee = RunFolder.open(path).recertify()
    why = guarantee.why_not_certified
    certified = {
        "epsilon": guarantee.epsilon if why is None else None,
        "delta": guarantee.delta,
        "epsilon_by_round": by_round if why is None else None,
        "neighbours": guarantee.neighbours,
        "why": why,
    }
    answer = {"run": str(path), "rounds": len(by_round), "certified": certified}
    typer.echo(json.dumps(answer) if as_json else f"{path}: {len(by_round)} rounds; {guarantee}")


def _as_dict(result: Account) -> dict[str, Any]:
    """The account as plain values."""
    levels = {"dimension": result.dimension, "round": result.round, "total": result.total}
    personal = zip(result.personal_local.tolist(), result.personal_central.tolist(), strict=True)
    return {
        "certified": {name: {"epsilon": part.epsilon, "delta": part.delta} for name, part in levels.items()},
        "neighbours": result.dimension.neighbours,
        "published": result.published,
        "lower": {name: part.lower for name, part in levels.items()},
        "local": result.local,
        "personal": [{"local": local, "central": central} for local, central in personal],
    }
