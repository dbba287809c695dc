"""Figures 3a and 3b: accuracy against the clip bound, and against the share of coordinates kept, under Uniform2."""

from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.figure import Figure

from apes.accounting.words import counted
from apes.paper.accuracy import accuracy, cell, of_size, spread
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.privacy import user_part
from apes.paper.setting import (
    CLIP,
    COLUMNS,
    DELTA_USER,
    KEPT,
    OURS,
    PAPER_DATA,
    PAPER_USERS,
    PUBLISHED,
    Setting,
    training,
)
from apes.storage.pictures import BLUE, BROWN, log_ticks, panels
from apes.terms.sparsification import Sparsification

_LAW = "uniform2"
_TOP_B, _RANDOM = "post-sparsification (top-b)", "random sparsification"

_PlanAt = Callable[[float], tuple[str, dict[str, Any]]]
"""The framework, and what is changed in its plan, at a place of the horizontal axis."""
_CLIPS: dict[str, _PlanAt] = {
    "Clip-Laplace": lambda clip: ("apes", {"clip": clip}),
    "Laplace": lambda clip: ("pldp", {"clip": clip}),
}
_KEEPS: dict[str, _PlanAt] = {
    _TOP_B: lambda keep: ("s-apes", {"sparsifier": "top-b", "keep": keep}),
    _RANDOM: lambda keep: ("s-apes", {"sparsifier": "random-b", "keep": keep}),
}
_IN_TABLE_4 = ({"clip": CLIP}, {"sparsifier": "top-b", "keep": KEPT})


def _runs(setting: Setting, column: str, framework: str, changes: dict[str, Any]) -> list[Part]:
    # The first rounds of a run do not depend on how many follow, so where Table 4 has the same run, it serves here.
    if changes in _IN_TABLE_4:
        return cell(setting, column, framework, _LAW)
    return training(setting, column, framework, _LAW, **changes, rounds=setting.sweep_rounds)


def _parts(setting: Setting, curves: dict[str, _PlanAt], places: tuple[float, ...]) -> list[Part]:
    points = [(column, *curve(place)) for column in COLUMNS for curve in curves.values() for place in places]
    return [part for point in points for part in _runs(setting, *point)]


def _figures(setting: Setting, result: Results, curves: dict[str, _PlanAt], places: tuple[float, ...]) -> Figures:
    """Accuracy at each place, by column and curve."""
    rounds = setting.sweep_rounds

    def along(column: str, curve: _PlanAt) -> list[dict[str, Any]]:
        return [accuracy(_runs(setting, column, *curve(place)), result, rounds) for place in places]

    found = {column: {name: along(column, curve) for name, curve in curves.items()} for column in COLUMNS}
    return {"places": list(places), "rounds": rounds, "curves": found, "size": setting.size | {"rounds": rounds}}


def _certificates(setting: Setting) -> list[Part]:
    """Of a random choice at each place, and of no choice at all."""
    kept = [*(Sparsification("random-b", ratio) for ratio in setting.ratios), None]
    return [user_part(setting, _LAW, rounds=setting.sweep_rounds, sparsification=choice) for choice in kept]


def _keep_figures(setting: Setting, result: Results) -> Figures:
    *random, everything = (result(part)["total"] for part in _certificates(setting))
    certified = {"delta": DELTA_USER, "random": random, "all": everything}
    return _figures(setting, result, _KEEPS, setting.ratios) | {"certified": certified}


def _draw(figures: Figures, label: str) -> Figure:
    figure, (first, second) = panels(10, 4.2, 2, sharey=True)
    for axes, (column, curves) in zip((first, second), figures["curves"].items(), strict=True):
        for (name, cells), colour in zip(curves.items(), (BLUE, BROWN), strict=True):
            means, spreads = ([cell[what] for cell in cells] for what in ("mean", "spread"))
            axes.errorbar(figures["places"], means, yerr=spreads, marker="o", color=colour, label=name, capsize=3)
        axes.set(xlabel=label, title=column)
        log_ticks(axes, figures["places"])
    first.set_ylabel("accuracy (%)")
    first.legend()
    return figure


def _points(figures: Figures) -> Iterator[tuple[str, str, float, dict[str, Any]]]:
    for column, curves in figures["curves"].items():
        for name, cells in curves.items():
            for place, found in zip(figures["places"], cells, strict=True):
                yield column, name, place, found


def _clip_tables(figures: Figures) -> list[Table]:
    rows = [[column, name, f"{clip:g}", spread(found)] for column, name, clip, found in _points(figures)]
    title = f"Accuracy (%) after {counted(figures['rounds'], 'round')}"
    return [Table(title, ["column", "mechanism", "C", "accuracy"], rows)]


def _keep_tables(figures: Figures) -> list[Table]:
    proved = dict(zip(figures["places"], figures["certified"]["random"], strict=True))
    rows = []
    for column, name, ratio, found in _points(figures):
        certified = f"{proved[ratio]:.2f}" if name == _RANDOM and column == OURS else "-"
        rows.append([column, name, f"{ratio:g}", spread(found), certified])
    title = f"Accuracy (%) and privacy of a user after {counted(figures['rounds'], 'round')}"
    note = (
        f"Certified at delta {figures['certified']['delta']:g}; '-' where nothing is proved (top-b) or reports are "
        "floating-point numbers (as published)."
    )
    return [Table(title, ["column", "mechanism", "b/d", "accuracy", "certified epsilon"], rows, note)]


def _clip_caption(figures: Figures) -> str:
    curves = [[found["mean"] for found in figures["curves"][PUBLISHED][name]] for name in _CLIPS]
    clipped, laplace = curves
    best, noisy_best = (figures["places"][curve.index(max(curve))] for curve in curves)
    size = figures["size"]
    alike = (size["data"], size["users"]) == (PAPER_DATA, PAPER_USERS)
    of_others = "" if alike else f" of {PAPER_DATA} and {counted(PAPER_USERS, 'user')}"
    return (
        f"{of_size(figures)}, as published: Clip-Laplace is best at C = {best:g} ({max(clipped):.1f} %), Laplace at "
        f"C = {noisy_best:g} ({max(laplace):.1f} %); at the largest C, {figures['places'][-1]:g}, they come to "
        f"{clipped[-1]:.1f} and {laplace[-1]:.1f} %. The paper, whose figure{of_others} has no numbers, finds "
        "Clip-Laplace best at C = 0.1 and Laplace good for small C only."
    )


def _keep_caption(figures: Figures) -> str:
    top, random = ([found["mean"] for found in figures["curves"][OURS][name]] for name in _KEEPS)
    least, most = figures["places"][0], figures["places"][-1]
    certified = figures["certified"]
    return (
        f"{of_size(figures)}. With our settings, keeping {most:g} of the coordinates by size gives {top[-1]:.1f} %, at "
        f"random {random[-1]:.1f} %; keeping {least:g}: {top[0]:.1f} and {random[0]:.1f} %. The paper's text has the "
        "axis the wrong way round ('as b/d grows, fewer dimensions are uploaded'): fewer are uploaded as b/d falls. "
        "Top-b looks at all coordinates, and nothing central is proved for it. A random choice is charged for the "
        f"coordinates that it keeps: {certified['random'][-1]:.2f} for a user and "
        f"{counted(figures['rounds'], 'round')} at b/d = {most:g}, where keeping everything is certified at "
        f"{certified['all']:.2f}."
    )


FIG3A = Experiment(
    "fig3a",
    "Figure 3a: impact of the clip bound",
    lambda setting: _parts(setting, _CLIPS, setting.clips),
    lambda setting, result: _figures(setting, result, _CLIPS, setting.clips),
    _clip_tables,
    _clip_caption,
    lambda figures: _draw(figures, "clip bound C"),
)
FIG3B = Experiment(
    "fig3b",
    "Figure 3b: impact of post-sparsification",
    lambda setting: [*_parts(setting, _KEEPS, setting.ratios), *_certificates(setting)],
    _keep_figures,
    _keep_tables,
    _keep_caption,
    lambda figures: _draw(figures, "share of coordinates kept, b/d"),
)
