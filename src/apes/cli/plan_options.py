"""The command plan, as it is called: its options, without what searches."""

from typing import Annotated

import typer

from apes.cli import shared

_USERS = "Number of users (default 10000, or as many as a file of budgets holds)."


# parameters: one per option, as typer wants it.
def plan_command(
    target_epsilon: Annotated[float, typer.Option(help="Largest certified epsilon of a user over all rounds.")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")],
    solve: Annotated[str, typer.Option(help="What to find: cap (on budgets), users, rounds, or levels (of reports).")],
    budgets: shared.Budgets = "uniform2",
    users: Annotated[int | None, typer.Option(help=_USERS)] = None,
    dimensions: shared.Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 40,
    levels: shared.Levels = None,
    clip: Annotated[str | None, typer.Option(help="C beside a norm; or C[,C2,...] to state errors for.")] = None,
    norm: shared.Norm = None,
    cap: Annotated[float | None, typer.Option(help="Largest local budget that is used, if one is set already.")] = None,
    framework: shared.FrameworkName = "apes",
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Find the cap on budgets, the users, the rounds or the levels of reports that reach a target."""
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
        plot=plot,
        as_json=as_json,
    )
