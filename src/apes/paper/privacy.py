"""The privacy columns of Tables 3 and 4, under every convention, and what is certified beside them."""

import math
from typing import Any

from apes.accounting.published import DeltaConvention, advanced_composition, user_apes, user_s_apes
from apes.paper.experiment import Results
from apes.paper.parts import Part
from apes.paper.setting import DELTA_S, DELTA_USER, DIMENSIONS, KEPT, Setting
from apes.terms.sparsification import Sparsification

CONVENTIONS = {
    "coordinate": DeltaConvention.COORDINATE,
    "composed": DeltaConvention.COMPOSED,
    "stated": DeltaConvention.STATED,
}
"""What delta' in the logarithm is: delta_c, m delta_c, or 3.6e-5 (docs/published-bounds.md)."""


def bounds_part(setting: Setting, law: str) -> Part:
    """Every bound of one coordinate."""
    return Part("bounds", {"budgets": law, "users": setting.users, "seed": 1, "delta_s": DELTA_S})


def user_part(
    setting: Setting, law: str, *, rounds: int | None = None, sparsification: Sparsification | None = None
) -> Part:
    """Certified figures of a user.

    Args:
        setting: Size of the population.
        law: Of its budgets.
        rounds: In all; by default the setting's.
        sparsification: What becomes of reports; None for APES.
    """
    arguments = {"budgets": law, "users": setting.users, "seed": 1, "delta": DELTA_USER}
    arguments["rounds"] = setting.rounds if rounds is None else rounds
    if sparsification is None:
        return Part("user-level", arguments | {"dimensions": DIMENSIONS})
    arguments["dimensions"] = sparsification.charged(DIMENSIONS)
    chosen = sparsification.top_b_first(DIMENSIONS)
    return Part("user-level", arguments if chosen is None else arguments | {"chosen": chosen})


def epsilon_c(setting: Setting, law: str, result: Results) -> dict[str, float]:
    """Published central epsilon of a coordinate, framework by framework."""
    bounds = result(bounds_part(setting, law))
    numeric, clones = bounds["published"]["eon_numeric"], bounds["published"]["fmt22_numeric"]
    return {
        "ldp-min": bounds["smallest"],
        "pldp": bounds["largest"],
        "unis": clones,
        "apes": numeric,
        "s-apes": numeric,
    }


def epsilon_uc(setting: Setting, law: str, result: Results, printed: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Published central epsilon of a user under each convention, and which comes nearest to what is printed."""
    coordinate = epsilon_c(setting, law, result)
    delta = math.tanh(result(bounds_part(setting, law))["largest"] / 2) * DELTA_S
    kept = round(KEPT * DIMENSIONS)
    answer: dict[str, dict[str, Any]] = {}
    for framework, epsilon in coordinate.items():
        figures: dict[str, float] = {}
        if framework == "pldp":
            figures["d times the largest budget"] = DIMENSIONS * epsilon
        elif framework == "ldp-min":
            figures["stated"] = advanced_composition(epsilon, DELTA_USER, DIMENSIONS)
        else:
            for name, convention in CONVENTIONS.items():
                compose = user_s_apes if framework == "s-apes" else user_apes
                count = kept if framework == "s-apes" else DIMENSIONS
                figures[name] = compose(epsilon, delta, count, convention).epsilon
        nearest = min(figures, key=lambda name: abs(figures[name] - printed[framework]))
        answer[framework] = {"by_convention": figures, "convention": nearest, "epsilon": figures[nearest]}
    return answer
