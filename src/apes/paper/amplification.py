"""Figures 2a, 5 and 6: central epsilon of a coordinate against the number of users."""

from functools import partial

from matplotlib.figure import Figure

from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import LAW_NAMES
from apes.paper.setting import DELTA_S, Setting

_BASELINES = {
    "erlingsson19": "Erlingsson et al. 2019",
    "bbgn19_bennett": "Balle et al. 2019",
    "gddtk21": "Girgis et al. 2021",
    "fmt22_closed": "Feldman et al. 2022, closed",
    "fmt22_numeric": "Feldman et al. 2022, numeric",
}
_MARKS = {"eon_numeric": "-", "eon_closed": ":"}


def _part(law: str, users: int) -> Part:
    return Part("bounds", {"budgets": law, "users": users, "seed": 1, "delta_s": DELTA_S})


def _parts(laws: tuple[str, ...], setting: Setting) -> list[Part]:
    return [_part(law, users) for law in laws for users in setting.populations]


def _figures(laws: tuple[str, ...], setting: Setting, result: Results) -> Figures:
    curves = {law: [result(_part(law, users)) for users in setting.populations] for law in laws}
    checks = [
        point["lower"] <= min(point["certified"], point["certified_continuous"])
        and max(point["certified"], point["certified_continuous"])
        < min(value for value in point["published"].values() if value is not None)
        for points in curves.values()
        for point in points
    ]
    return {
        "users": list(setting.populations),
        "curves": curves,
        "certified_below_every_published_and_above_lower": all(checks),
        "points": len(checks),
    }


def _draw(figures: Figures) -> Figure:
    """One panel a law: published in warm colours, certified in blue, the lower bound in grey."""
    figure = Figure(figsize=(15, 5.8), layout="constrained")
    panels = figure.subplots(1, len(figures["curves"]), sharey=True)
    users = figures["users"]
    for axes, (law, points) in zip(panels, figures["curves"].items(), strict=True):
        for (name, label), style in zip(_BASELINES.items(), (":", "-.", "--", (0, (1, 1)), "-"), strict=True):
            values = [point["published"][name] for point in points]
            axes.plot(users, _gaps(values), linestyle=style, color="#9a9a9a", label=label)
        for name, label in (("eon_closed", "EoN, closed"), ("eon_numeric", "EoN, numeric")):
            values = [point["published"][name] for point in points]
            axes.plot(users, _gaps(values), _MARKS[name], color="#b3541e", linewidth=2, label=label)
        axes.plot(users, [p["certified"] for p in points], "o-", color="#1b6ca8", linewidth=2, label="certified (ours)")
        axes.plot(users, [p["lower"] for p in points], "--", color="#1b6ca8", alpha=0.6, label="lower bound")
        axes.set(xscale="log", yscale="log", xlabel="users", title=LAW_NAMES[law])
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("central epsilon, one coordinate")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9)
    return figure


def _gaps(values: list[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _tables(figures: Figures) -> list[Table]:
    names = ["eon_closed", "eon_numeric", *_BASELINES]
    rows = []
    for law, points in figures["curves"].items():
        for users, point in zip(figures["users"], points, strict=True):
            published = [point["published"][name] for name in names]
            cells = ["-" if value is None else f"{value:.4f}" for value in published]
            rows.append([LAW_NAMES[law], f"{users:,}", f"{point['certified']:.4f}", f"{point['lower']:.4f}", *cells])
    headings = ["law", "users", "certified, 256 levels", "lower", "EoN closed", "EoN numeric", *_BASELINES.values()]
    return [Table("Central epsilon of a coordinate", headings, rows, "- : outside the theorem's range.")]


def _caption(figures: Figures) -> str:
    first = next(iter(figures["curves"].values()))[0]
    verdict = "is" if figures["certified_below_every_published_and_above_lower"] else "IS NOT"
    return (
        f"Local budgets up to {first['largest']:.3g}; published bounds at delta_s = {DELTA_S:g}, certified and lower "
        "at delta_c = tanh(max/2) delta_s. The paper's axis is the same quantity; its figure has no certified curve. "
        f"At all {figures['points']} points the certified figure {verdict} below every published one, and above what "
        "some dataset forces. EoN is not proved for different budgets; baselines take everybody at the largest one."
    )


def _experiment(name: str, title: str, number: int) -> Experiment:
    laws = tuple(f"{family}{number}" for family in ("uniform", "gauss", "mixgauss"))
    return Experiment(name, title, partial(_parts, laws), partial(_figures, laws), _tables, _caption, _draw)


FIG2A = _experiment("fig2a", "Figure 2a: privacy bounds, local budgets in [0.05, 1]", 2)
FIG5 = _experiment("fig5", "Figure 5: privacy bounds, local budgets in [0.05, 0.5]", 1)
FIG6 = _experiment("fig6", "Figure 6: privacy bounds, local budgets in [0.05, 3]", 3)
