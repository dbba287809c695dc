"""The whole account of a population: what is certified, what the literature would claim, how tight it is."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.joint_clipping import local_norm_epsilon
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee, certify_rounds
from apes.accounting.local import local_user_epsilon
from apes.accounting.published import PUBLISHED
from apes.accounting.published.echoes import eon_delta
from apes.accounting.published.user_level import DeltaConvention, user_apes, user_s_apes
from apes.checks import half_open
from apes.errors import ParameterError, RegimeError

_GROUPS = 8
# Top-b is evaluated where the paper does: a fifth of the coordinates kept.
_KEPT = 0.2


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of the accountant about rounds with the same participants.

    At ``delta`` for users; shuffle bounds per coordinate are compared at ``delta_s``, the certificate's at
    tanh(max e / 2) delta_s. Colluders tell the adversary what they reported.
    """

    exposure: Exposure
    rounds: int
    delta: float
    delta_s: float = 1e-8
    colluders: int = 0


@dataclass(frozen=True, eq=False)
class Account:
    """The answer: certified, one coordinate of one round, all of one round, all of all rounds; and the rest.

    The rest is `published_figures`, `by_group` of all rounds, and for the user with the largest budget `local_figures`.
    """

    dimension: Guarantee
    round: Guarantee
    total: Guarantee
    published: dict[str, float | None]
    personal: tuple["BudgetGroup", ...]
    local: dict[str, float]


@dataclass(frozen=True)
class BudgetGroup:
    """Users with budgets up to one that some of them have, and what is certified for each of them."""

    budget: float  # the largest of the group
    users: int
    epsilon: float
    mu: float  # the Gaussian shift that covers what is released about them; infinite where none does


def account(question: Question, progress: Callable[[str], None] = lambda step: None) -> Account:
    """Answer everything about a population; ``progress`` is called with the name of each step as it begins."""
    exposure, delta, colluders = question.exposure, question.delta, question.colluders
    delta_c = eon_delta(exposure.budgets, half_open("delta_s", question.delta_s, 1e-300, 1))
    progress("certified, one coordinate")
    dimension = certify_rounds(replace(exposure, charged=1, dimensions=1, top_b_first=None), delta_c, 1, colluders)
    progress("certified, one round")
    one_round = certify_rounds(exposure, delta, 1, colluders)
    progress("certified, all rounds")
    total = certify_rounds(exposure, delta, question.rounds, colluders)
    progress("personal guarantees")
    personal = by_group(total, exposure.budgets)
    progress("published bounds")
    published = published_figures(exposure.budgets, question.delta_s, exposure.dimensions)
    largest = float(exposure.budgets.max())
    locally = local_figures(exposure, largest, delta)
    return Account(dimension, one_round, total, published, personal, locally)


def by_group(guarantee: Guarantee, budgets: Array) -> tuple[BudgetGroup, ...]:
    """The guarantee of groups of users by their budgets, at most eight; each covers all of its users.

    Users of one group may have been in different rounds, and the boldest in the fewest.
    """
    different, counts = np.unique(budgets, return_counts=True)
    # The last of each share of the users; where few budgets differ, each of them.
    share = np.searchsorted(np.cumsum(counts), budgets.size * np.arange(1, _GROUPS + 1) / _GROUPS)
    last = np.arange(different.size) if different.size <= _GROUPS else np.unique(np.append(share, different.size - 1))
    sizes, first = np.diff(np.cumsum(counts)[last], prepend=0), np.append(0, last[:-1] + 1)
    groups = zip(*(each.tolist() for each in (different[last], different[first], sizes)), strict=True)
    present = np.unique(guarantee.budgets)

    def group(budget: float, smallest: float, users: int) -> BudgetGroup:
        there = present[(present >= smallest) & (present <= budget)]
        if not there.size:
            # None of them was in any round.
            return BudgetGroup(budget, users, 0.0, 0.0)
        own = guarantee.of(float(there[-1]), float(there[0]))
        return BudgetGroup(budget, users, own.epsilon, own.mu)

    return tuple(group(*ends) for ends in groups)


def with_levels(groups: Iterable[BudgetGroup], levels: Mapping[str, float]) -> list[dict[str, Any]]:
    """Groups as plain values, each with the names of the levels whose people are in it, where people chose levels.

    Args:
        groups: In the order of their budgets, as `by_group` has them.
        levels: The budget of each level, as it was applied.
    """
    told = [asdict(group) for group in groups]
    for group in told if levels else ():
        group["levels"] = []
    for name, budget in levels.items():
        group_of_level = next((group for group in told if budget <= group["budget"]), None)
        if group_of_level is not None:
            group_of_level["levels"].append(name)
    return told


def local_figures(exposure: Exposure, budget: float, delta: float) -> dict[str, float]:
    """What the reports of a user with this budget reveal in one round to somebody who sees who sent them.

    One coordinate's, those of all that are charged for, those of all with a fifth kept by top-b; and where updates have
    a bounded norm, all of them at ``delta``.
    """
    d, levels = exposure.dimensions, exposure.levels
    figures = {
        "dimension": budget,
        "user": local_user_epsilon(budget, exposure.charged, levels=levels),
        "user_top_b": local_user_epsilon(budget, d, _kept(d), levels),
    }
    if exposure.norm is not None:
        bounded = local_norm_epsilon(budget, exposure.ratio * (1 + 1e-12), delta)
        figures["user_at_delta"] = min(figures["user"], bounded)
    return figures


def _kept(dimensions: int) -> int:
    return max(1, round(_KEPT * dimensions))


def published_figures(budgets: Array, delta_s: float, dimensions: int) -> dict[str, float | None]:
    """Every published figure per coordinate (user_*: per user), None outside its range.

    None of them is a guarantee (docs/published-bounds.md).
    """
    figures: dict[str, float | None] = dict.fromkeys([*PUBLISHED, "user_apes", "user_s_apes"])
    for name, bound in PUBLISHED.items():
        with suppress(RegimeError):
            figures[name] = bound(budgets, delta_s)
    numeric, delta_c = figures["eon_numeric"], eon_delta(budgets, delta_s)
    # Outside their range: a figure of 0, or coordinates whose deltas add up to 1.
    with suppress(ParameterError, RegimeError):
        if numeric is not None:
            figures["user_apes"] = user_apes(numeric, delta_c, dimensions, DeltaConvention.COORDINATE).epsilon
            figures["user_s_apes"] = user_s_apes(numeric, delta_c, _kept(dimensions), DeltaConvention.COMPOSED).epsilon
    return figures
