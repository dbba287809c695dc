"""The command plan, as it is called: its options, without what searches."""

from typing import Annotated

import typer

from apes.cli import shared
from apes.cli.options import Preset
from apes.defaults import BUDGETS, FRAMEWORK, NORM_TO_CLIP, PRIVATE, TARGET_EPSILON, USERS

_USERS = f"Number of users (default {USERS}, or as many as a file of budgets holds)."
_SOLVE = (
    "What to find: cap (on budgets), users, rounds, or levels (of reports); by default the plan that `apes train` fits "
    "to these people."
)
_CLIP = f"C beside a norm (default R / {NORM_TO_CLIP:g}); or C[,C2,...] to state errors for."


# parameters: one per option, as typer wants it.
def plan_command(
    target_epsilon: Annotated[
        float, typer.Option(help="Largest certified epsilon of a user over all rounds.")
    ] = TARGET_EPSILON,
    delta: shared.Delta = None,
    solve: Annotated[str | None, typer.Option(help=_SOLVE)] = None,
    budgets: shared.Budgets = BUDGETS,
    users: Annotated[int | None, typer.Option(help=_USERS)] = None,
    dimensions: shared.PlanDimensions = None,
    rounds: shared.PlanRounds = None,
    levels: shared.Levels = None,
    clip: Annotated[str | None, typer.Option(help=_CLIP)] = None,
    norm: shared.PlanNorm = None,
    cap: Annotated[float | None, typer.Option(help="Largest local budget that is used, if one is set already.")] = None,
    framework: shared.FrameworkName = FRAMEWORK,
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    preset: Preset = PRIVATE,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Find the plan, the cap on budgets, the users, the rounds or the levels of reports that reach a target."""
    from apes.cli.plan import run_planning

    run_planning(
        target_epsilon=target_epsilon,
        delta=delta,
        solve=solve,
        budgets=budgets,
        users=users,
        dimensions=dimensions,
        rounds=rounds,
        levels=levels,
        clip=clip,
        norm=norm,
        cap=cap,
        framework=framework,
        sparsifier=sparsifier,
        keep=keep,
        seed=seed,
        preset=preset,
        plot=plot,
        as_json=as_json,
    )
