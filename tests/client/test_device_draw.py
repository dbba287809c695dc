"""The device's road: the law from the system's randomness, and what its cost may depend on.

The randomness cannot be seeded, so every statistical test raises a false alarm with probability 1e-9 a run, and the
samples are large enough for the power checks to miss as rarely.
"""

import mpmath
import numpy as np
import pytest
from levels import sampled
from scipy.stats import chi2, ncx2

from apes.client.draws.device import attempts_needed, draw_codes_on_device
from apes.mathematics.levels import level_probabilities
from apes.mathematics.randomness import SystemSource
from apes.mathematics.thresholds import acceptance_thresholds

FALSE_ALARM = 1e-9


class CountingSource(SystemSource):
    """The system's source, with a record of every request from outside."""

    def __init__(self):
        self.requests = []

    def words(self, *shape):
        self.requests.append(("words", *shape))
        return SystemSource().words(*shape)

    def bytes(self, *shape):
        self.requests.append(("bytes", *shape))
        return SystemSource().bytes(*shape)


class RefusingSource(CountingSource):
    """Makes all attempts of some coordinates of every part fail, the first ``times`` times.

    The proposal is level 0 and the number the largest one, which only a distance of 0 accepts.
    """

    def __init__(self, rows, times):
        super().__init__()
        self.rows, self.times, self.left = rows, times, 0

    def words(self, *shape):
        numbers = super().words(*shape).copy()
        if len(shape) == 1:  # the rounding: a part begins
            self.left = self.times
        elif self.left:
            numbers[self.rows] = 2**64 - 1
            self.left -= 1
        return numbers

    def bytes(self, *shape):
        proposals = super().bytes(*shape).copy()
        if self.left:
            proposals[self.rows] = 0
        return proposals


class SetSource(SystemSource):
    """Hands out prepared proposals and numbers."""

    def __init__(self, proposals, numbers):
        self.proposals, self.numbers = proposals, numbers

    def words(self, *shape):
        return np.zeros(shape, dtype=np.uint64) if len(shape) == 1 else self.numbers

    def bytes(self, *shape):
        return self.proposals


def drawn(updates, budget, clip, levels, source=None):
    updates = np.ascontiguousarray(np.atleast_2d(updates), dtype=np.float32)
    budgets = np.full(len(updates), budget)
    return draw_codes_on_device(updates, budgets, clip, levels, source or SystemSource())


def report_law(budget, levels, position):
    """Law of a report whose update lies at ``position`` in [0, K - 1]: a mixture of the two levels next to it."""
    j = min(int(position), levels - 2)
    lower, upper = level_probabilities(np.array([budget]), levels)[0, j : j + 2]
    return (j + 1 - position) * lower + (position - j) * upper


def chi_square(codes, law):
    observed = np.bincount(codes.ravel(), minlength=len(law))
    expected = law * codes.size
    assert expected.min() > 25
    return ((observed - expected) ** 2 / expected).sum()


LAWS = [
    (2, 1.0, 1.0, 300_000),
    (3, 2.0, 0.3, 300_000),
    (16, 2.0, 0.57, 300_000),
    (200, 3.0, 0.0, 200_000),
    (256, 6.0, 0.4985, 150_000),
]


@pytest.mark.parametrize(("levels", "budget", "share", "n"), sampled(LAWS, keep=3))
def test_draws_follow_the_law_and_the_test_sees_ten_percent(levels, budget, share, n):
    clip, position = 0.1, share * (levels - 1)
    law, limit = report_law(budget, levels, position), chi2.isf(FALSE_ALARM, levels - 1)
    updates = np.full(n, clip * (2 * share - 1))
    assert chi_square(drawn(updates, budget, clip, levels), law) < limit
    for factor in (0.9, 1.1):
        other = report_law(factor * budget, levels, position)
        assert ncx2.cdf(limit, levels - 1, n * ((other - law) ** 2 / law).sum()) < FALSE_ALARM  # enough draws
        assert chi_square(drawn(updates, factor * budget, clip, levels), law) > limit


def test_every_user_has_a_budget_and_every_coordinate_its_own_draw():
    n, levels, budgets = 80_000, 16, np.array([0.5, 6.0])
    updates = np.tile(np.array([-1.0, 1.0], dtype=np.float32), (2, n // 2))
    codes = draw_codes_on_device(updates, budgets, 1.0, levels, SystemSource())
    limit = chi2.isf(FALSE_ALARM / 4, levels - 1)
    for user, budget in enumerate(budgets):
        for end, level in ((0, 0), (1, levels - 1)):
            sample, law = codes[user, end::2], report_law(budget, levels, level)
            assert chi_square(sample, law) < limit
            assert chi_square(sample, report_law(budgets[1 - user], levels, level)) > limit


UPDATES = {"lower end": -0.1, "upper end": 0.1, "centre": 0.0, "between levels": 0.0123, "far beyond the clip": 1e30}


@pytest.mark.parametrize(("levels", "budget"), [(2, 0.1), (3, 8.0), (16, 1.0), (200, 2.0), (256, 8.0), (256, 50.0)])
def test_randomness_taken_does_not_depend_on_the_updates(levels, budget):
    width = 700
    requests = []
    for update in UPDATES.values():
        source = CountingSource()
        drawn(np.full(width, update), budget, 0.1, levels, source)
        requests.append(source.requests)
    mixed = CountingSource()
    drawn(np.random.default_rng(1).normal(0, 0.1, width), budget, 0.1, levels, mixed)
    assert all(request == mixed.requests for request in requests)
    # One word a coordinate for its rounding, and a byte and a word an attempt, all attempts made by everyone.
    attempts = attempts_needed(acceptance_thresholds(np.array([budget]), levels)[0])
    words = [shape for kind, *shape in mixed.requests if kind == "words"]
    proposals = [shape for kind, *shape in mixed.requests if kind == "bytes"]
    assert sum(shape[0] for shape in words if len(shape) == 1) == width
    assert [shape for shape in words if len(shape) == 2] == proposals
    assert {shape[1] for shape in proposals} == {attempts}
    assert sum(shape[0] for shape in proposals) == width


@pytest.mark.parametrize("levels", [2, 3, 200, 256])
@pytest.mark.parametrize("budget", [0.01, 0.1, 1.0, 3.0, 8.0, 20.0, 40.0, 50.0])
def test_all_attempts_fail_with_probability_below_two_to_minus_80(levels, budget):
    row = acceptance_thresholds(np.array([budget]), levels)[0]
    weights, attempts = [int(t) + 1 for t in row], attempts_needed(row)
    proposals = 2 ** (levels - 1).bit_length()
    with mpmath.workprec(300):
        for j in range(levels):
            accepted = sum(weights[abs(k - j)] for k in range(levels))
            failure = 1 - mpmath.mpf(accepted) / (proposals << 64)
            assert failure**attempts <= mpmath.mpf(2) ** -80
            if j == 0 and attempts > 20:  # nor are they many more than that takes
                assert failure ** (attempts * 9 // 10) > mpmath.mpf(2) ** -80


@pytest.mark.parametrize(("rows", "times"), sampled([(slice(0, None, 2), 1), (slice(None), 1), (slice(None), 3)], 1))
def test_coordinates_whose_attempts_all_fail_start_again(rows, times):
    n, levels, budget, clip = 50_000, 16, 3.0, 1.0
    source = RefusingSource(rows, times)
    codes = drawn(np.full(n, clip), budget, clip, levels, source)
    for part in (codes[0, 0::2], codes[0, 1::2]):
        assert chi_square(part, report_law(budget, levels, levels - 1)) < chi2.isf(FALSE_ALARM, levels - 1)
    parts, rounds = (sum(kind == name for kind, *_ in source.requests) for name in ("words", "bytes"))
    assert rounds == (parts - rounds) * (1 + times)


def test_starting_again_asks_for_what_is_still_open_alone():
    source = RefusingSource(slice(0, 3), times=2)
    drawn(np.full(10, 1.0), 3.0, 1.0, 16, source)
    assert [shape[0] for kind, *shape in source.requests if kind == "bytes"] == [10, 3, 3]


def test_the_first_accepted_attempt_counts_wherever_it_is():
    levels, budget = 3, 2.0
    row = acceptance_thresholds(np.array([budget]), levels)[0]
    attempts = attempts_needed(row)
    # Upper end: level 2. Proposal 3 is past the last level; a number of 0 accepts, the largest only at distance 0.
    proposals = np.full((attempts, attempts), 3, dtype=np.uint8)
    numbers = np.zeros((attempts, attempts), dtype=np.uint64)
    expected = np.arange(attempts) % levels
    for i in range(attempts):
        proposals[i, i] = expected[i]
        proposals[i, i + 1 :] = (expected[i] + 1) % levels
        proposals[i, :i:2], numbers[i, :i:2] = 1, 2**64 - 1
        numbers[i, i] = row[2 - expected[i]]  # equal to the threshold: accepted
    codes = drawn(np.full(attempts, 5.0), budget, 1.0, levels, SetSource(proposals, numbers))
    assert codes[0].tolist() == expected.tolist()
    past = numbers.copy()
    lower = np.flatnonzero(expected < 2)[:-1]
    past[lower, lower] += np.uint64(1)  # one above: the next attempt is taken
    codes = drawn(np.full(attempts, 5.0), budget, 1.0, levels, SetSource(proposals, past))
    assert codes[0, lower].tolist() == ((expected + 1) % levels)[lower].tolist()


def test_parts_of_a_wide_update_are_all_drawn(monkeypatch):
    """A part holds a few hundred coordinates here, and a step costs 6 nats: hardly a report leaves its level."""
    monkeypatch.setattr("apes.client.draws.device._WORDS_AT_ONCE", 1 << 18)
    levels, width = 16, 6000
    position = np.arange(width) % levels
    source = CountingSource()
    codes = drawn(2 * position / (levels - 1) - 1, 90.0, 1.0, levels, source)
    assert len([kind for kind, *_ in source.requests if kind == "bytes"]) > 10
    # 99.5 % stay, with a standard error of 0.1 %; eleven steps off has probability exp(-66).
    assert np.mean(codes[0] == position) > 0.95
    assert np.abs(codes[0].astype(int) - position).max() <= 10
