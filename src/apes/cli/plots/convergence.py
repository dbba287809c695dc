"""Picture of a convergence trial: what was measured, what is proved, what is published."""

from pathlib import Path

import numpy as np

from apes.paper.convergence.trial import ConvergenceTrial, TrialResult
from apes.paper.style import BLUE, DARK, SAND, panels, save


def draw_convergence(trial: ConvergenceTrial, result: TrialResult, path: Path) -> None:
    """Draw the loss gap over the rounds, on a logarithmic axis, into a PNG file."""
    figure, (axes,) = panels(7, 4)
    rounds = np.arange(trial.rounds + 1)
    if result.published is not None:
        axes.plot(rounds, result.published, color=SAND, linestyle="--", label="published (Theorem 3; not a bound)")
    axes.plot(rounds, result.bound, color=BLUE, label="proved bound")
    axes.plot(rounds, result.measured, color=DARK, label=f"measured, mean of {trial.seeds} runs")
    # Where the band would reach 0 a logarithmic axis has no place for it.
    low = np.maximum(result.measured - result.standard_error, result.measured / 10)
    axes.fill_between(rounds, low, result.measured + result.standard_error, color=DARK, alpha=0.2, linewidth=0)
    axes.set_yscale("log", nonpositive="mask")
    axes.set(xlabel="round", ylabel="loss above the optimum")
    axes.legend()
    axes.set_title(f"{trial.users:,} users, budgets {trial.budgets}, {trial.dimensions} dimensions, C = {trial.clip:g}")
    save(figure, path)
