"""Pictures of a run, as PNG files: how it went, and what it cost whom."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from apes.accounting.account import BudgetGroup
from apes.accounting.guarantee import Guarantee
from apes.accounting.words import upwards
from apes.storage.pictures import BLUE, BROWN, folded, panels, save
from apes.training.run import RoundMetrics

# So many points are still drawn one by one; one alone would not show otherwise.
_FEW = 40
# How far bars of one round are from its middle.
_ASIDE = 0.25


def draw_accuracy(metrics: tuple[RoundMetrics, ...], title: str, path: Path) -> None:
    """Draw test accuracy, where there is one, and loss over the rounds."""
    figure, (axes,) = panels(7, 4)
    rounds, last = [entry.round for entry in metrics], metrics[-1]
    losses, marker = axes, "o" if len(metrics) <= _FEW else None
    if last.accuracy is not None:
        accuracies = [100 * (entry.accuracy or 0.0) for entry in metrics]
        _course(axes, accuracies, BLUE, marker, -_ASIDE)
        axes.set_ylabel("test accuracy (%)", color=BLUE)
        losses = axes.twinx()
    _round_axis(axes, rounds)
    aside = 0 if losses is axes else _ASIDE
    _course(losses, [entry.loss or 0.0 for entry in metrics], BROWN, marker and "s", aside)
    losses.set_ylabel("test loss (nats)" if last.accuracy is not None else "test loss (squared)", color=BROWN)
    reached = f"loss {last.loss:.4f}" if last.accuracy is None else f"{100 * last.accuracy:.2f} %"
    count = "1 round" if last.round == 1 else f"{last.round} rounds"
    figure.suptitle(folded(f"{title}: {reached} after {count}", 7), fontsize=10)
    save(figure, path)


def _course(axes: Axes, values: Sequence[float], colour: str, marker: str | None, aside: float) -> None:
    """A curve over rounds; of one round a bar, beside what else there is of it."""
    if len(values) == 1:
        axes.bar([1 + aside], values, 1.5 * _ASIDE, color=colour)
    else:
        style = "-" if colour == BLUE else "--"
        axes.plot(range(1, len(values) + 1), values, color=colour, linestyle=style, marker=marker, markersize=4)


# parameters: what is drawn, and where.
def draw_run_account(
    groups: Sequence[BudgetGroup], by_round: Sequence[float], guarantee: Guarantee, path: Path, title: str = ""
) -> None:
    """Draw a run's personal guarantees, and what was spent after every round beside what is guaranteed.

    Both on one scale, so that what is drawn can be compared; the figures themselves are above them.
    """
    figure, (personal, spent) = panels(10, 4.4, 2, sharey=True)
    draw_personal(personal, groups)
    personal.set_title("by own budget, all rounds", fontsize=10)
    personal.set_ylabel(f"certified epsilon (delta {guarantee.delta:.3g})")
    rounds = list(range(1, len(by_round) + 1))
    marker = "o" if len(by_round) <= _FEW else None
    last = f"spent: {upwards(by_round[-1])}"
    spent.plot(rounds, by_round, marker=marker, markersize=4, color=BLUE, zorder=3, label=last)
    spent.axhline(guarantee.epsilon, color=BROWN, linestyle="--", label=f"guaranteed: {upwards(guarantee.epsilon)}")
    _round_axis(spent, rounds)
    spent.set_title("of anybody, round by round", fontsize=10)
    spent.set_ylim(0, 1.08 * max(guarantee.epsilon, *by_round))
    spent.tick_params(labelleft=True)
    spent.legend(loc="lower right")
    total = f"epsilon {upwards(guarantee.epsilon)} at delta {upwards(guarantee.delta, 3)}"
    total += "" if guarantee.condition is None else f", {guarantee.condition}"
    figure.suptitle(folded(f"{title}: {total}" if title else total, 10), fontsize=10)
    save(figure, path)


def draw_personal(axes: Axes, groups: Sequence[BudgetGroup]) -> None:
    """A user's local budget against the central epsilon that is certified for it."""
    budgets, epsilons = zip(*((group.budget, group.epsilon) for group in groups), strict=True)
    axes.plot(budgets, epsilons, marker="o", markersize=4, color=BLUE)
    axes.set_xlabel("a user's local budget")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if len(groups) == 1:
        axes.set_xlim(0, 2 * budgets[0])


def _round_axis(axes: Axes, rounds: Sequence[int]) -> None:
    """Rounds are whole; one alone is in the middle."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(rounds) == 1:
        axes.set_xlim(0, 2)
        axes.set_xticks([1])
