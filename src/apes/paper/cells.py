"""Cells of Table 4: which run stands for which framework and law."""

from apes.paper.columns import training
from apes.paper.parts import Part
from apes.paper.setting import Setting


def cell(setting: Setting, column: str, framework: str, law: str) -> list[Part]:
    """Runs of a cell, one for each seed.

    LDP-Min depends on the smallest budget only, which is 0.05 in all laws; what UniS's analyzer receives has the same
    sum as under PLDP, permuted. So one run serves all of those.
    """
    if framework in ("ldp-min", "non-private"):
        return training(setting, column, framework, "constant:0.05")
    return training(setting, column, "pldp" if framework == "unis" else framework, law)
