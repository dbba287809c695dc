"""Table 3: privacy and accuracy under Uniform2."""

from apes.paper.accuracy import accuracies, below, cells, rows
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import EPSILON_C, EPSILON_UC_TABLE_3, NAMES
from apes.paper.privacy import beside, bounds_part, epsilon_c, epsilon_uc, user_part
from apes.paper.setting import OURS, Setting

_LAW = "uniform2"


def _parts(setting: Setting) -> list[Part]:
    return [bounds_part(setting.users, _LAW), user_part(setting, _LAW), *cells(setting, tuple(NAMES), (_LAW,))]


def _figures(setting: Setting, result: Results) -> Figures:
    bounds, user = result(bounds_part(setting.users, _LAW)), result(user_part(setting, _LAW))
    return {
        "accuracy": accuracies(setting, result, tuple(NAMES), (_LAW,)),
        "epsilon_c": epsilon_c(setting, _LAW, result),
        "epsilon_uc": epsilon_uc(setting, _LAW, result, EPSILON_UC_TABLE_3),
        "certified": {"coordinate": bounds["certified"], **user, "rounds": setting.rounds},
        "lower": bounds["lower"],
    }


def _tables(figures: Figures) -> list[Table]:
    headings = ["framework", "paper", "ours, as published", "difference", "ours", "difference"]
    accuracy = [[name, *figures] for name, _, *figures in rows(figures["accuracy"])]
    note = "Mean and sample standard deviation over the seeds."
    return [_privacy(figures), Table("Accuracy (%)", headings, accuracy, note)]


def _privacy(figures: Figures) -> Table:
    certified = figures["certified"]
    rows = []
    for framework, printed in EPSILON_UC_TABLE_3.items():
        proved = f"{certified['coordinate']:.4f}", f"{certified['round']:.3f}"
        coordinate, user = proved if framework == "apes" else ("-", "-")
        e_c = f"{EPSILON_C[framework]:g}", f"{figures['epsilon_c'][framework]:.4f}", coordinate
        rows.append([NAMES[framework], *e_c, *beside(figures["epsilon_uc"][framework], printed), user])
    headings = [
        *("framework", "e_c, paper", "e_c, ours as published", "e_c, certified"),
        *("e_uc, paper", "e_uc, ours as published", "delta' of", "difference", "e_uc, certified"),
    ]
    note = (
        "e_c at delta_s = 1e-8 as published; e_uc is one round at delta 3.6e-5. Certified only where a theorem covers "
        "it: '-' means that nothing central is proved, and what is printed is not a guarantee. All "
        f"{certified['rounds']} rounds together are certified at {certified['total']:.2f}; the paper prints nothing."
    )
    return Table("Privacy", headings, rows, note)


def _caption(figures: Figures) -> str:
    without, apes = (figures["accuracy"][OURS][name][_LAW]["mean"] for name in ("non-private", "apes"))
    return (
        f"APES is certified at {figures['certified']['round']:.2f} for a user and one round where the paper prints "
        f"57.6; with our settings its accuracy is {below(without - apes)} training without noise. The paper's "
        "user-level column needs three readings of delta' (named in the table); it prints 76.9 for UniS here and 79.6 "
        "in Table 4."
    )


TABLE3 = Experiment("table3", "Table 3: privacy and utility under Uniform2", _parts, _figures, _tables, _caption)
