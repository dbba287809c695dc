"""Figures 2a, 5 and 6: central epsilon of a coordinate against the number of users."""

from functools import partial
from itertools import cycle
from typing import Any

from matplotlib.figure import Figure

from apes.accounting.published.titles import TITLES, title_of
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import LAW_NAMES
from apes.paper.privacy import bounds_part
from apes.paper.setting import DELTA_S, Setting
from apes.storage.pictures import BLUE, BROWN, DARK, GREEN, GREY, PURPLE, SAND, panels

# Each looks unlike all others, in colour and in dashes; what is ours and what is the paper's stand out.
_EON = {"eon_closed": (BROWN, ":"), "eon_numeric": (BROWN, "-")}
_BASELINES = {
    "erlingsson19": (DARK, ":"),
    "bbgn19_bennett": (PURPLE, "-."),
    "gddtk21": (GREEN, "--"),
    "fmt22_closed": (SAND, (0, (1, 1))),
    "fmt22_numeric": (DARK, "-"),
}
_PUBLISHED = _EON | _BASELINES
# Of those that strangers added, one after the other.
_DASHES = ((0, (5, 1, 1, 1)), (0, (6, 2)), (0, (2, 2)))


def _parts(laws: tuple[str, ...], setting: Setting) -> list[Part]:
    return [bounds_part(users, law) for law in laws for users in setting.populations]


def _figures(laws: tuple[str, ...], setting: Setting, result: Results) -> Figures:
    curves = {law: [result(bounds_part(users, law)) for users in setting.populations] for law in laws}
    checks = []
    for point in (point for points in curves.values() for point in points):
        certified = point["certified"], point["certified_continuous"]
        published = [value for value in point["published"].values() if value is not None]
        checks.append(point["lower"] <= min(certified) and max(certified) < min(published))
    return {
        "users": list(setting.populations),
        "curves": curves,
        "certified_below_every_published_and_above_lower": all(checks),
        "points_as_expected": sum(checks),
        "points": len(checks),
    }


def _bounds(figures: Figures) -> dict[str, tuple[str, Any]]:
    """Colour and dashes of every bound that is shown: those above, and what strangers added to `apes.PUBLISHED`."""
    own = [name for name in next(iter(figures["curves"].values()))[0]["published"] if name not in TITLES]
    return _PUBLISHED | {name: (GREY, dashes) for name, dashes in zip(own, cycle(_DASHES), strict=False)}


def _draw(figures: Figures) -> Figure:
    """One panel per law; a bound that is outside its range everywhere has no curve, and is not named."""
    figure, (first, *others) = panels(15, 5.8, len(figures["curves"]), sharey=True)
    users, bounds = figures["users"], _bounds(figures)
    drawn = [name for name in bounds if name not in _never(figures)]
    for axes, (law, points) in zip((first, *others), figures["curves"].items(), strict=True):
        for name in drawn:
            values = [float("nan") if p["published"][name] is None else p["published"][name] for p in points]
            (colour, style), width = bounds[name], 2.2 if name in _EON else 1.3
            axes.plot(users, values, linestyle=style, color=colour, linewidth=width, label=title_of(name))
        axes.plot(users, [p["certified"] for p in points], "o-", color=BLUE, linewidth=2, label="certified (ours)")
        axes.plot(users, [p["lower"] for p in points], "--", color=BLUE, alpha=0.6, label="lower bound")
        axes.set(xscale="log", yscale="log", xlabel="users", title=LAW_NAMES[law])
        axes.grid(alpha=0.3, which="both")
    first.set_ylabel("central epsilon, one coordinate")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=10)
    return figure


def _tables(figures: Figures) -> list[Table]:
    rows, bounds = [], _bounds(figures)
    for law, points in figures["curves"].items():
        for users, point in zip(figures["users"], points, strict=True):
            values = [point["certified"], point["lower"], *(point["published"][name] for name in bounds)]
            cells = ["-" if value is None else f"{value:.4f}" for value in values]
            rows.append([LAW_NAMES[law], f"{users:,}", *cells])
    headings = ["law", "users", "certified, 256 levels", "lower", *(title_of(name) for name in bounds)]
    return [Table("Central epsilon of a coordinate", headings, rows, "'-': outside the theorem's range.")]


def _never(figures: Figures) -> list[str]:
    """Published bounds that are outside their range at every point."""
    points = [point for points in figures["curves"].values() for point in points]
    return [name for name in _bounds(figures) if all(point["published"][name] is None for point in points)]


def _caption(figures: Figures) -> str:
    largest = max(point["largest"] for points in figures["curves"].values() for point in points)
    is_so = figures["certified_below_every_published_and_above_lower"]
    verdict = "At all" if is_so else f"NOT at all, but at {figures['points_as_expected']} of"
    said = [
        f"Local budgets up to {largest:.3g}; published bounds at delta_s = {DELTA_S:g}, certified and lower at "
        "delta_c = tanh(max/2) delta_s. The paper's axis is the same quantity; its figure has no certified curve.",
        f"{verdict} {figures['points']} points the certified figure is below every published one, and above what some "
        "dataset forces.",
        "EoN is not proved for different budgets; baselines take everybody at the largest one.",
    ]
    said += [f"{title_of(name)} is outside its range at all of them, and not drawn." for name in _never(figures)]
    return " ".join(said)


def _experiment(number: str, family: int, largest: str) -> Experiment:
    laws = tuple(f"{name}{family}" for name in ("uniform", "gauss", "mixgauss"))
    title = f"Figure {number}: privacy bounds, local budgets in [0.05, {largest}]"
    return Experiment(f"fig{number}", title, partial(_parts, laws), partial(_figures, laws), _tables, _caption, _draw)


FIG2A, FIG5, FIG6 = _experiment("2a", 2, "1"), _experiment("5", 1, "0.5"), _experiment("6", 3, "3")
