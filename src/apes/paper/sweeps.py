"""Figures 3a and 3b: accuracy against the clip bound, and against the share of coordinates kept, under Uniform2."""

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from apes.paper.cells import cell
from apes.paper.columns import CLIP, OURS, PUBLISHED, training
from apes.paper.experiment import Experiment, Figures, Results, Table, accuracies, spread
from apes.paper.parts import Part
from apes.paper.privacy import user_part
from apes.paper.setting import DELTA_USER, KEPT, Setting
from apes.terms.sparsification import Sparsification

_LAW = "uniform2"
_COLUMNS = (PUBLISHED, OURS)
_MECHANISMS = {"Clip-Laplace": "apes", "Laplace": "pldp"}
_TOP_B = "post-sparsification (top-b)"
_RANDOM = "random sparsification"
_STRATEGIES = {_TOP_B: "top-b", _RANDOM: "random-b"}
_ALL = 1.0
_COLOURS = ("#1b6ca8", "#b3541e")


def _clip(setting: Setting, column: str, mechanism: str, clip: float) -> list[Part]:
    # The first rounds of a run do not depend on how many follow, so where Table 4 has the same run, it serves here.
    if clip == CLIP:
        return cell(setting, column, _MECHANISMS[mechanism], _LAW)
    return training(setting, column, _MECHANISMS[mechanism], _LAW, clip=clip, rounds=setting.sweep_rounds)


def _keep(setting: Setting, column: str, strategy: str, ratio: float) -> list[Part]:
    if strategy == _TOP_B and ratio == KEPT:
        return cell(setting, column, "s-apes", _LAW)
    changes = {"sparsifier": _STRATEGIES[strategy], "keep": ratio, "rounds": setting.sweep_rounds}
    return training(setting, column, "s-apes", _LAW, **changes)


def _clip_parts(setting: Setting) -> list[Part]:
    return [p for c in _COLUMNS for m in _MECHANISMS for clip in setting.clips for p in _clip(setting, c, m, clip)]


def _keep_parts(setting: Setting) -> list[Part]:
    runs = [p for c in _COLUMNS for s in _STRATEGIES for ratio in setting.ratios for p in _keep(setting, c, s, ratio)]
    return [*runs, *(_certified(setting, ratio) for ratio in (*setting.ratios, _ALL))]


def _certified(setting: Setting, ratio: float) -> Part:
    kept = None if ratio == _ALL else Sparsification("random-b", ratio)
    return user_part(setting, _LAW, rounds=setting.sweep_rounds, sparsification=kept)


def _clip_figures(setting: Setting, result: Results) -> Figures:
    rounds = setting.sweep_rounds
    curves = {
        column: {
            m: [accuracies(_clip(setting, column, m, clip), result, rounds) for clip in setting.clips]
            for m in _MECHANISMS
        }
        for column in _COLUMNS
    }
    return {"places": list(setting.clips), "rounds": rounds, "curves": curves}


def _keep_figures(setting: Setting, result: Results) -> Figures:
    rounds = setting.sweep_rounds
    curves = {
        column: {
            s: [accuracies(_keep(setting, column, s, r), result, rounds) for r in setting.ratios] for s in _STRATEGIES
        }
        for column in _COLUMNS
    }
    certified = [result(_certified(setting, ratio))["total"] for ratio in (*setting.ratios, _ALL)]
    return {
        "places": list(setting.ratios),
        "rounds": rounds,
        "curves": curves,
        "certified": {"delta": DELTA_USER, "random": certified[:-1], "all": certified[-1]},
    }


def _draw(figures: Figures, label: str) -> Figure:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (column, curves) in zip(panels, figures["curves"].items(), strict=True):
        for (name, cells), colour in zip(curves.items(), _COLOURS, strict=True):
            means, spreads = ([cell[what] for cell in cells] for what in ("mean", "spread"))
            axes.errorbar(figures["places"], means, yerr=spreads, marker="o", color=colour, label=name, capsize=3)
        axes.set(xscale="log", xlabel=label, title=column)
        axes.set_xticks(figures["places"], [f"{place:g}" for place in figures["places"]])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy (%)")
    panels[0].legend()
    return figure


def _clip_tables(figures: Figures) -> list[Table]:
    rows = [[column, name, f"{clip:g}", spread(accuracy)] for column, name, clip, accuracy in _points(figures)]
    return [Table(f"Accuracy (%) after {figures['rounds']} rounds", ["column", "mechanism", "C", "accuracy"], rows)]


def _keep_tables(figures: Figures) -> list[Table]:
    proved = dict(zip(figures["places"], figures["certified"]["random"], strict=True))
    rows = [
        [
            column,
            name,
            f"{ratio:g}",
            spread(accuracy),
            f"{proved[ratio]:.2f}" if name == _RANDOM and column == OURS else "-",
        ]
        for column, name, ratio, accuracy in _points(figures)
    ]
    return [
        Table(
            f"Accuracy (%) and privacy of a user after {figures['rounds']} rounds",
            ["column", "mechanism", "b/d", "accuracy", "certified epsilon"],
            rows,
            f"Certified at delta {figures['certified']['delta']:g}; '-' where nothing is proved (top-b) or reports are "
            "floating-point numbers (as published).",
        )
    ]


def _points(figures: Figures) -> Iterator[tuple[str, str, float, dict[str, Any]]]:
    for column, curves in figures["curves"].items():
        for name, cells in curves.items():
            for place, accuracy in zip(figures["places"], cells, strict=True):
                yield column, name, place, accuracy


def _best(figures: Figures, column: str, name: str) -> tuple[float, float]:
    cells = figures["curves"][column][name]
    best = max(range(len(cells)), key=lambda i: cells[i]["mean"])
    return figures["places"][best], cells[best]["mean"]


def _clip_caption(figures: Figures) -> str:
    (clip, accuracy), (noisy_clip, noisy) = (_best(figures, PUBLISHED, name) for name in _MECHANISMS)
    last = [figures["curves"][PUBLISHED][name][-1]["mean"] for name in _MECHANISMS]
    return (
        "The paper finds Clip-Laplace best at C = 0.1 and Laplace good for small C only. As published: Clip-Laplace is "
        f"best at C = {clip:g} ({accuracy:.1f} %), Laplace at C = {noisy_clip:g} ({noisy:.1f} %); at the largest C "
        f"they come to {last[0]:.1f} and {last[1]:.1f} %. The paper prints this figure without numbers."
    )


def _keep_caption(figures: Figures) -> str:
    top, random = (figures["curves"][OURS][name] for name in _STRATEGIES)
    return (
        f"With our settings, keeping {figures['places'][-1]:g} of the coordinates by size gives "
        f"{top[-1]['mean']:.1f} %, at random {random[-1]['mean']:.1f} %; keeping {figures['places'][0]:g}: "
        f"{top[0]['mean']:.1f} and {random[0]['mean']:.1f} %. "
        "The paper's text has the axis the wrong way round ('as b/d grows, fewer dimensions are "
        "uploaded'): fewer are uploaded as b/d falls. Top-b looks at all coordinates, and nothing "
        "central is proved for it. A random choice is charged for the coordinates that it keeps: "
        f"{figures['certified']['random'][-1]:.2f} for a user and {figures['rounds']} rounds at b/d = "
        f"{figures['places'][-1]:g}, where keeping everything is certified at {figures['certified']['all']:.2f}."
    )


FIG3A = Experiment(
    "fig3a",
    "Figure 3a: impact of the clip bound",
    _clip_parts,
    _clip_figures,
    _clip_tables,
    _clip_caption,
    lambda figures: _draw(figures, "clip bound C"),
)
FIG3B = Experiment(
    "fig3b",
    "Figure 3b: impact of post-sparsification",
    _keep_parts,
    _keep_figures,
    _keep_tables,
    _keep_caption,
    lambda figures: _draw(figures, "share of coordinates kept, b/d"),
)
