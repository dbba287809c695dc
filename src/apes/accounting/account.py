"""The whole account of a population: what is certified, what the literature would claim, how tight it is."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate.curve import hiding_curve, honest_others
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee, certify
from apes.accounting.local import local_user_epsilon
from apes.accounting.published import PUBLISHED
from apes.accounting.published.user_level import DeltaConvention, user_apes, user_s_apes
from apes.checks import within
from apes.errors import RegimeError

Array = NDArray[np.float64]
_PERSONAL_POINTS = 20
# Top-b is evaluated where the paper does: a fifth of the coordinates kept.
_KEPT = 0.2


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of the accountant.

    Attributes:
        exposure: What a round reveals: participants, coordinates, levels.
        rounds: Rounds with the same participants.
        delta: Of the user-level guarantees.
        delta_s: At which shuffle bounds per coordinate are compared; the certificate's is tanh(max e / 2) delta_s.
        colluders: Users who tell the adversary what they reported.
    """

    exposure: Exposure
    rounds: int
    delta: float
    delta_s: float = 1e-8
    colluders: int = 0


@dataclass(frozen=True, eq=False)
class Account:
    """The answer.

    Attributes:
        dimension: Certified, one coordinate of one round.
        round: Certified, all coordinates of one round.
        total: Certified, all coordinates of all rounds.
        published: What each published bound claims a coordinate (user_*: a user), None outside its range.
        personal_local: Local budgets, increasing, and
        personal_central: the certified central epsilon of a user with each, one coordinate of one round.
        local: What the reports of the user with the largest budget reveal in one round to somebody who sees who sent
            them: a coordinate (``dimension``), all that are charged for (``user``), all with a fifth kept by top-b
            (``user_top_b``).
    """

    dimension: Guarantee
    round: Guarantee
    total: Guarantee
    published: dict[str, float | None]
    personal_local: Array
    personal_central: Array
    local: dict[str, float]


def account(question: Question, progress: Callable[[str], None] = lambda step: None) -> Account:
    """Answer everything about a population.

    Args:
        question: What is asked.
        progress: Called with the name of each step as it begins.
    """
    exposure, colluders = question.exposure, question.colluders
    budgets, levels = exposure.budgets, exposure.levels
    delta_c = math.tanh(float(budgets.max()) / 2) * within("delta_s", question.delta_s, 1e-300, 1)

    def certified(delta: float, dimensions: int, rounds: int) -> Guarantee:
        b = None if dimensions == 1 else exposure.top_b_first
        sizes = {"dimensions": dimensions, "rounds": rounds}
        proved = certify(budgets, delta=delta, **sizes, levels=levels, colluders=colluders, top_b_first=b)
        # The datasets that force a loss change every coordinate; what they force through a sparsifier is not known.
        return proved if exposure.sparsifier is None else replace(proved, lower=0.0)

    progress("certified, one coordinate")
    dimension = certified(delta_c, 1, 1)
    progress("certified, one round")
    one_round = certified(question.delta, exposure.charged, 1)
    progress("certified, all rounds")
    total = certified(question.delta, exposure.charged, question.rounds)
    progress("personal guarantees")
    local, central = personal_curve(budgets, delta_c, levels, colluders)
    progress("published bounds")
    published = published_figures(budgets, question.delta_s, exposure.dimensions)
    locally = local_figures(float(budgets.max()), exposure.dimensions, exposure.charged, levels)
    return Account(dimension, one_round, total, published, local, central, locally)


def personal_curve(budgets: Array, delta: float, levels: int | None, colluders: int) -> tuple[Array, Array]:
    """Local budgets and the certified central epsilon of a user with each, one coordinate of one round.

    The central epsilon increases with the local budget (docs/proofs.md, 4), so for a budget in between the next larger
    one is valid.
    """
    different = np.unique(budgets)
    local = different[np.unique(np.linspace(0, different.size - 1, _PERSONAL_POINTS).astype(int))]
    others = honest_others(budgets, colluders, levels)
    central = [hiding_curve(float(e), others, delta, levels).epsilon(delta) for e in local]
    return local, np.maximum.accumulate(central)


def local_figures(budget: float, dimensions: int, charged: int, levels: int | None) -> dict[str, float]:
    """Local epsilon of a user in one round: a coordinate, all charged ones, all with a fifth kept by top-b."""
    return {
        "dimension": budget,
        "user": local_user_epsilon(budget, charged, levels=levels),
        "user_top_b": local_user_epsilon(budget, dimensions, _kept(dimensions), levels),
    }


def _kept(dimensions: int) -> int:
    return max(1, round(_KEPT * dimensions))


def published_figures(budgets: Array, delta_s: float, dimensions: int) -> dict[str, float | None]:
    """Every published figure, None outside its range. None of them is a guarantee (docs/published-bounds.md)."""
    figures: dict[str, float | None] = {}
    for name, bound in PUBLISHED.items():
        try:
            figures[name] = bound(budgets, delta_s)
        except RegimeError:
            figures[name] = None
    numeric = figures["eon_numeric"]
    figures["user_apes"] = figures["user_s_apes"] = None
    if numeric is not None:
        delta_c = math.tanh(float(budgets.max()) / 2) * delta_s
        figures["user_apes"] = user_apes(numeric, delta_c, dimensions, DeltaConvention.COORDINATE).epsilon
        figures["user_s_apes"] = user_s_apes(numeric, delta_c, _kept(dimensions), DeltaConvention.COMPOSED).epsilon
    return figures
