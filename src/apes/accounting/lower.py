"""Lower bounds: the divergence of a concrete dataset, seen through one statistic of the shuffled reports.

The victim's data stands at one end or the other, everybody else's in the centre, or at the victim's first end. Any
function of the multiset of reports can only lose, so the hockey-stick divergence of a sum of whole-numbered scores of
the reports is below that of the mechanism, and says how far a certificate can be from the truth. Not a guarantee.
"""

import math
from functools import lru_cache

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.certificate.curve import check_delta, check_levels
from apes.accounting.composition.lattice import UNIT, Lattice, law_of_sum, tilt, wrapped
from apes.accounting.exposure import Exposure
from apes.checks import positive_array, whole
from apes.errors import ParameterError
from apes.mathematics.search import bisect

_CELLS = 256
# Scores go up to this, or to fewer where a longer sum would need longer transforms.
_SCORES, _FEWER_SCORES, _CROWDED = 200, 40, 200_000
_NOTHING = 45.0
_WINDOW = 9.0
_STEPS, _TOLERANCE = 60, 1e-7
_MOST = 4_000_000
_GROUPS = 512
# Steps of the loss on either side of 0, and per standard deviation; outcomes rarer than this tell nothing.
_LOSSES = 96
_LOSSES_PER_DEVIATION = 12
_RARE = 1e-14


def forced_epsilon(exposure: Exposure, delta: float, rounds: int = 1, victim: float | None = None) -> float:
    """What some dataset forces over so many such rounds: `lower_epsilon`; 0 where nothing is known."""
    # Sparse reports: b uses. For random choices that is forced if they are public and everybody's the same, which the
    # certificate allows for. What a threshold's padding hides is not known.
    is_known = exposure.sparsifier in (None, "random-b", "top-b-first")
    forced = exposure.forced * rounds
    return lower_epsilon(exposure.budgets, delta, exposure.levels, forced, victim) if is_known and forced else 0.0


def lower_epsilon(
    budgets: Array, delta: float, levels: int | None, count: int = 1, victim: float | None = None
) -> float:
    """Largest epsilon that some dataset forces at ``delta``, for the user with the largest budget, or with a victim's.

    The count is coordinates times rounds; the victim's data is the same in all. Of sparse reports it is the coordinates
    that are kept: the data are zero in all others. Beyond four million it is what so many force: all force no less.
    """
    count, levels, delta = min(whole("count", count, 1), _MOST), check_levels(levels), check_delta(delta)
    budgets = np.sort(positive_array("budgets", budgets))
    if victim is not None:
        if victim not in budgets:
            raise ParameterError(f"victim must be the budget of somebody who took part, got {victim!r}")
        # The victim comes last; who is where among the others does not matter.
        budgets = np.append(np.delete(budgets, int(np.searchsorted(budgets, victim))), victim)
    # At most a few hundred different budgets, none above the original: a smaller budget is a larger one on a randomised
    # input (docs/proofs.md, 4), and a mixture of datasets diverges by no more than the worst of them. So what the
    # lowered population forces, some dataset of the original one does.
    starts = np.unique(np.linspace(0, budgets.size - 1, _GROUPS + 1).astype(int))
    budget, others, worst = float(budgets[-1]), budgets[starts[:-1]], 0.0
    for position in (0.5, 0.0):
        one, other = _laws_of_sum(budget, others.tobytes(), np.diff(starts).tobytes(), position, levels)
        # The same many times over is not bounded here: a hundredth of delta is set aside for it.
        threshold = 1.01 * delta if count > 1 else delta
        error = _transform_error(one, budgets.size - 1)
        worst = max(worst, _forced(one, other, budget, count, threshold, error))
    return worst


def _transform_error(law: Array, others: int) -> float:
    """What transforms may have put into a law of a sum, all entries together.

    Relative to its Euclidean norm a law is off by a few units per stage of a transform, and by two per other user, as
    their logarithms are added up. Entries together are off by at most the root of their number times as much.
    """
    if others == 0:
        return 0.0
    relative = (4 * math.log2(law.size) + 2 * others) * UNIT
    return relative * math.sqrt(law.size) * float(np.linalg.norm(law))


# Asked for again with other numbers of coordinates and rounds.
@lru_cache(maxsize=8)
def _laws_of_sum(
    budget: float, other_budgets: bytes, other_counts: bytes, position: float, levels: int | None
) -> tuple[Array, Array]:
    """Laws of the sum of everybody's scores, the victim at one end and at the other."""
    others, counts = np.frombuffer(other_budgets), np.frombuffer(other_counts, dtype=np.int64)
    laws, first = report_laws(others, position, levels), report_laws(np.array([budget]), 0.0, levels)[0]
    second = first[::-1]
    background = counts @ laws / counts.sum() if counts.size else np.full(first.size, 1 / first.size)
    # The likelihood of one among many is, to first order, the sum of these; any other score would be valid too.
    score = (first - second) / np.maximum(background, 1e-12)
    if not score.any():
        # A budget so small that its laws are the same in floating point.
        return first, second
    most = _SCORES if counts.sum() <= _CROWDED else _FEWER_SCORES
    scores = np.round(score * (most / np.abs(score).max())).astype(np.int64)
    law = _law_of_scores(laws, counts, background, scores)
    return _shifted_sum(law, scores, first), _shifted_sum(law, scores, second)


def _forced(one: Array, other: Array, budget: float, count: int, threshold: float, error: float) -> float:
    """Largest epsilon found at which the divergence of as many uses of two laws is above a threshold.

    ``error`` bounds what each law may be off by, all entries together; in the divergence the second law's is multiplied
    by exp(epsilon), as the law is.
    """
    growth = np.zeros(one.size)
    if count > 1:
        one, other, growth = _many(*_by_loss(one, other), count)

    def is_forced(t: float) -> bool:
        found = float(np.maximum(one - np.exp(np.minimum(t + growth, 700.0)) * other, 0).sum())
        slack = 0.0 if count > 1 else error * (1 + math.exp(min(t, 700.0)))
        return found - slack > threshold

    return bisect(is_forced, budget * count, 0.0, steps=_STEPS, tolerance=_TOLERANCE) if is_forced(0.0) else 0.0


def _by_loss(one: Array, other: Array) -> tuple[Lattice, Lattice]:
    """Both laws of how much more likely an outcome is in one world, on a lattice: a statistic, so it can only lose."""
    likely = (one > _RARE) & (other > _RARE)
    loss = np.log(np.where(likely, one, 1.0) / np.where(likely, other, 1.0))
    step = max(math.sqrt(float(one @ loss**2)), 1e-9) / _LOSSES_PER_DEVIATION
    places = np.clip(np.round(loss / step), -_LOSSES, _LOSSES).astype(np.int64) + _LOSSES
    masses = [np.asarray(np.bincount(places, law, 2 * _LOSSES + 1), dtype=np.float64) for law in (one, other)]
    return Lattice(step, -_LOSSES, masses[0]), Lattice(step, -_LOSSES, masses[1])


def _many(first: Lattice, second: Lattice, count: int) -> tuple[Array, Array, Array]:
    """Laws of the sum of many losses on a window around its mean: the first from below, the second from above.

    The second is tilted by the loss itself, which makes it the first, or nearly: tiny masses stay accurate. It is to be
    multiplied by exp of the third.
    """
    plain, tilted = tilt(first, 0.0), tilt(second, 1.0)
    deviation = math.sqrt(max(float(plain.weights @ first.points**2) - plain.mean**2, first.step**2))
    n = 1 << math.ceil(math.log2(4 * _WINDOW * deviation / first.step * math.sqrt(count) + 4 * first.masses.size))
    start = round(count * plain.mean / first.step) - n // 2
    (one, one_off), (other, other_off) = (law_of_sum([(law, count)], n) for law in (plain, tilted))
    points = first.step * (start + np.arange(n))
    growth = np.asarray(count * (tilted.log_moment + tilted.error) - points, dtype=np.float64)
    # What was wrapped into the window makes both larger: for the first, far less than is set aside.
    below: Array = np.maximum(np.roll(one, -start) - one_off, 0)
    above: Array = np.maximum(np.roll(other, -start), 0) + other_off
    return below, above, growth


def report_laws(budgets: Array, position: float, levels: int | None) -> Array:
    """Law of a report for each budget, data at ``position`` in [0, 1]: levels, or cells of [0, 1]."""
    # Beyond these ends laws do not differ, but products leave the range of floating point.
    e = np.clip(budgets, 1e-290, 1e6)[:, None]
    if levels is not None:
        weights = np.exp(-e * np.abs(np.arange(levels) - round(position * (levels - 1))) / (levels - 1))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    edges = np.linspace(0, 1, _CELLS + 1)
    # Distribution function up to a factor: expm1 keeps it accurate for small budgets.
    distance = edges - position
    masses = np.diff(np.sign(distance) * -np.expm1(-e * np.abs(distance)), axis=1)
    return np.asarray(masses / masses.sum(axis=1, keepdims=True))


def _law_of_scores(laws: Array, counts: Whole, mean_law: Array, scores: Whole) -> Array:
    """Law of the sum of the others' scores, on a window, wrapped."""
    users, largest = int(counts.sum()), int(np.abs(scores).max())
    if users == 0:
        return np.eye(1, 4 * largest).ravel()
    variance = float(mean_law @ scores**2) - float(mean_law @ scores) ** 2
    n = 1 << math.ceil(math.log2(2 * _WINDOW * math.sqrt(users * variance) + 8 * largest))
    # Frequencies at which the pooled law's transform, to the power of n, is nothing are left out.
    pooled = np.abs(np.fft.rfft(wrapped(scores, mean_law, n)))
    kept = np.flatnonzero(users * np.log(np.maximum(pooled, 1e-300)) > -_NOTHING)
    table = np.exp(-2j * np.pi * np.outer(scores, kept) / n)
    transform = np.zeros(n // 2 + 1, dtype=np.complex128)
    transform[kept] = np.exp(counts @ np.log(laws @ table.real + 1j * (laws @ table.imag)))
    return np.maximum(np.fft.irfft(transform, n), 0)


def _shifted_sum(law: Array, scores: Whole, masses: Array) -> Array:
    """Law of the sum with one more score, drawn with ``masses``."""
    if law.max() == 1:
        # Nobody else: a transform would lose masses below its rounding, which large budgets have.
        return wrapped(scores, masses, law.size)
    one = np.fft.rfft(wrapped(scores, masses, law.size))
    return np.maximum(np.fft.irfft(np.fft.rfft(law) * one, law.size), 0)
