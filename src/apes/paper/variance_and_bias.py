"""Figures 7 and 8: variance and bias of Clip-Laplace and Laplace against the clip bound and the budget."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from apes.mathematics.laws import ClipLaplace, Laplace
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.setting import Setting
from apes.storage.pictures import BLUE, BROWN, DARK, PURPLE, log_ticks, panels

_CLIPS = (0.01, 0.1, 1.0)
_BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
_LAWS: dict[str, type[ClipLaplace] | type[Laplace]] = {"Clip-Laplace": ClipLaplace, "Laplace": Laplace}


def _moment(name: str, law: type[ClipLaplace] | type[Laplace], clip: float) -> list[float]:
    """Variance at 0, or the size of the bias at C / 2, for each budget."""
    place = 0.0 if name == "variance" else clip / 2
    laws = law(np.full(len(_BUDGETS), place), np.array(_BUDGETS), clip)
    values = laws.var() if name == "variance" else np.abs(laws.mean() - place)
    return [float(value) for value in values]


def _figures(name: str, setting: Setting, result: Results) -> Figures:
    curves = {title: [_moment(name, law, clip) for clip in _CLIPS] for title, law in _LAWS.items()}
    return {"name": name, "clips": list(_CLIPS), "budgets": list(_BUDGETS), "curves": curves}


def _draw(figures: Figures) -> Figure:
    figure, (axes,) = panels(8, 4.4)
    for title, style in (("Clip-Laplace", "o-"), ("Laplace", "s--")):
        curves = {
            f"C = {clip:g}": values for clip, values in zip(figures["clips"], figures["curves"][title], strict=True)
        }
        colours: tuple[str, ...] = (BLUE, BROWN, PURPLE)
        # One on top of the other would show the last only.
        if all(values == figures["curves"][title][0] for values in curves.values()):
            curves, colours = {"every C": figures["curves"][title][0]}, (DARK,)
        for (clip, values), colour in zip(curves.items(), colours, strict=True):
            axes.plot(figures["budgets"], values, style, color=colour, markersize=4, label=f"{title}, {clip}")
    log_ticks(axes, figures["budgets"])
    axes.set_xlabel("local budget")
    if figures["name"] == "variance":
        axes.set(yscale="log", ylabel="variance of a report")
    else:
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set(ylim=(-2e-5, 1), ylabel="size of the bias of a report")
    axes.minorticks_off()
    axes.legend(fontsize=8, ncols=2, loc=(0.03, 0.12) if figures["name"] == "bias" else "best")
    return figure


def _tables(figures: Figures) -> list[Table]:
    rows = [
        [title, f"{clip:g}", *(f"{value:.3g}" for value in values)]
        for title, curves in figures["curves"].items()
        for clip, values in zip(figures["clips"], curves, strict=True)
    ]
    headings = ["mechanism", "C", *(f"budget {budget:g}" for budget in figures["budgets"])]
    return [Table(figures["name"].capitalize(), headings, rows)]


def _caption(figures: Figures) -> str:
    clipped, classic = (figures["curves"][name][1] for name in _LAWS)
    clip, budgets = figures["clips"][1], figures["budgets"]
    if figures["name"] == "variance":
        return (
            f"Exact, from the laws, data at 0. At C = {clip:g} and a budget of {budgets[0]:g} a Clip-Laplace report "
            f"has a variance of {clipped[0]:.2g}, a Laplace report {classic[0]:.2g}; that of a report within [-C, C] "
            f"cannot be above C^2 = {clip**2:.2g}."
        )
    most = max(classic)
    unbiased = "Laplace has none" if most == 0 else f"Laplace has up to {most:.2g}"
    return (
        f"Exact, from the laws, data at C / 2. {unbiased}; Clip-Laplace pulls towards zero, at C = {clip:g} by "
        f"{clipped[0]:.3f} for a budget of {budgets[0]:g} and by {clipped[4]:.3f} for {budgets[4]:g}: hence the "
        "calibration. (Symmetric logarithmic axis.)"
    )


def _experiment(name: str, number: str) -> Experiment:
    title = f"Figure {number}: {name} of a report"
    return Experiment(f"fig{number}", title, lambda setting: [], partial(_figures, name), _tables, _caption, _draw)


FIG7, FIG8 = _experiment("variance", "7"), _experiment("bias", "8")
