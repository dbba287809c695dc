"""Table 3: privacy and accuracy under Uniform2."""

from apes.accounting.words import counted
from apes.paper.accuracy import accuracies, beside_no_noise, cells, not_the_papers, rows, without_noise
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.parts import Part
from apes.paper.printed import EPSILON_C, EPSILON_UC_TABLE_3, NAMES
from apes.paper.privacy import beside, bounds_part, epsilon_c, epsilon_uc, of_users, user_part
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
        "without_noise": without_noise(setting, result),
        "size": setting.size,
    }


def _tables(figures: Figures) -> list[Table]:
    headings = ["framework", "paper", "ours, as published", "difference", "ours", "difference"]
    accuracy = [[name, *shown] for name, _, *shown in rows(figures)]
    note = f"Mean and sample standard deviation over the seeds.{not_the_papers(figures)}"
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
        "e_c at delta_s = 1e-8 as published (of LDP-Min and PLDP, which are not shuffled, a local budget), certified "
        "at delta_c = tanh(max/2) delta_s; e_uc is one round at delta 3.6e-5. Certified only where a theorem covers "
        "it: '-' means that nothing is certified, and what stands beside it is not a guarantee. All rounds of APES "
        f"together ({certified['rounds']}) are certified at {certified['total']:.2f}; the paper prints nothing."
        f"{of_users(figures['epsilon_uc'], figures['size']['users'])}"
    )
    return Table("Privacy", headings, rows, note)


def _caption(figures: Figures) -> str:
    apes = figures["accuracy"][OURS]["apes"][_LAW]
    size, round_ = figures["size"], figures["certified"]["round"]
    said = [f"APES is certified at {round_:.2f} for a user and one round among {counted(size['users'], 'user')}"]
    if figures["epsilon_uc"]["apes"]["is_papers"]:
        readings = {entry["convention"] for entry in figures["epsilon_uc"].values()} - {"d times the largest budget"}
        said[0] += f", where the paper prints {EPSILON_UC_TABLE_3['apes']:g}"
        said.append(f"What the paper prints per user is nearest to {len(readings)} readings of delta' (in the table)")
    said.append(
        f"After {counted(size['rounds'], 'round')} on {size['data']} with our settings APES is at {apes['mean']:.2f} %"
    )
    return ". ".join(said) + beside_no_noise(apes, figures["without_noise"])


TABLE3 = Experiment("table3", "Table 3: privacy and utility under Uniform2", _parts, _figures, _tables, _caption)
