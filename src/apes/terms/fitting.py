"""Fitting: the clip bound and the cap on budgets that spend a target on the people who train.

One-bit reports of updates within a norm R cost, over T rounds, about 2 max tau (R / C) sqrt(T / (n mean(1 - tau^2))),
tau = tanh(budget / 2), and add noise of C / (mean tau sqrt(n)) to every coordinate. At a given cost the noise is least
where max tau / mean tau is: a cap below what the boldest would give buys accuracy, for everybody, at the price of a
smaller C, at which coordinates begin to be clipped. So: the largest R / C that costs nothing yet, and the cap that goes
with it. All of it follows from budgets, which are public, and from the plan; from nobody's data.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from apes.accounting.accountant import Accountant
from apes.accounting.composition.gaussian import largest_mu
from apes.accounting.exposure import MOST_DIMENSIONS, Exposure
from apes.checks import positive_array, whole
from apes.defaults import NORM, NORM_TO_CLIP, ROUNDS, TARGET_EPSILON
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.mathematics.search import bisect
from apes.models.model import Model, check_model
from apes.terms.plan import Plan
from apes.terms.terms import Terms

# The cap is found to this precision, and the clip bound to the other one.
_BOLDEST = 100.0
_CAP_STEPS, _CAP_PRECISION, _HAIR = 20, 2e-3, 1e-6


def fitted(plan: Plan, budgets: F64, model: Model) -> Plan:
    """The plan with everything settled for people of these budgets; itself, if it was.

    Args:
        plan: What is chosen already.
        budgets: The people's own local budgets, per coordinate and round.
        model: What they train; its size matters.

    Guarantee:
        All rounds together cost nobody more than the target. They may cost less where more would not help.
    """
    return fitted_to(plan, budgets, check_model(model).size) if plan.is_open else plan


def fitted_to(plan: Plan, budgets: F64, dimensions: int, *, adaptive: bool = False) -> Plan:
    """The same by the number of coordinates that are trained, in [1, 10^12].

    Args:
        plan: What is chosen already.
        budgets: The people's own local budgets, per coordinate and round.
        dimensions: Coordinates of what they train.
        adaptive: Whether who takes part in which round may be chosen by what was released before, as in a federation.
            All rounds, of people with these budgets, keep within the target then too.
    """
    if not plan.is_open:
        return plan
    own, d = positive_array("budgets", budgets), whole("dimensions", dimensions, 1, MOST_DIMENSIONS)
    target = TARGET_EPSILON if plan.target_epsilon is None else float(plan.target_epsilon)
    norm, rounds = NORM if plan.norm is None else plan.norm, ROUNDS if plan.rounds is None else plan.rounds
    settled = replace(plan, clip=norm, norm=norm, rounds=rounds, target_epsilon=target)
    # Beyond sqrt(d) the norm bounds nothing that the clip bound does not.
    most = min(NORM_TO_CLIP, math.sqrt(d))

    def accountant(tried: Plan) -> Accountant:
        return tried.terms.accountant(own.size, settled=not adaptive)

    def ratio(cap: float | None) -> float:
        """R / C that spends the target."""
        tried = replace(settled, cap=cap)
        return _ratio(tried.terms, accountant(tried), own, d)

    cap = plan.cap if plan.cap is not None else _cap(ratio, float(own.max()), most)
    spends = min(ratio(cap), most)
    if not spends > 0:
        raise ParameterError(
            f"cap must be smaller: no clip bound keeps budgets up to it within the target; got {cap!r}"
        )
    found = replace(settled, cap=cap, clip=norm / spends)
    while not accountant(found).allows(_exposure(found.terms, own, d), rounds):
        found = replace(found, clip=(found.clip or norm) * (1 + _HAIR))
        if not (found.clip or math.inf) < 1e9 * norm:
            raise ParameterError(f"target_epsilon must be larger: no clip bound reaches it; got {target!r}")
    return found


def _ratio(terms: Terms, accountant: Accountant, budgets: F64, dimensions: int) -> float:
    """R / C at which the Gaussian of all rounds is as wide as the target allows; terms have C = R."""
    cost = accountant.cost(_exposure(terms, budgets, dimensions))
    allowed = largest_mu(float(terms.target_epsilon or 0), accountant.delta * (1 - 3e-3))
    # The shift is proportional to R / C.
    return allowed / math.sqrt(cost.mu_squared * terms.rounds) * (1 - _HAIR) if cost.mu_squared else math.inf


def _cap(ratio: Callable[[float | None], float], boldest: float, most: float) -> float | None:
    """Largest cap on budgets with which R / C may be ``most``; None if there is no need of one."""
    without = ratio(None)
    if without >= most:
        return None
    if not without > 0:
        # Beyond that a bit is the sign itself, and costs more than can be said.
        boldest = min(boldest, _BOLDEST)
        without = ratio(boldest)
    low = boldest * without / most or boldest / 2
    while ratio(low) < most:
        low /= 2
    found = bisect(lambda cap: ratio(cap) >= most, boldest, low, steps=_CAP_STEPS, tolerance=_CAP_PRECISION)
    # Three digits are enough, and can be read.
    return float(np.format_float_positional(found, precision=3, fractional=False))


def _exposure(terms: Terms, budgets: F64, dimensions: int) -> Exposure:
    return terms.exposure(0, terms.applied(budgets), dimensions)
