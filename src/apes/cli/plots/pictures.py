"""Pictures: of a run, of an account, of a plan and of the trade of levels."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from apes.accounting.account import Account
from apes.accounting.planner import Answer, CostCurve, Goal
from apes.storage.files import write_whole
from apes.terms.level_choice import LevelChoice
from apes.training.run import RoundMetrics

_PROVED, _TARGET = "#1b6ca8", "#b3541e"
_SOLVED_FOR = {"cap": "cap on local budgets", "users": "users", "rounds": "rounds"}


def draw_accuracy(metrics: tuple[RoundMetrics, ...], title: str, path: Path) -> None:
    """Draw test accuracy and loss over the rounds into a PNG file."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    rounds = [entry.round for entry in metrics]
    axes.plot(rounds, [100 * (entry.accuracy or 0.0) for entry in metrics], color="#1b6ca8", label="accuracy")
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)", color="#1b6ca8")
    axes.grid(alpha=0.3)
    losses = axes.twinx()
    losses.plot(rounds, [entry.loss or 0.0 for entry in metrics], color="#b3541e", linestyle="--", label="loss")
    losses.set_ylabel("test loss (nats)", color="#b3541e")
    axes.set_title(f"{title}: {100 * (metrics[-1].accuracy or 0.0):.2f} % after {metrics[-1].round} rounds")
    save(figure, path)


def draw_account(result: Account, path: Path) -> None:
    """Draw the personal guarantees, and the certified figure beside the published ones, into a PNG file."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    personal, bars = figure.subplots(1, 2)
    personal.plot(result.personal_local, result.personal_central, marker="o", markersize=3, color="#1b6ca8")
    personal.set_xlabel("a user's local budget")
    personal.set_ylabel("certified central epsilon, one coordinate")
    personal.grid(alpha=0.3)
    figures = {name: value for name, value in result.published.items() if value and not name.startswith("user_")}
    if result.dimension.lower > 0:
        bars.barh(["lower bound"], [result.dimension.lower], color="#999999")
    bars.barh(["certified"], [result.dimension.epsilon], color="#1b6ca8")
    bars.barh(sorted(figures, key=lambda name: figures[name]), sorted(figures.values()), color="#d9a273")
    bars.invert_yaxis()
    bars.set_xlabel("epsilon, one coordinate of one round")
    bars.set_title("blue: proved; orange: published only", fontsize=10)
    save(figure, path)


def draw_plan(curve: CostCurve, answer: Answer, goal: Goal, solve: str, path: Path) -> None:
    """Draw certified epsilon against what is solved for (cap, users or rounds) into a PNG file."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(curve.places, curve.epsilons, marker="o", markersize=3, color=_PROVED, label="certified epsilon")
    axes.axhline(goal.epsilon, color=_TARGET, linestyle="--", label=f"target: {goal.epsilon:g}")
    _scale(axes, [*curve.epsilons, goal.epsilon])
    axes.set(xlabel=_SOLVED_FOR[solve], ylabel=f"epsilon of a user, all rounds (delta {goal.delta:g})")
    if answer.value is None or answer.epsilon is None:
        axes.set_title(f"out of reach: {answer.advice}", fontsize=10)
    else:
        allowed = [epsilon <= goal.epsilon for epsilon in curve.epsilons]
        axes.fill_between(curve.places, 0, curve.epsilons, where=allowed, color=_PROVED, alpha=0.12, label="reaches it")
        found = f"{answer.value:.4g}" if solve == "cap" else f"{answer.value:,.0f}"
        axes.plot([answer.value], [answer.epsilon], "o", color=_TARGET, markersize=9, label=f"answer: {found}")
        axes.set_title(f"{_SOLVED_FOR[solve]}: {found}, certified epsilon {answer.epsilon:.4g}")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def _scale(axes: Axes, epsilons: list[float]) -> None:
    """Places on a logarithmic scale with plain labels; epsilon from 0, or logarithmic where it spans decades."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,g}")
    if max(epsilons) > 100 * min(epsilons) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.05 * max(epsilons))


def draw_level_choice(trade: LevelChoice, goal: Goal, clips: Sequence[float], path: Path) -> None:
    """Draw the error that a target leaves against the number of levels, with each one's cap, into a PNG file."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    feasible = [offer for offer in trade.offers if offer.cap is not None]
    levels = [offer.levels for offer in feasible]
    for clip, errors in zip(clips or [1.0], LevelChoice(tuple(feasible)).errors(clips or [1.0]).T, strict=True):
        axes.plot(levels, errors, marker="o", label=f"clip {clip:g}" if clips else "error")
    for offer in feasible:
        place = offer.levels, offer.error * max(clips, default=1.0)
        axes.annotate(f"cap {offer.cap:.3g}", place, xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
    if feasible:
        best = trade.best.levels, trade.best.error * max(clips, default=1.0)
        axes.plot(*best, "o", color=_TARGET, markersize=9, label=f"smallest error: {trade.best.levels} levels")
    axes.set_xscale("log", base=2)
    axes.set_xticks([offer.levels for offer in trade.offers], [str(offer.levels) for offer in trade.offers])
    axes.margins(x=0.08, y=0.15)
    axes.set_ylim(bottom=0)
    unit = "in the update's units" if clips else "in units of the clip bound"
    axes.set(xlabel="levels of a report", ylabel=f"standard error, {unit}")
    axes.set_title(
        f"mean update, a coordinate and round, at epsilon {goal.epsilon:g}, delta {goal.delta:g}", fontsize=11
    )
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, whole or not at all."""

    def write(file: BinaryIO) -> None:
        figure.savefig(file, format="png", dpi=120)

    write_whole(path, write)
