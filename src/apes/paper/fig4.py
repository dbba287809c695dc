"""Figure 4: error of the calibration."""

import numpy as np
from matplotlib.figure import Figure

from apes.accounting.words import counted
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.setting import CLIP, PUBLISHED, Setting, training
from apes.storage.pictures import BLUE, BROWN, panels


def _parts(setting: Setting) -> list[Part]:
    return [Part("calibration", training(setting, PUBLISHED, "apes", "uniform2")[0].arguments)]


def _figures(setting: Setting, result: Results) -> Figures:
    return result(_parts(setting)[0]) | {"clip": CLIP, "users": setting.users, "size": setting.size}


def _draw(figures: Figures) -> Figure:
    figure, (axes,) = panels(7, 4)
    axes.stairs(figures["counts"], np.array(figures["edges"]) / figures["clip"], fill=True, color=BLUE)
    axes.axvline(0, color=BROWN, linewidth=1)
    axes.set(xlabel="mean report less expected report of the mean, in units of C", ylabel="coordinates")
    return figure


def _tables(figures: Figures) -> list[Table]:
    row = [f"{figures[name] / figures['clip']:.5f}" for name in ("mean", "deviation", "largest_report")]
    headings = ["mean error / C", "standard deviation / C", "largest mean report / C"]
    return [Table("Error of the calibration, first round", headings, [row])]


def _caption(figures: Figures) -> str:
    mean, deviation = (figures[name] / figures["clip"] for name in ("mean", "deviation"))
    lowest, highest = (figures["edges"][end] / figures["clip"] for end in (0, -1))
    return (
        f"{figures['size']['data']}, {counted(figures['users'], 'user')}, first round as published, all coordinates: "
        f"the error is {mean:.5f} C on average with a standard deviation of {deviation:.4f} C, and between "
        f"{lowest:.3f} and {highest:.3f} C everywhere; the paper says that it concentrates around zero."
    )


FIG4 = Experiment("fig4", "Figure 4: error of the calibration", _parts, _figures, _tables, _caption, _draw)
