"""Figure 4: error of the calibration."""

import numpy as np
from matplotlib.figure import Figure

from apes.paper.columns import PUBLISHED, training
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.setting import Setting


def _part(setting: Setting) -> Part:
    return Part("calibration", training(setting, PUBLISHED, "apes", "uniform2")[0].arguments)


def _figures(setting: Setting, result: Results) -> Figures:
    return result(_part(setting)) | {"clip": _part(setting).arguments["clip"], "users": setting.users}


def _draw(figures: Figures) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    edges = np.array(figures["edges"]) / figures["clip"]
    axes.stairs(figures["counts"], edges, fill=True, color="#1b6ca8")
    axes.axvline(0, color="#b3541e", linewidth=1)
    axes.set(xlabel="mean report less expected report of the mean, in units of C", ylabel="coordinates")
    axes.grid(alpha=0.3)
    return figure


def _tables(figures: Figures) -> list[Table]:
    clip = figures["clip"]
    row = [f"{figures[name] / clip:.5f}" for name in ("mean", "deviation", "largest_report")]
    headings = ["mean error / C", "standard deviation / C", "largest mean report / C"]
    return [Table("Error of the calibration, first round", headings, [row])]


def _caption(figures: Figures) -> str:
    clip = figures["clip"]
    return (
        f"{figures['users']:,} users, first round as published, all coordinates: the error is "
        f"{figures['mean'] / clip:.5f} C "
        f"on average with a standard deviation of {figures['deviation'] / clip:.4f} C, the noise of a mean of "
        f"reports; it "
        "concentrates around zero, as the paper says. Dividing by the slope of the calibration curve makes it larger."
    )


FIG4 = Experiment(
    "fig4",
    "Figure 4: error of the calibration",
    lambda setting: [_part(setting)],
    _figures,
    _tables,
    _caption,
    _draw,
)
