"""Accuracy beside the paper's: the runs, the figures and the rows that Tables 3 and 4 and figures 2b to 3b share."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

from apes.accounting.words import counted
from apes.paper.experiment import Figures, Results
from apes.paper.parts import Part
from apes.paper.printed import ACCURACY, LAW_NAMES, NAMES
from apes.paper.setting import COLUMNS, OURS, PAPER_DATA, PAPER_ROUNDS, PAPER_USERS, Setting, training


def cell(setting: Setting, column: str, framework: str, law: str) -> list[Part]:
    """Runs of a cell of Table 4, one for each seed.

    LDP-Min depends on the smallest budget only, which is 0.05 in all laws; what UniS's analyzer receives has the same
    sum as under PLDP, permuted. So one run serves all of those.
    """
    if framework in ("ldp-min", "non-private"):
        law = "constant:0.05"
    return training(setting, column, "pldp" if framework == "unis" else framework, law)


def cells(setting: Setting, frameworks: Sequence[str], laws: Sequence[str]) -> list[Part]:
    """Runs of all cells of a table, in both columns."""
    places = [(column, name, law) for column in COLUMNS for name in frameworks for law in laws]
    return [part for place in places for part in cell(setting, *place)]


def accuracy(parts: Iterable[Part], result: Results, rounds: int | None = None) -> dict[str, Any]:
    """Accuracy in per cent of several runs of one cell: each, mean and spread (sample standard deviation).

    It is taken after so many rounds, by default after all of them.
    """
    runs = [100 * float(result(part)["accuracy_by_round"][-1 if rounds is None else rounds - 1]) for part in parts]
    return {"runs": runs, "mean": mean(runs), "spread": stdev(runs) if len(runs) > 1 else 0.0}


def accuracies(setting: Setting, result: Results, frameworks: Sequence[str], laws: Sequence[str]) -> Figures:
    """Accuracy of all cells of a table, by column, framework and law."""
    return {
        column: {name: {law: accuracy(cell(setting, column, name, law), result) for law in laws} for name in frameworks}
        for column in COLUMNS
    }


def rows(figures: Figures) -> list[list[str]]:
    """Framework, law, the paper's accuracy, and for either column ours and the difference.

    The figures have accuracies and their size; of another data set, or another size, there is no difference to state.
    """
    found, by_column = [], figures["accuracy"]
    for name, laws in by_column[OURS].items():
        for law in laws:
            printed, both = ACCURACY[name][law], [by_column[column][name][law] for column in COLUMNS]
            ours = [text for one in both for text in (spread(one), _difference(figures, one["mean"] - printed))]
            found.append([NAMES[name], LAW_NAMES[law], f"{printed:.2f}", *ours])
    return found


def _difference(figures: Figures, points: float) -> str:
    return f"{points:+.2f}" if figures["size"]["is_papers"] else "-"


def of_size(figures: Figures) -> str:
    """What runs were of, as text: data set, users, rounds."""
    size = figures["size"]
    return f"{size['data']}, {counted(size['users'], 'user')}, {counted(size['rounds'], 'round')}"


def not_the_papers(figures: Figures) -> str:
    """A sentence that says why the paper's accuracies are of something else; empty where they are not."""
    if figures["size"]["is_papers"]:
        return ""
    return (
        f" The paper's accuracies are of other runs ({of_paper()}; here {of_size(figures)}): no difference is stated."
    )


def of_paper() -> str:
    """What the paper's runs were of, as text."""
    return f"{PAPER_DATA}, {counted(PAPER_USERS, 'user')}, {counted(PAPER_ROUNDS, 'round')}"


def spread(found: dict[str, Any]) -> str:
    """Mean and spread of a cell as text; one run has no spread."""
    return f"{found['mean']:.2f}" + (f" ± {found['spread']:.2f}" if len(found["runs"]) > 1 else "")


def without_noise(setting: Setting, result: Results) -> Figures:
    """Training without noise, with our settings: its accuracy in per cent after all rounds, and in its best one."""
    runs = [result(part)["accuracy_by_round"] for part in cell(setting, OURS, "non-private", "uniform2")]
    course = [100 * mean(accuracies) for accuracies in zip(*runs, strict=True)]
    return {"mean": course[-1], "best": max(course), "best_round": 1 + course.index(max(course)), "rounds": len(course)}


def beside_no_noise(found: dict[str, Any], without: Figures) -> str:
    """How a private cell stands to training without noise, to go on a sentence with, as text.

    Noise teaches nothing: what is clearly above training without it is above a training that has not settled.
    """
    gap = without["mean"] - found["mean"]
    if gap >= -found["spread"]:
        return f", {below(gap)} training without noise at {without['mean']:.2f} %."
    is_last = without["best_round"] == without["rounds"]
    best = "its best so far" if is_last else f"and was at {without['best']:.2f} % after round {without['best_round']}"
    return (
        f". Training without noise is at {without['mean']:.2f} % by then, {best}: it has not settled, and is no "
        "yardstick here."
    )


def below(gap: float) -> str:
    """How far something lies below another, in points, as text; a negative gap is above it."""
    return f"{abs(gap):.2f} points {'below' if gap >= 0 else 'above'}"
