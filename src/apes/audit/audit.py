"""The audit: attack the real pipeline on a worst-case pair of datasets, and hold the certificate against the outcome.

The attack sees what the analyzer sees, the shuffled batch, and which coordinates the victim kept: the certificate of
random-b holds even if choices are public, and that of top-b-first is about data that the attack knows but for a sign.
How often it is right bounds epsilon from below (Clopper and Pearson), up to a stated chance of error: an audited
epsilon above the certified one means that the mechanism or the certificate is wrong. The attack is a test of the
likelihood ratio, the best there is (Neyman and Pearson) where the others have equal budgets, else nearly; any attack is
valid.

An audit of N trials sees nothing beyond about log(N / 20), and nothing that happens less than once in N / 20: in a
crowd a tiny delta leaves much room between audit and certificate, a delta of a few per cent little. A bound from below
proves no privacy.
"""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from apes.accounting.guarantee import certified_epsilon
from apes.audit.attack import CONFIDENCE, Attack, audited_epsilon, error_rates
from apes.audit.trials import MOST_TRIALS, Attacked, scores
from apes.checks import whole
from apes.errors import ParameterError
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.search import Progress
from apes.terms.terms import Terms

# Of a report: 80 MB in the shuffler.
_MOST_DIMENSIONS = 2**15


@dataclass(frozen=True)
class AuditResult:
    """What an attack achieved, beside what was certified.

    Attributes:
        trials: Simulated rounds per world; half of them chose the attack's thresholds, the others tested it.
        dimensions: Coordinates of a report; every one that the victim kept is a trial of the coordinate level.
        confidence: Chance that both audited figures are true lower bounds, at least.
        coordinate_audited, coordinate_certified: Bounds of epsilon if one coordinate of one user is replaced.
        user_audited, user_certified: The same if one user is replaced.
        coordinate_attack, user_attack: Error rates, for a picture; the audited figures do not rest on them.
    """

    trials: int
    dimensions: int
    delta: float
    confidence: float
    coordinate_audited: float
    coordinate_certified: float
    user_audited: float
    user_certified: float
    coordinate_attack: Attack
    user_attack: Attack

    @property
    def passed(self) -> bool:
        """Whether no audited figure exceeds the certified one."""
        return self.coordinate_audited <= self.coordinate_certified and self.user_audited <= self.user_certified


def audit(
    terms: Terms,
    budgets: ArrayLike,
    *,
    dimensions: int,
    trials: int,
    delta: float,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> AuditResult:
    """Attack a population's shuffled reports, and compare with what is certified.

    Args:
        terms: What is attacked; with a certificate, and coded reports.
        budgets: Local budgets, each in (0, inf).
        dimensions: Coordinates of an update, in [1, 32768].
        trials: Of each world, in [2, 2^23].
        delta: Of both the audit and the certificate, in (0, 1).
        seed: Of the simulated randomness, in [0, 2^64).
        progress: Called with the trials simulated so far and the number of all.

    Guarantee:
        If the pipeline is as private as certified, ``passed`` is true with probability 0.999 or more over the
        simulated randomness.

    >>> audit(Terms(levels=2), [1.0], dimensions=2, trials=500, delta=1e-6, seed=1).passed
    True
    """
    if terms.why_not_certified is not None:
        raise ParameterError(f"terms must be ones with a certificate: {terms.why_not_certified}")
    levels = terms.reports.levels
    if levels is None:
        raise ParameterError(f"levels must be in [2, 256]: the audit attacks coded reports; got {terms.levels!r}")
    whole("dimensions", dimensions, 1, _MOST_DIMENSIONS)
    whole("trials", trials, 2, MOST_TRIALS)
    whole("seed", seed, 0, 2**64 - 1)
    progress(0, 2 * trials)
    own = terms.applied(budgets)
    coordinate, user = (certified_epsilon(terms.exposure(0, own, d), delta) for d in (1, dimensions))
    attacked = Attacked(terms, levels, own, dimensions, seed)
    with quiet_blas():
        one, other = (scores(attacked, world, trials, progress) for world in (0, 1))
    of_coordinate, of_user = (audited_epsilon(*pair, delta) for pair in zip(one, other, strict=True))
    attacks = (error_rates(*pair) for pair in zip(one, other, strict=True))
    return AuditResult(trials, dimensions, delta, CONFIDENCE, of_coordinate, coordinate, of_user, user, *attacks)
