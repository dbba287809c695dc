"""Picture of a plan: certified epsilon against what is solved for."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from apes.accounting.planner import Answer, CostCurve, Goal
from apes.paper.style import BLUE, BROWN, panels, save

_SOLVED_FOR = {"cap": "cap on local budgets", "users": "users", "rounds": "rounds"}


def draw_plan(curve: CostCurve, answer: Answer, goal: Goal, solve: str, path: Path) -> None:
    """Draw certified epsilon against what is solved for (cap, users or rounds) into a PNG file."""
    figure, (axes,) = panels(7.5, 4.5)
    axes.plot(curve.places, curve.epsilons, marker="o", markersize=3, color=BLUE, label="certified epsilon")
    axes.axhline(goal.epsilon, color=BROWN, linestyle="--", label=f"target: {goal.epsilon:g}")
    _scale(axes, [*curve.epsilons, goal.epsilon])
    axes.set(xlabel=_SOLVED_FOR[solve], ylabel=f"epsilon of a user, all rounds (delta {goal.delta:g})")
    if answer.value is None or answer.epsilon is None:
        axes.set_title(f"out of reach: {answer.advice}", fontsize=10)
    else:
        allowed = [epsilon <= goal.epsilon for epsilon in curve.epsilons]
        axes.fill_between(curve.places, 0, curve.epsilons, where=allowed, color=BLUE, alpha=0.12, label="reaches it")
        found = f"{answer.value:.4g}" if solve == "cap" else f"{answer.value:,.0f}"
        axes.plot([answer.value], [answer.epsilon], "o", color=BROWN, markersize=9, label=f"answer: {found}")
        axes.set_title(f"{_SOLVED_FOR[solve]}: {found}, certified epsilon {answer.epsilon:.4g}")
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
