"""The command account: what is proved about a population, or about a run from its log alone."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting.account import Account, Question, account, by_group
from apes.accounting.words import meaning
from apes.checks import unused
from apes.cli import display, shared
from apes.errors import ParameterError
from apes.training.run_folder import RunFolder


# parameters: one per option, as typer wants it.
def account_command(
    asked: typer.Context,
    budgets: shared.Budgets = "uniform2",
    users: shared.Users = 10_000,
    dimensions: shared.Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds with the same participants.")] = 40,
    delta: Annotated[float, typer.Option(help="Delta of the user-level guarantees.")] = 3.6e-5,
    levels: shared.Levels = None,
    clip: shared.Clip = 0.1,
    norm: shared.Norm = None,
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds per coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    framework: shared.FrameworkName = "apes",
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    run: Annotated[Path | None, typer.Option(help="Certify this run again, from its log alone.")] = None,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim."""
    if run is not None:
        # By name: the enumeration is click's or typer's own, according to typer's version.
        own = ("run", "plot", "as_json")
        sources = {name: asked.get_parameter_source(name) for name in asked.params if name not in own}
        given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
        unused({name: asked.params[name] for name in given}, "a run has its own")
        _account_of_run(run, plot, as_json)
        return
    terms = shared.certified_terms(levels, clip=clip, norm=norm, framework=framework, sparsifier=sparsifier, keep=keep)
    exposure = shared.exposure_of(terms, budgets, users, seed, dimensions)
    began = time.perf_counter()
    with display.working() as show:
        result = account(Question(exposure, rounds, delta, delta_s, colluders), show)
    answer = _as_dict(result) | {"seconds": time.perf_counter() - began}
    if plot is not None:
        from apes.cli.plots import draw_account

        draw_account(result, plot)
    display.account(answer)
    shared.tell(answer, as_json)


def _account_of_run(path: Path, plot: Path | None, as_json: bool) -> None:
    """Charge again what a run's log says was released; for everybody, and for users by their budgets."""
    with display.working() as show:
        show("certifying the run again")
        folder = RunFolder.open(path)
        if "receipts_key" in folder.config["choices"]:
            from apes.federation.receipts import check_receipts

            check_receipts(folder)
        by_round, guarantee = folder.recertify()
        show("personal guarantees")
        is_certified = guarantee.why_not_certified is None
        groups = by_group(guarantee, guarantee.budgets) if is_certified else ()
    certified = guarantee.as_dict(by_round)
    if groups:
        certified["by_budget"] = [asdict(group) for group in groups]
        display.groups(certified["by_budget"])
    if plot is not None:
        from apes.cli.plots import draw_run_account

        if not groups:
            raise ParameterError(f"plot must be left out: {guarantee}; got {str(plot)!r}")
        draw_run_account(groups, by_round, guarantee, plot)
    answer = {"run": str(path), "rounds": len(by_round), "certified": certified}
    shared.tell(answer, as_json, f"{path}: {len(by_round)} rounds; {guarantee}: {certified['meaning']}")


def _as_dict(result: Account) -> dict[str, Any]:
    """The account as plain values."""
    levels = {"dimension": result.dimension, "round": result.round, "total": result.total}
    return {
        "certified": {
            name: {"epsilon": part.epsilon, "delta": part.delta, "mu": part.mu} for name, part in levels.items()
        },
        "neighbours": result.dimension.neighbours,
        "road": result.total.road,
        "meaning": meaning(result.total.epsilon),
        "published": result.published,
        "lower": {name: part.lower for name, part in levels.items()},
        "local": result.local,
        "personal": [asdict(group) for group in result.personal],
    }
