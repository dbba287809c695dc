"""Table 4: user-level privacy and accuracy for six laws of budgets.

Beside it stands S-APES with top-b-first, the choice made before perturbation, which the paper does not have.
"""

from apes.paper.accuracy import accuracies, accuracy, below, cell, cells, rows, spread
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import ACCURACY, EPSILON_UC, LAW_NAMES, LAWS, NAMES
from apes.paper.privacy import beside, bounds_part, epsilon_uc, user_part
from apes.paper.setting import COLUMNS, OURS, PUBLISHED, Setting
from apes.terms.sparsification import Sparsification

_FIRST_LAWS = ("uniform1", "gauss1", "uniform2", "gauss2")
_FIRST = "s-apes-first"
_TOP_B_FIRST = Sparsification.with_default("top-b-first", None)

# Runs made once for the explanation: PLDP as published with budgets ten times smaller, grid:0.005:0.1, came to 77.28 %.
_REASON = (
    "Laplace noise of scale 2 C / e with C = 0.1 hardly disturbs a mean over 10,000 users of unit-norm data (0.013 per "
    "coordinate and round under Uniform2). Were it ten times as large, as with C = 1, 77.28 % would come out under "
    "Uniform2, where the paper prints 77.54: its order, APES before UniS, is not that of its stated settings. The "
    "paper's S-APES under Gauss1 (56.64) is far below its neighbours and did not come out."
)


def _parts(setting: Setting) -> list[Part]:
    privacy = [part for law in LAWS for part in (bounds_part(setting.users, law), user_part(setting, law))]
    first = [part for law in _FIRST_LAWS for part in cell(setting, OURS, _FIRST, law)]
    first += [user_part(setting, law, sparsification=_TOP_B_FIRST) for law in _FIRST_LAWS]
    return [*privacy, *cells(setting, tuple(NAMES), LAWS), *first]


def _figures(setting: Setting, result: Results) -> Figures:
    printed = {law: {name: by_law[law] for name, by_law in EPSILON_UC.items()} for law in LAWS}
    figures: Figures = {
        "accuracy": accuracies(setting, result, tuple(NAMES), LAWS),
        "epsilon_uc": {law: epsilon_uc(setting, law, result, printed[law]) for law in LAWS},
        "certified": {law: result(user_part(setting, law)) for law in LAWS},
        "rounds": setting.rounds,
        "top_b_first": _first_figures(setting, result),
    }
    ours = figures["accuracy"][OURS]
    above = [ours[name][law]["mean"] > ACCURACY[name][law] for name in EPSILON_UC for law in LAWS]
    gap = ours["non-private"]["uniform2"]["mean"] - ours["apes"]["uniform2"]["mean"]
    return figures | {"cells_above_the_paper": sum(above), "cells": len(above), "gap_to_non_private_uniform2": gap}


def _tables(figures: Figures) -> list[Table]:
    return [_accuracy(figures), _ordering(figures), _privacy(figures), _first_table(figures["top_b_first"])]


def _accuracy(figures: Figures) -> Table:
    (name, _, *without_noise), *private = rows(figures["accuracy"])
    private = private[len(LAWS) - 1 :]  # without noise the law does not matter: one row is enough
    headings = ["framework", "law", "paper", "ours, as published", "difference", "ours", "difference"]
    note = (
        "LDP-Min depends on the smallest budget only (0.05 in every law) and UniS averages what PLDP averages, so they "
        "share runs; the paper prints equal figures for them too."
    )
    return Table("Accuracy (%)", headings, [[name, "all", *without_noise], *private], note)


def _ordering(figures: Figures) -> Table:
    """Frameworks from best to worst, law by law."""
    names = ("ldp-min", "unis", "apes", "s-apes")
    rows = []
    for law in LAWS:
        measured = [{name: figures["accuracy"][column][name][law]["mean"] for name in names} for column in COLUMNS]
        paper = {name: ACCURACY[name][law] for name in names}
        orders = [sorted(names, key=lambda name: -values[name]) for values in (paper, *measured)]
        rows.append([LAW_NAMES[law], *(" > ".join(NAMES[name] for name in order) for order in orders)])
    return Table("Order of the frameworks", ["law", "paper", "ours, as published", "ours"], rows)


def _privacy(figures: Figures) -> Table:
    rows = []
    for framework in EPSILON_UC:
        for law in LAWS:
            ours, certified = figures["epsilon_uc"][law][framework], figures["certified"][law]
            proved = [f"{certified['round']:.3f}", f"{certified['total']:.2f}"] if framework == "apes" else ["-", "-"]
            rows.append([NAMES[framework], LAW_NAMES[law], *beside(ours, EPSILON_UC[framework][law]), *proved])
    headings = [
        *("framework", "law", "e_uc, paper", "ours as published", "delta' of", "difference"),
        *("certified, one round", f"certified, {figures['rounds']} rounds"),
    ]
    note = "The convention is the one that comes nearest to the printed figure; nothing is tuned."
    return Table("Privacy of a user, one round, delta 3.6e-5", headings, rows, note)


def _caption(figures: Figures) -> str:
    published, first = figures["accuracy"][PUBLISHED], figures["top_b_first"]["laws"]["uniform2"]
    laplace, clipped = ([published[name][law]["mean"] for law in LAWS] for name in ("unis", "apes"))
    return (
        f"With our settings {figures['cells_above_the_paper']} of {figures['cells']} private cells are above the "
        f"paper's accuracy at the same budgets, and APES is {below(figures['gap_to_non_private_uniform2'])} training "
        f"without noise under Uniform2. Choosing before perturbing brings the certified epsilon of {figures['rounds']} "
        f"rounds under Uniform2 from {first['certified_apes']['total']:.2f} to {first['certified']['total']:.2f}, at "
        f"{first['accuracy']['mean']:.2f} % where APES has {first['accuracy_apes']['mean']:.2f}. "
        f"As published, APES comes to {min(clipped):.1f} to {max(clipped):.1f} % (the "
        f"paper: 78.3 to 80.0), Laplace reports to {min(laplace):.1f} to {max(laplace):.1f} % (63.8 to 77.5). "
        + _REASON
    )


def _first_figures(setting: Setting, result: Results) -> Figures:
    """Accuracy and certificates, law by law, beside those of APES."""
    laws = {
        law: {
            "accuracy": accuracy(cell(setting, OURS, _FIRST, law), result),
            "accuracy_apes": accuracy(cell(setting, OURS, "apes", law), result),
            "certified": result(user_part(setting, law, sparsification=_TOP_B_FIRST)),
            "certified_apes": result(user_part(setting, law)),
        }
        for law in _FIRST_LAWS
    }
    return {"keep": _TOP_B_FIRST.keep, "rounds": setting.rounds, "laws": laws}


def _first_table(figures: Figures) -> Table:
    rows = []
    for law, found in figures["laws"].items():
        rows.append([LAW_NAMES[law]])
        for which in ("_apes", ""):
            certified = found[f"certified{which}"]
            rows[-1] += [spread(found[f"accuracy{which}"]), f"{certified['round']:.3f}", f"{certified['total']:.2f}"]
    proved = ["certified, one round", f"certified, {figures['rounds']} rounds"]
    note = (
        f"Each user keeps the largest {100 * figures['keep']:g} % of the update's coordinates, sets the others to zero "
        "and then perturbs all of them. Two updates then differ in 2 b coordinates at most; counted in couples, b uses "
        "of the certificate cover that (docs/proofs.md, 10 and 11). That 2 b coordinates are touched is what the "
        "paper's Proposition 1 counts, but its choice is made after perturbation, where it does not hold."
    )
    title = "Our settings, and top-b-first: accuracy (%), epsilon at delta 3.6e-5"
    return Table(title, ["law", "APES", *proved, "top-b-first", *proved], rows, note)


TABLE4 = Experiment("table4", "Table 4: all laws of budgets", _parts, _figures, _tables, _caption)
