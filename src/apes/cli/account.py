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
from apes.cli.options import Preset
from apes.defaults import BUDGETS, FRAMEWORK, PRIVATE, USERS
from apes.errors import ParameterError

if TYPE_CHECKING:
    from apes.accounting.account import Account


# parameters: one per option, as typer wants it.
def account_command(
    asked: typer.Context,
    budgets: shared.Budgets = BUDGETS,
    users: shared.Users = USERS,
    dimensions: shared.PlanDimensions = None,
    rounds: shared.PlanRounds = None,
    target_epsilon: shared.PlanTarget = None,
    delta: shared.Delta = None,
    levels: shared.Levels = None,
    clip: shared.PlanClip = None,
    norm: shared.PlanNorm = None,
    cap: shared.PlanCap = None,
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds per coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    framework: shared.FrameworkName = FRAMEWORK,
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    preset: Preset = PRIVATE,
    run: Annotated[Path | None, typer.Option(help="Certify this run again, from its log alone.")] = None,
    invitation: Invitation = None,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim.

    Without options: of the training of `apes train`, whose clip bound and cap are fitted to the budgets.
    """
    if run is not None:
        unused(_given(asked, but=("run", "invitation", "plot", "as_json")), "a run has its own")
        _account_of_run(run, invitation, plot, as_json)
        return
    unused({"invitation": invitation}, "it goes with --run")
    from apes.accounting.account import Question, account
    from apes.budgets import make_budgets
    from apes.cli.plan_words import plan_as_dict, plan_in_words
    from apes.terms.fitting import fitted_to

    bounds = shared.with_preset(preset, clip=clip, norm=norm, cap=cap, rounds=rounds, dimensions=dimensions)
    size = bounds.pop("dimensions")
    kind = {"framework": framework, "sparsifier": sparsifier, "keep": keep}
    plan = shared.certified_plan(levels, **kind, **bounds, delta=delta, target_epsilon=target_epsilon)
    if not plan.is_open:
        unused({"target_epsilon": target_epsilon}, "clip bound and cap are not fitted to one")
    own = make_budgets(budgets, users, seed)
    began = time.perf_counter()
    with display.working() as show:
        show("fitting clip bound and cap to the budgets")
        settled = fitted_to(plan, own, size)
        terms = settled.terms
        exposure, at = terms.exposure(0, terms.applied(own), size), terms.central_delta(own.size)
        result = account(Question(exposure, terms.rounds, at, delta_s, colluders), show)
    about = plan_as_dict(settled, is_fitted=plan.is_open)
    asked_for = {"rounds": terms.rounds, "users": users, "delta_s": delta_s, "cap": terms.cap, "plan": about}
    answer = asked_for | _as_dict(result) | {"seconds": time.perf_counter() - began}
    _draw(result, plot, _title(asked.params | {"rounds": terms.rounds, "cap": terms.cap}))
    shared.tell(answer, as_json, lambda: answers.account(answer, plan_in_words(about)))


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
