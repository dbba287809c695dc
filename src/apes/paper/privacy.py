"""The privacy columns of Tables 3 and 4, under every convention, and what is certified beside them."""

import math
from typing import Any

from apes.accounting.published import PUBLISHED
from apes.accounting.published.titles import TITLES
from apes.accounting.published.user_level import DeltaConvention, advanced_composition, user_apes, user_s_apes
from apes.paper.experiment import Results
from apes.paper.parts import Part
from apes.paper.setting import DELTA_S, DELTA_USER, DIMENSIONS, KEPT, PAPER_USERS, Setting
from apes.terms.sparsification import Sparsification


def bounds_part(users: int, law: str) -> Part:
    """Every bound of one coordinate; with those of strangers it is another part."""
    own = sorted(PUBLISHED.keys() - TITLES.keys())
    arguments = {"budgets": law, "users": users, "seed": 1, "delta_s": DELTA_S}
    return Part("bounds", arguments | ({"own": own} if own else {}))


def user_part(
    setting: Setting, law: str, *, rounds: int | None = None, sparsification: Sparsification | None = None
) -> Part:
    """Certified figures of a user, by default of APES over the setting's rounds."""
    arguments = {"budgets": law, "users": setting.users, "seed": 1, "delta": DELTA_USER, "dimensions": DIMENSIONS}
    arguments["rounds"] = setting.rounds if rounds is None else rounds
    if sparsification is not None:
        arguments["dimensions"] = sparsification.charged(DIMENSIONS)
        b = sparsification.top_b_first(DIMENSIONS)
        arguments |= {} if b is None else {"top_b_first": b}
    return Part("user-level", arguments)


def epsilon_c(setting: Setting, law: str, result: Results) -> dict[str, float]:
    """Published central epsilon of a coordinate, framework by framework."""
    bounds = result(bounds_part(setting.users, law))
    numeric, clones = bounds["published"]["eon_numeric"], bounds["published"]["fmt22_numeric"]
    smallest, largest = bounds["smallest"], bounds["largest"]
    return {"ldp-min": smallest, "pldp": largest, "unis": clones, "apes": numeric, "s-apes": numeric}


def epsilon_uc(setting: Setting, law: str, result: Results, printed: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Published central epsilon of a user under each convention, and which comes nearest to what is printed.

    What is printed is for 10,000 users: of others none is nearest, and the first, which has delta_c, is shown.
    The conventions differ in what delta' in the logarithm is: delta_c, m delta_c, or 3.6e-5 (docs/published-bounds.md).
    """
    delta = math.tanh(result(bounds_part(setting.users, law))["largest"] / 2) * DELTA_S
    answer: dict[str, dict[str, Any]] = {}
    for framework, epsilon in epsilon_c(setting, law, result).items():
        if framework == "pldp":
            figures = {"d times the largest budget": DIMENSIONS * epsilon}
        elif framework == "ldp-min":
            figures = {"stated": advanced_composition(epsilon, DELTA_USER, DIMENSIONS)}
        else:
            bound, m = (user_s_apes, round(KEPT * DIMENSIONS)) if framework == "s-apes" else (user_apes, DIMENSIONS)
            figures = {c.value: bound(epsilon, delta, m, c).epsilon for c in DeltaConvention}
        # Without a shuffler, too: the smallest and the largest of more budgets are nearer to the law's ends.
        is_papers = setting.users == PAPER_USERS
        nearest = min(figures, key=lambda name: abs(figures[name] - printed[framework]) if is_papers else 0)
        answer[framework] = {"by_convention": figures, "convention": nearest, "epsilon": figures[nearest]}
        answer[framework] |= {"is_papers": is_papers, "delta_c": delta}
    return answer


def beside(ours: dict[str, Any], printed: float) -> list[str]:
    """A printed figure, one of ours from `epsilon_uc`, its convention, and the difference, as text; if there is one."""
    difference = f"{100 * (ours['epsilon'] / printed - 1):+.1f} %" if ours["is_papers"] else "-"
    return [f"{printed:g}", f"{ours['epsilon']:.2f}", ours["convention"], difference]


def of_users(figures: dict[str, dict[str, Any]], users: int) -> str:
    """A sentence that says why what is printed does not compare with `epsilon_uc` of so many users; or nothing."""
    if all(entry["is_papers"] for entry in figures.values()):
        return ""
    return (
        f" The paper's figures are for {PAPER_USERS:,} users, ours here for {users:,}, where delta' is delta_c for all "
        "shuffled: no difference is stated."
    )
