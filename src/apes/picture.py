"""Pictures of a run."""

from pathlib import Path
from typing import BinaryIO

from matplotlib.figure import Figure

from apes.files import write_whole
from apes.plan import Plan
from apes.training import RoundMetrics


def draw_accuracy(metrics: tuple[RoundMetrics, ...], plan: Plan, path: Path) -> None:
    """Draw test accuracy and loss over the rounds into a PNG file."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    rounds = [entry.round for entry in metrics]
    axes.plot(rounds, [100 * entry.accuracy for entry in metrics], color="#1b6ca8", label="accuracy")
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)", color="#1b6ca8")
    axes.grid(alpha=0.3)
    losses = axes.twinx()
    losses.plot(rounds, [entry.loss for entry in metrics], color="#b3541e", linestyle="--", label="loss")
    losses.set_ylabel("test loss (nats)", color="#b3541e")
    axes.set_title(
        f"{plan.framework} on {plan.data}, {plan.users:,} users, budgets {plan.budgets}: "
        f"{100 * metrics[-1].accuracy:.2f} % after {metrics[-1].round} rounds"
    )

    def write(file: BinaryIO) -> None:
        figure.savefig(file, format="png", dpi=120)

    write_whole(path, write)
