"""Picture of an account: the personal guarantees, and what is certified beside what is published."""

from pathlib import Path

from apes.accounting.account import Account
from apes.paper.style import BLUE, GREY, SAND, panels, save


def draw_account(result: Account, path: Path) -> None:
    """Draw the personal guarantees, and the certified figure beside the published ones, into a PNG file."""
    figure, (personal, bars) = panels(10, 4, 2)
    personal.plot(result.personal_local, result.personal_central, marker="o", markersize=3, color=BLUE)
    personal.set(xlabel="a user's local budget", ylabel="certified central epsilon, one coordinate")
    figures = {name: value for name, value in result.published.items() if value and not name.startswith("user_")}
    if result.dimension.lower > 0:
        bars.barh(["lower bound"], [result.dimension.lower], color=GREY)
    bars.barh(["certified"], [result.dimension.epsilon], color=BLUE)
    bars.barh(sorted(figures, key=lambda name: figures[name]), sorted(figures.values()), color=SAND)
    bars.invert_yaxis()
    bars.grid(visible=False)
    bars.set_xlabel("epsilon, one coordinate of one round")
    bars.set_title("blue: proved; orange: published only", fontsize=10)
    save(figure, path)
