"""Table 4: user-level privacy and accuracy for six laws of budgets."""

from typing import Any

from apes.paper import top_b_first as chosen_first
from apes.paper.cells import cell
from apes.paper.columns import OURS, PUBLISHED
from apes.paper.experiment import Experiment, Figures, Results, Table, accuracies, below, signed, spread
from apes.paper.parts import Part
from apes.paper.printed import ACCURACY, EPSILON_UC, LAW_NAMES, LAWS, NAMES, NON_PRIVATE
from apes.paper.privacy import bounds_part, epsilon_uc, user_part
from apes.paper.setting import Setting

_FRAMEWORKS = ("non-private", *NAMES)
# Runs made once for the explanation: PLDP as published with budgets ten times smaller, grid:0.005:0.1, came to 77.28 %.
_REASON = (
    "Laplace noise of scale 2 C / e with C = 0.1 hardly disturbs a mean over 10,000 users of unit-norm data (0.013 a "
    "coordinate and round under Uniform2). Were it ten times as large, as with C = 1, 77.28 % would come out under "
    "Uniform2, where the paper prints 77.54: its order, APES before UniS, is not that of its stated settings. The "
    "paper's S-APES under Gauss1 (56.64) is far below its neighbours and did not come out."
)


def _parts(setting: Setting) -> list[Part]:
    runs = [
        part
        for column in (PUBLISHED, OURS)
        for framework in _FRAMEWORKS
        for law in LAWS
        for part in cell(setting, column, framework, law)
    ]
    privacy = [part for law in LAWS for part in (bounds_part(setting, law), user_part(setting, law))]
    return [*privacy, *runs, *chosen_first.parts(setting)]


def _figures(setting: Setting, result: Results) -> Figures:
    printed = [{name: values[i] for name, values in EPSILON_UC.items()} for i in range(len(LAWS))]
    figures: Figures = {
        "accuracy": {
            column: {
                framework: {law: accuracies(cell(setting, column, framework, law), result) for law in LAWS}
                for framework in _FRAMEWORKS
            }
            for column in (PUBLISHED, OURS)
        },
        "epsilon_uc": {law: epsilon_uc(setting, law, result, printed[i]) for i, law in enumerate(LAWS)},
        "certified": {law: result(user_part(setting, law)) for law in LAWS},
        "rounds": setting.rounds,
        "chosen_first": chosen_first.figures(setting, result),
    }
    ours = figures["accuracy"][OURS]
    figures["cells_above_the_paper"] = sum(
        ours[name][law]["mean"] > ACCURACY[name][i] for name in NAMES for i, law in enumerate(LAWS)
    )
    figures["cells"] = len(NAMES) * len(LAWS)
    figures["gap_to_non_private_uniform2"] = ours["non-private"]["uniform2"]["mean"] - ours["apes"]["uniform2"]["mean"]
    return figures


def _tables(figures: Figures) -> list[Table]:
    return [_accuracy(figures), _ordering(figures), _privacy(figures), chosen_first.table(figures["chosen_first"])]


def _accuracy(figures: Figures) -> Table:
    rows = []
    for framework in _FRAMEWORKS:
        for i, law in enumerate(LAWS):
            if framework == "non-private" and i:
                continue
            printed = NON_PRIVATE if framework == "non-private" else ACCURACY[framework][i]
            published, ours = (figures["accuracy"][column][framework][law] for column in (PUBLISHED, OURS))
            rows.append(
                [
                    NAMES.get(framework, "Non-Private"),
                    LAW_NAMES[law] if framework != "non-private" else "all",
                    f"{printed:.2f}",
                    spread(published),
                    signed(published["mean"] - printed),
                    spread(ours),
                    signed(ours["mean"] - printed),
                ]
            )
    headings = ["framework", "law", "paper", "ours, as published", "difference", "ours", "difference"]
    note = (
        "LDP-Min depends on the smallest budget only (0.05 in every law) and UniS averages what PLDP averages, so they "
        "share runs; the paper prints equal figures for them too."
    )
    return Table("Accuracy (%)", headings, rows, note)


def _ordering(figures: Figures) -> Table:
    """Frameworks from best to worst, law by law."""
    rows = []
    for i, law in enumerate(LAWS):
        paper = {name: ACCURACY[name][i] for name in ("ldp-min", "unis", "apes", "s-apes")}
        cells = [figures["accuracy"][column] for column in (PUBLISHED, OURS)]
        measured = [{name: cell[name][law]["mean"] for name in paper} for cell in cells]
        rows.append([LAW_NAMES[law], *(_from_best(values) for values in (paper, *measured))])
    return Table("Order of the frameworks", ["law", "paper", "ours, as published", "ours"], rows)


def _from_best(values: dict[str, float]) -> str:
    return " > ".join(NAMES[name] for name in sorted(values, key=lambda name: -values[name]))


def _privacy(figures: Figures) -> Table:
    rows = []
    for framework, name in NAMES.items():
        for i, law in enumerate(LAWS):
            ours: dict[str, Any] = figures["epsilon_uc"][law][framework]
            printed, certified = EPSILON_UC[framework][i], figures["certified"][law]
            proved = framework == "apes"
            rows.append(
                [
                    *(name, LAW_NAMES[law], f"{printed:g}", f"{ours['epsilon']:.2f}", ours["convention"]),
                    f"{100 * (ours['epsilon'] / printed - 1):+.1f} %",
                    f"{certified['round']:.3f}" if proved else "-",
                    f"{certified['total']:.2f}" if proved else "-",
                ]
            )
    headings = [
        *("framework", "law", "e_uc, paper", "ours as published", "delta' of", "difference"),
        *("certified, one round", f"certified, {figures['rounds']} rounds"),
    ]
    note = "The convention is the one that comes nearest to the printed figure; nothing is tuned."
    return Table("Privacy of a user, one round, delta 3.6e-5", headings, rows, note)


def _caption(figures: Figures) -> str:
    published = figures["accuracy"][PUBLISHED]
    laplace, clipped = ([published[name][law]["mean"] for law in LAWS] for name in ("unis", "apes"))
    return (
        f"With our settings {figures['cells_above_the_paper']} of {figures['cells']} private cells are above the "
        f"paper's accuracy at the same budgets, and APES is {below(figures['gap_to_non_private_uniform2'])} training "
        f"without noise under Uniform2. {chosen_first.sentence(figures['chosen_first'])} "
        f"As published, APES comes to {min(clipped):.1f} to {max(clipped):.1f} % (the "
        f"paper: 78.3 to 80.0), Laplace reports to {min(laplace):.1f} to {max(laplace):.1f} % (63.8 to 77.5). "
        + _REASON
    )


TABLE4 = Experiment("table4", "Table 4: all laws of budgets", _parts, _figures, _tables, _caption)
