"""The command converge: measured convergence against the bounds."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from apes.cli import display, shared

if TYPE_CHECKING:
    from apes.paper.convergence.trial import ConvergenceTrial, TrialResult

_ROWS = 9


# parameters: one per option, as typer wants it.
def converge_command(
    users: Annotated[int, typer.Option(help="Number of users, a multiple of 4.")] = 4_000,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 40,
    budgets: shared.Budgets = "uniform2",
    clip: Annotated[float, typer.Option(help="Clip bound of a coordinate.")] = 0.1,
    dimensions: Annotated[int, typer.Option(help="Coordinates of the model.")] = 20,
    start: Annotated[float, typer.Option(help="First gradient, in units of clip, in [0, 0.15].")] = 0.15,
    scatter: Annotated[float, typer.Option(help="How far users' optima differ, in units of clip, to 0.05.")] = 0.0,
    seeds: Annotated[int, typer.Option(help="Runs to average over.")] = 8,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Train a problem that meets the assumptions of the convergence bound; fail loudly if the bound does not hold."""
    from apes.paper.convergence.trial import ConvergenceTrial, run_trial

    trial = ConvergenceTrial(budgets, users, clip, rounds, seeds, dimensions, scatter, start)
    began = time.perf_counter()
    with display.steps("training", "runs") as progress:
        result = run_trial(trial, progress)
    if plot is not None:
        from apes.cli.plots import draw_convergence

        draw_convergence(trial, result, plot)
    found = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(result).items()}
    facts = {"trial": asdict(trial), **found, "is_within": result.is_within, "seconds": time.perf_counter() - began}
    shared.tell(facts, as_json, _in_words(trial, result))
    if not result.is_within:
        typer.echo("apes: BOUND EXCEEDED: the measured loss gap is above what is proved", err=True)
        raise typer.Exit(1)


def _in_words(trial: "ConvergenceTrial", result: "TrialResult") -> str:
    lines = ["round    measured  +- standard error    proved bound   published (not a bound)"]
    for number in np.unique(np.linspace(0, trial.rounds, _ROWS).round().astype(int)):
        published = "does not apply" if result.published is None else f"{result.published[number]:.4g}"
        lines.append(
            f"{number:5d}  {result.measured[number]:10.4g}  {result.standard_error[number]:17.2g}"
            f"  {result.bound[number]:14.4g}  {published:>24}"
        )
    lines.append(f"mean loss above the optimum of {trial.seeds} runs; docs/convergence.md says what is proved")
    if result.left:
        lines.append(f"{result.left} runs left the region of the theorem and count as 0 from then on: more users help")
    return "\n".join(lines)
