"""Picture of the choice of levels: the error that a target leaves, for each number of them."""

from collections.abc import Sequence
from pathlib import Path

from apes.accounting.planner import Goal
from apes.paper.style import BROWN, log_ticks, panels, save
from apes.terms.level_choice import LevelChoice


def draw_level_choice(choice: LevelChoice, goal: Goal, clips: Sequence[float], path: Path) -> None:
    """Draw the error that a target leaves against the number of levels, with each one's cap, into a PNG file."""
    figure, (axes,) = panels(7.5, 4.5)
    feasible = [offer for offer in choice.offers if offer.cap is not None]
    levels = [offer.levels for offer in feasible]
    for clip, errors in zip(clips or [1.0], LevelChoice(tuple(feasible)).errors(clips or [1.0]).T, strict=True):
        axes.plot(levels, errors, marker="o", label=f"clip {clip:g}" if clips else "error")
    for offer in feasible:
        place = offer.levels, offer.error * max(clips, default=1.0)
        axes.annotate(f"cap {offer.cap:.3g}", place, xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
    if feasible:
        best = choice.best.levels, choice.best.error * max(clips, default=1.0)
        axes.plot(*best, "o", color=BROWN, markersize=9, label=f"smallest error: {choice.best.levels} levels")
    log_ticks(axes, [offer.levels for offer in choice.offers], base=2)
    axes.margins(x=0.08, y=0.15)
    axes.set_ylim(bottom=0)
    unit = "in the update's units" if clips else "in units of the clip bound"
    axes.set(xlabel="levels of a report", ylabel=f"standard error, {unit}")
    title = f"mean update, per coordinate and round, at epsilon {goal.epsilon:g}, delta {goal.delta:g}"
    axes.set_title(title, fontsize=11)
    axes.legend()
    save(figure, path)
