"""The picture of the frontier: ours in strong colour, the yardstick dashed, published figures as labelled points."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from apes.paper.frontier.ways import (
    APES,
    AS_PUBLISHED,
    FIRST,
    FIRST_PIXELS,
    ONE_BIT,
    ONE_BIT_AS_IT_IS,
    ONE_BIT_PIXELS,
    TRUSTED,
    TRUSTED_PIXELS,
)
from apes.storage.pictures import BLUE, BROWN, DARK, GREY, PURPLE, SAND, log_ticks, panels

_STYLES: dict[str, dict[str, Any]] = {
    TRUSTED: {"color": DARK, "linestyle": "--", "linewidth": 1.6},
    ONE_BIT: {"color": BLUE, "linewidth": 3.0, "marker": "o", "zorder": 4},
    ONE_BIT_AS_IT_IS: {"color": BLUE, "linestyle": ":", "linewidth": 1.5, "marker": "o", "markersize": 4},
    FIRST: {"color": PURPLE, "linewidth": 1.5, "marker": "s", "markersize": 4},
    APES: {"color": BROWN, "linewidth": 1.5, "marker": "s", "markersize": 4},
    TRUSTED_PIXELS: {"color": GREY, "linestyle": "--", "linewidth": 1.6},
    ONE_BIT_PIXELS: {"color": BLUE, "linewidth": 2.0, "marker": "o", "markerfacecolor": "white", "zorder": 4},
    FIRST_PIXELS: {"color": PURPLE, "linewidth": 1.5, "marker": "s", "markersize": 4, "markerfacecolor": "white"},
    AS_PUBLISHED: {"color": SAND, "linewidth": 1.5, "marker": "D", "markersize": 5},
}
_TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_HIGH, _FAR = 79.0, 16.0
# Of a published point's words, by whether it is high and far: the distance in points, and on which side of it they are.
_WORDS_AT = {
    (True, False): ((8, 4), "left", "bottom"),
    (True, True): ((20, 8), "right", "bottom"),
    (False, False): ((-8, 0), "right", "center"),
    (False, True): ((0, -8), "center", "top"),
}


def draw(figures: dict[str, Any]) -> Figure:
    """One panel: accuracy against epsilon on a logarithmic axis."""
    figure, (axes,) = panels(9.5, 6.4)
    for name, style in _STYLES.items():
        shown = [point for point in figures["ways"][name]["points"] if point["accuracy"] is not None]
        # What was spent, which may be less than the target where more would not help.
        places = [point["epsilon"] for point in shown]
        means, spreads = ([point["accuracy"][what] for point in shown] for what in ("mean", "spread"))
        axes.errorbar(places, means, yerr=spreads, label=figures["ways"][name]["title"], capsize=2, **style)
    for point in figures["published"]:
        _mark(axes, point)
    log_ticks(axes, _TICKS)
    # Room for labels; above the highest point, too.
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.06 * (high - low), high + 0.08 * (high - low))
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100])
    axes.set(xlabel=f"epsilon of the whole training, a user, delta {figures['delta']:g}", ylabel="test accuracy (%)")
    but = ", but for the published points" if figures["published"] else ""
    axes.set_title(f"{figures['data']}, {figures['users']:,} users: certified{but}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _mark(axes: Axes, point: dict[str, Any]) -> None:
    """A published point with its name, what it hides, and among how many."""
    place = point["epsilon"], point["accuracy"]
    axes.plot(*place, "*", color=SAND, markersize=13, zorder=5, markeredgecolor=BROWN)
    hidden = point["unit"].split(";")[0]
    words = f"{point['name']}\n{hidden}; n {point['users']:,}"
    is_high, is_far = point["accuracy"] > _HIGH, point["epsilon"] > _FAR
    # Where there is room, away from the curve that rises between the low ones: to its left, or below.
    beside, sideways, upright = _WORDS_AT[is_high, is_far]
    style: dict[str, Any] = {"ha": sideways, "va": upright}
    axes.annotate(words, place, beside, textcoords="offset points", fontsize=7.5, **style)
