"""How people may report, every kind of it certified: what is agreed to, what it costs, how much noise is left."""

import math
from dataclasses import dataclass, replace
from typing import Any

from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee, certified_epsilon
from apes.advice.question import Question
from apes.analyzer.optimizer import ServerOptimizer
from apes.defaults import CLIP, NORM, NORM_TO_CLIP
from apes.errors import ParameterError
from apes.models.logistic import LogisticRegression
from apes.terms.plan import Plan

BITS, FIRST, LEVELS = "bits", "top-b-first", "levels"
NAMES = {BITS: "one bit with a norm", FIRST: "top-b-first", LEVELS: "apes, 256 levels"}
"""The kinds of reports that are compared, each with what it is called."""
_CLASSES = 10


@dataclass(frozen=True)
class Setting:
    """One way to train under a question: how people report, in how many rounds, up to which budget."""

    kind: str
    question: Question
    rounds: int
    cap: float | None = None

    @property
    def plan(self) -> Plan:
        """The choices, without a target."""
        asked = self.question
        common: dict[str, Any] = {"rounds": self.rounds, "cap": self.cap, "delta": asked.central_delta}
        if self.kind == BITS:
            # Beyond sqrt(d) the norm bounds nothing that the clip bound does not.
            clip = NORM / min(NORM_TO_CLIP, math.sqrt(asked.dimensions))
            return Plan(clip=clip, norm=NORM, **common)
        if self.kind == FIRST:
            return Plan("s-apes-first", clip=CLIP, **common)
        return Plan("apes", clip=CLIP, levels=256, **common)

    @property
    def exposure(self) -> Exposure:
        """What a round reveals."""
        terms = self.plan.terms
        return terms.exposure(0, terms.applied(self.question.budgets), self.question.dimensions)

    def epsilon(self) -> float:
        """Certified for everybody, over all rounds."""
        return certified_epsilon(self.exposure, self.question.central_delta, self.rounds)

    def guarantee(self) -> Guarantee:
        """All that is certified, by the accountant that a training has."""
        accountant = self.plan.terms.accountant(self.question.users, settled=True, keep=True)
        accountant.record(self.exposure, self.rounds)
        return replace(accountant.guarantee, cap=math.inf if self.cap is None else self.cap)

    def noise(self) -> float:
        """Standard error of the mean update, per coordinate and round; infinite where reports say nothing."""
        plan = self.plan
        try:
            return plan.terms.calibrator(plan.calibration).standard_error(plan.terms.applied(self.question.budgets))
        except ParameterError:
            return math.inf

    def optimizer(self, noise: float) -> ServerOptimizer:
        """How the analyzer steps by default, under this noise."""
        plan, features = self.plan, max(1, self.question.dimensions // _CLASSES - 1)
        return plan.schedule.steps(plan.terms, LogisticRegression(features, _CLASSES), noise)


def noise_of_weight(optimizer: ServerOptimizer, noise: float) -> float:
    """Standard deviation that the noise of all rounds leaves in a weight, as far as no later round corrects it.

    A weight is the sum of all steps, a step the running mean of the estimates so far: it is linear in their noise.
    """
    past, total, weight = optimizer.momentum, 0.0, 0.0
    for done in reversed(range(optimizer.rounds)):
        weight = past * weight + (1 - past) * optimizer.rate(done) / (1 - past ** (done + 1))
        total += weight * weight
    return noise * math.sqrt(total)
