"""Picture of a convergence trial: what was measured, what is proved, what is published."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.figure import Figure

from apes.paper.convergence.trial import Trial, TrialResult
from apes.storage.files import write_whole


def draw_convergence(trial: Trial, result: TrialResult, path: Path) -> None:
    """Draw the loss gap over the rounds, on a logarithmic axis, into a PNG file."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    rounds = np.arange(trial.rounds + 1)
    if result.published is not None:
        label = "published (Theorem 3; not a bound)"
        axes.plot(rounds, result.published, color="#d9a273", linestyle="--", label=label)
    axes.plot(rounds, result.bound, color="#1b6ca8", label="proved bound")
    axes.plot(rounds, result.measured, color="#333333", label=f"measured, mean of {trial.seeds} runs")
    # Where the band would reach 0 a logarithmic axis has no place for it.
    low = np.maximum(result.measured - result.standard_error, result.measured / 10)
    axes.fill_between(rounds, low, result.measured + result.standard_error, color="#333333", alpha=0.2, linewidth=0)
    axes.set_yscale("log", nonpositive="mask")
    axes.set_xlabel("round")
    axes.set_ylabel("loss above the optimum")
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(f"{trial.users:,} users, budgets {trial.budgets}, {trial.dimensions} dimensions, C = {trial.clip:g}")

    def write(file: BinaryIO) -> None:
        figure.savefig(file, format="png", dpi=120)

    write_whole(path, write)
