"""Figure 2b: accuracy of UniS, APES and S-APES under the six laws."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from apes.paper.accuracy import accuracies, cells, not_the_papers, of_paper, of_size, rows
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import ACCURACY, LAW_NAMES, LAWS, NAMES
from apes.paper.setting import COLUMNS, OURS, PUBLISHED, Setting
from apes.storage.pictures import BLUE, GREY, SAND, panels

_COLOURS = {"unis": GREY, "apes": BLUE, "s-apes": SAND}
_FRAMEWORKS = tuple(_COLOURS)


def _parts(setting: Setting) -> list[Part]:
    return cells(setting, _FRAMEWORKS, LAWS)


def _figures(setting: Setting, result: Results) -> Figures:
    return {"accuracy": accuracies(setting, result, _FRAMEWORKS, LAWS), "size": setting.size}


def _draw(figures: Figures) -> Figure:
    """Three panels of bars: the paper's, ours as published, ours."""
    figure, (first, *others) = panels(13, 4.2, 3, sharey=True)
    places = np.arange(len(LAWS))
    # It prints no spread: no whiskers.
    paper = {name: {law: {"mean": ACCURACY[name][law], "spread": None} for law in LAWS} for name in _FRAMEWORKS}
    found = figures["accuracy"]
    shown = {"the paper": paper, "ours, as published": found[PUBLISHED], "ours": found[OURS]}
    of = dict.fromkeys(shown, of_size(figures)) | {"the paper": of_paper()}
    for axes, (title, values) in zip((first, *others), shown.items(), strict=True):
        for i, (name, colour) in enumerate(_COLOURS.items()):
            means, spreads = ([values[name][law][what] for law in LAWS] for what in ("mean", "spread"))
            style: dict[str, Any] = {"color": colour, "label": NAMES[name], "capsize": 2}
            axes.bar(places + (i - 1) * 0.27, means, 0.26, yerr=None if values is paper else spreads, **style)
        axes.set_xticks(places, [LAW_NAMES[law] for law in LAWS], rotation=30, ha="right")
        axes.set_title(title if figures["size"]["is_papers"] else f"{title}\n{of[title]}")
        axes.grid(visible=False, axis="x")
    # Bars are compared by their lengths: from 0.
    first.set(ylim=(0, 110), yticks=range(0, 101, 20), ylabel="accuracy (%)")
    first.legend(loc="upper left", ncols=3, fontsize=8)
    return figure


def _tables(figures: Figures) -> list[Table]:
    shown = [[name, law, paper, published, ours] for name, law, paper, published, _, ours, _ in rows(figures)]
    return [Table("Accuracy (%)", ["framework", "law", "paper", "ours, as published", "ours"], shown)]


def _caption(figures: Figures) -> str:
    leads = {c: [_lead(figures["accuracy"][c], law) for law in LAWS] for c in COLUMNS}
    above = {column: sum(lead > 0 for lead in leads[column]) for column in COLUMNS}
    printed = {law: ACCURACY["apes"][law] - ACCURACY["unis"][law] for law in LAWS}
    widest = max(printed, key=lambda law: printed[law])
    smallest = min(figures["accuracy"][OURS]["apes"][law]["mean"] for law in LAWS)
    return (
        f"The runs of Table 4 as a picture ({of_size(figures)}). The paper has APES above UniS under "
        f"{sum(lead > 0 for lead in printed.values())} of {len(LAWS)} laws, by {printed[widest]:.1f} points under "
        f"{LAW_NAMES[widest]}. With our settings it is so under {above[OURS]} of {len(LAWS)}, and APES has at least "
        f"{smallest:.1f} %; as published under {above[PUBLISHED]} of {len(LAWS)}, where APES is "
        f"{min(leads[PUBLISHED]):+.1f} to {max(leads[PUBLISHED]):+.1f} points from UniS.{not_the_papers(figures)}"
    )


def _lead(accuracies: Figures, law: str) -> float:
    return float(accuracies["apes"][law]["mean"] - accuracies["unis"][law]["mean"])


FIG2B = Experiment("fig2b", "Figure 2b: impact of the local budgets", _parts, _figures, _tables, _caption, _draw)
