"""Draw docs/figures/counterexample.png: where the published bound for different budgets falls below the truth.

100,000 users, one at e, all others at 0.05 with their data in the centre, delta = 1e-8, continuous reports.
Run from the root of the repository: python docs/figures/counterexample.py
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, NullLocator

from apes import certify
from apes.accounting.lower import lower_epsilon
from apes.accounting.published.echoes import eon_closed, eon_numeric

USERS, REST, DELTA = 100_000, 0.05, 1e-8
PAPERS_LARGEST = 3.0
FIGURES = {
    "eon_closed": (lambda b: eon_closed(b, DELTA), {"color": "#d9a273", "linestyle": "--", "linewidth": 2}),
    "eon_numeric": (lambda b: eon_numeric(b, DELTA), {"color": "#b3541e", "linestyle": "--", "linewidth": 2}),
    "certified": (
        lambda b: certify(b, delta=DELTA, levels=None).epsilon,
        {"color": "#1b6ca8", "linewidth": 4, "alpha": 0.6},
    ),
    "this dataset, from below": (lambda b: lower_epsilon(b, DELTA, None), {"color": "black", "linewidth": 1.2}),
}


def main() -> None:
    """Compute the four curves, print them as a table, and draw them."""
    own = np.unique([*np.geomspace(0.5, 80, 33), 1, 3, 5, 8, 20])
    populations = [np.append(np.full(USERS - 1, REST), e) for e in own]
    curves = {name: np.array([bound(budgets) for budgets in populations]) for name, (bound, _) in FIGURES.items()}
    print("e", *curves)
    for row in zip(own, *curves.values(), strict=True):
        print(*(f"{value:.5g}" for value in row))
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    draw(figure.add_subplot(), own, curves)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=120)


def draw(axes: Axes, own: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """Draw the curves, and colour what the dataset reveals beyond the published numeric figure."""
    for name, values in curves.items():
        axes.plot(own, values, label=name, **FIGURES[name][1])
    forced, claimed = curves["this dataset, from below"], curves["eon_numeric"]
    axes.fill_between(
        own, claimed, forced, where=forced > claimed, interpolate=True, color="#b3541e", alpha=0.15, linewidth=0
    )
    axes.text(11, 0.034, "revealed, but not\nin the published figure", fontsize=9, color="#b3541e")
    axes.axvline(PAPERS_LARGEST, color="grey", linewidth=0.8)
    axes.text(PAPERS_LARGEST / 1.05, 0.13, "largest budget in the paper", fontsize=9, color="grey", ha="right")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, ticks in ((axes.xaxis, [0.5, 1, 2, 3, 5, 8, 20, 40, 80]), (axes.yaxis, [0.005, 0.01, 0.02, 0.05, 0.1])):
        axis.set_ticks(ticks)
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("local budget of the one user")
    axes.set_ylabel("central epsilon, one coordinate")
    axes.set_title("100,000 users, all others at 0.05 in the centre, delta = 1e-8", fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=9)


if __name__ == "__main__":
    main()
