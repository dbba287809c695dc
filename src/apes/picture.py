"""Pictures: of a run, and of an account."""

from pathlib import Path
from typing import BinaryIO

from matplotlib.figure import Figure

from apes.accounting.account import Account
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

    _save(figure, path)


def draw_account(result: Account, path: Path) -> None:
    """Draw the personal guarantees, and the certified figure beside the published ones, into a PNG file."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    personal, bars = figure.subplots(1, 2)
    personal.plot(result.personal_local, result.personal_central, marker="o", markersize=3, color="#1b6ca8")
    personal.set_xlabel("a user's local budget")
    personal.set_ylabel("certified central epsilon, one coordinate")
    personal.grid(alpha=0.3)
    figures = {name: value for name, value in result.published.items() if value and not name.startswith("user_")}
    names = ["lower bound", "certified", *sorted(figures, key=lambda name: figures[name])]
    values = [result.lower, result.dimension.epsilon, *sorted(figures.values())]
    colours = ["#999999", "#1b6ca8"] + ["#d9a273"] * len(figures)
    bars.barh(names, values, color=colours)
    bars.invert_yaxis()
    bars.set_xlabel("epsilon, one coordinate of one round")
    bars.set_title("blue: proved; orange: published only", fontsize=10)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    def write(file: BinaryIO) -> None:
        figure.savefig(file, format="png", dpi=120)

    write_whole(path, write)
