"""The command account: what is proved about a population, or about a run from its log alone."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apes.accounting.words import counted, meaning
from apes.checks import unused
from apes.cli import answers, display, shared
from apes.cli.certifying import Invitation, certified_again
from apes.errors import ParameterError

if TYPE_CHECKING:
    from apes.accounting.account import Account


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
    cap: shared.Cap = None,
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds per coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    framework: shared.FrameworkName = "apes",
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    run: Annotated[Path | None, typer.Option(help="Certify this run again, from its log alone.")] = None,
    invitation: Invitation = None,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim."""
    if run is not None:
        unused(_given(asked, but=("run", "invitation", "plot", "as_json")), "a run has its own")
        _account_of_run(run, invitation, plot, as_json)
        return
    unused({"invitation": invitation}, "it goes with --run")
    from apes.accounting.account import Question, account

    choices = {"clip": clip, "norm": norm, "cap": cap, "framework": framework, "sparsifier": sparsifier, "keep": keep}
    terms = shared.certified_terms(levels, **choices)
    exposure = shared.exposure_of(terms, budgets, users, seed, dimensions)
    began, question = time.perf_counter(), Question(exposure, rounds, delta, delta_s, colluders)
    with display.working() as show:
        result = account(question, show)
    asked_for = {"rounds": rounds, "users": users, "delta_s": delta_s, "cap": cap}
    answer = asked_for | _as_dict(result) | {"seconds": time.perf_counter() - began}
    _draw(result, plot, _title(asked.params))
    shared.tell(answer, as_json, lambda: answers.account(answer))


def _title(asked: dict[str, Any]) -> str:
    """What is accounted for, above its picture."""
    users, rounds = counted(asked["users"], "user"), counted(asked["rounds"], "round")
    cap = "" if asked["cap"] is None else f", cap {asked['cap']:g}"
    return f"{asked['framework']}, {users}, budgets {asked['budgets']}{cap}, {rounds}"


def _draw(result: "Account", plot: Path | None, title: str) -> None:
    if plot is not None:
        from apes.cli.plots import draw_account

        draw_account(result, plot, title)


def _given(asked: typer.Context, but: tuple[str, ...]) -> dict[str, Any]:
    """The options that were given on the command line, without some."""
    sources = {name: asked.get_parameter_source(name) for name in asked.params if name not in but}
    # By name: the enumeration is click's or typer's own, according to typer's version.
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return {name: asked.params[name] for name in given}


def _account_of_run(path: Path, invitation: Path | None, plot: Path | None, as_json: bool) -> None:
    """Charge again what a run's log says was released; for everybody, and for users by their budgets."""
    from apes.accounting.account import by_group, with_levels
    from apes.report.facts import levels_of
    from apes.training.run_folder import RunFolder

    with display.working() as show:
        show("certifying the run again")
        folder = RunFolder.open(path)
        by_round, guarantee, signed = certified_again(folder, invitation)
        show("personal guarantees")
        is_certified = guarantee.why_not_certified is None
        groups = by_group(guarantee, guarantee.budgets) if is_certified else ()
    certified = guarantee.as_dict(by_round)
    if groups:
        certified["by_budget"] = with_levels(groups, levels_of(folder, guarantee))
    if plot is not None:
        from apes.cli.run_plots import draw_run_account

        if not groups:
            raise ParameterError(f"plot must be left out: {guarantee}; got {str(plot)!r}")
        draw_run_account(groups, by_round, guarantee, plot)
    answer = {"run": str(path), "rounds": len(by_round), "certified": certified, **signed}
    by = "".join(f"; by invitation {value}, compare it by another channel" for value in signed.values())
    text = f"{path}: {counted(len(by_round), 'round')}; {guarantee}: {certified['meaning']}{by}"
    shared.tell(answer, as_json, lambda: _show_run(text, certified))


def _show_run(text: str, certified: dict[str, Any]) -> None:
    typer.echo(text)
    if "by_budget" in certified:
        display.groups(certified["by_budget"])


def _as_dict(result: "Account") -> dict[str, Any]:
    """The account as plain values."""
    levels = {"dimension": result.dimension, "round": result.round, "total": result.total}
    return {
        "certified": {
            name: {"epsilon": part.epsilon, "delta": part.delta, "mu": part.mu} for name, part in levels.items()
        },
        "neighbours": result.dimension.neighbours,
        "road": result.total.road,
        "meaning": meaning(result.total.epsilon, result.total.delta),
        "published": result.published,
        "lower": {name: part.lower for name, part in levels.items()},
        "local": result.local,
        "personal": [asdict(group) for group in result.personal],
    }
