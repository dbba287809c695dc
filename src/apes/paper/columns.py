"""The two ways in which everything is trained: with the authors' settings, and with ours."""

from typing import Any

from apes.paper.parts import Part
from apes.paper.setting import Setting
from apes.terms.frameworks import FRAMEWORKS
from apes.terms.terms import Terms

PUBLISHED = "as published"
OURS = "ours"
CLIP = 0.1
"""The authors' clip bound."""

# From the authors' public experiments: unit-norm images, labels (u + j) mod 10, FedProx, continuous reports.
_AS_PUBLISHED: dict[str, Any] = {
    "split": "label",
    "normalise": "unit-norm",
    "update": "fedprox",
    "local_epochs": 10,
    "local_learning_rate": 1.0,
    "mu": 0.01,
    "learning_rate": 1.0,
    "clip": CLIP,
}
# Our defaults, on the authors' split: gradients, coded reports, a step as large as the noise allows, averaged models.
_OURS: dict[str, Any] = {"split": "label", "clip": CLIP}

_CLIP_LAPLACE = {name for name in FRAMEWORKS if Terms(framework=name).reports.name == "clip-laplace"}


def training(setting: Setting, column: str, framework: str, budgets: str, **changes: Any) -> list[Part]:
    """Training runs of one cell, one for each seed.

    Args:
        setting: Size and data.
        column: ``as published`` or ``ours``.
        framework: As on the command line.
        budgets: Law of the local budgets.
        changes: Further fields of the plan.
    """
    chosen = dict(_AS_PUBLISHED if column == PUBLISHED else _OURS)
    if column == PUBLISHED and framework in _CLIP_LAPLACE:
        chosen["levels"] = "continuous"
    plan = {
        "framework": framework,
        "budgets": budgets,
        "data": setting.data,
        "users": setting.users,
        "rounds": setting.rounds,
        **chosen,
        **changes,
    }
    return [Part("train", plan | {"seed": seed}) for seed in setting.seeds]
