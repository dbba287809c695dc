"""Coded draws in simulation, bit for bit against a slow reference, and as a law.

The reference follows the text of `apes.client.draws.coded` in Python's integers and without its short cuts: it always
makes all 64 bits of the rounding and of an attempt, where the compiled code looks at the leading ones and further only
if they tie.
"""

from collections import Counter
from fractions import Fraction
from itertools import count, islice, pairwise
from math import floor

import cipher_words
import numpy as np
import pytest
from levels import sampled
from scipy.stats import chi2

from apes.client.draws.coded import draw_codes
from apes.mathematics.levels import level_probabilities
from apes.mathematics.randomness import Purpose, SimulationSource
from apes.mathematics.thresholds import acceptance_thresholds

# How a word is cut: 8 bits of proposal, then the first bits of R, then the first bits of an attempt's number; the
# halves of later attempts have no R.
ROUNDING_BITS, LEADING_BITS, RETRY_BITS = 11, 13, 8
TIE = 1 << 31
SOURCE = SimulationSource(2**40 + 11, 5)
STREAM = int(SOURCE.stream(Purpose.REPORT))
MATERIAL = SOURCE.run_key.material


def first_word(c, user):
    return cipher_words.word(MATERIAL, c, 0, user, STREAM)


def further_bits(c, user, attempt=None):
    """Of an attempt's number; without an attempt, of the rounding."""
    stage, pair = (0, 7) if attempt is None else divmod(attempt, 7)
    upper, lower = cipher_words.block(MATERIAL, c, TIE + stage, user, STREAM)[2 * pair : 2 * pair + 2]
    return upper << 32 | lower


def attempts(user, c, levels):
    """Yield the proposal and the 64-bit number of every attempt."""
    mask = 2 ** (levels - 1).bit_length() - 1
    for a in count():
        bits = RETRY_BITS if a else LEADING_BITS
        half = cipher_words.word(MATERIAL, c // 2, a, user, STREAM) >> 16 * (c % 2) & 0xFFFF
        drawn, size = (half, 16) if a else (first_word(c, user), 32)
        leading, further = drawn >> size - bits, further_bits(c, user, a) >> bits
        yield drawn & mask, leading << 64 - bits | further


def rounded(update, user, c, levels, clip):
    """Level of the update, and whether the first bits of R left it open. t is in single precision."""
    with np.errstate(over="ignore"):
        t = np.float32(update) * np.float32((levels - 1) / (2 * clip)) + np.float32(0.5) * np.float32(levels - 1)
    t = Fraction(min(max(float(t), 0.0), levels - 1.0))
    first = first_word(c, user) >> 8 & 2**ROUNDING_BITS - 1
    r = Fraction(first << 53 | further_bits(c, user) >> 11, 1 << ROUNDING_BITS + 53)
    return floor(t) + (r < t % 1), first == floor(t % 1 * 2**ROUNDING_BITS)


def reference(update, row, clip, user, c):
    """Draw a coordinate; say whether its rounding and whether its leading bits tied."""
    j, rounding_tied = rounded(update, user, c, len(row), clip)
    leading_tied = False
    for a, (k, number) in enumerate(attempts(user, c, len(row))):
        if k < len(row):
            unknown = 64 - (RETRY_BITS if a else LEADING_BITS)
            leading_tied |= number >> unknown == row[abs(k - j)] >> unknown
            if number <= row[abs(k - j)]:
                return k, rounding_tied, leading_tied


def drawn(updates, table, clip, first_user=0, first=0):
    updates = np.ascontiguousarray(updates, dtype=np.float32)
    codes = np.full(updates.shape, 77, dtype=np.uint8)
    assert draw_codes(updates, table, clip, (first_user, first, np.uint64(STREAM)), SOURCE.key, codes)
    return codes


def updates_of_all_kinds(users, width, clip, seed):
    """Inside and beyond the clip, and what is special: zeros, borders, their neighbours, the largest floats."""
    border = np.float32(clip)
    special = [0.0, -0.0, border, -border, np.nextafter(border, np.float32(9)), -10 * border, 3e38, -3e38, 1e-45]
    updates = np.random.default_rng(seed).normal(0, 0.8 * clip, (users, width)).astype(np.float32)
    updates[:, : len(special)] = special
    return updates


CASES = [
    (2, 0.05),
    (2, 8.0),
    (3, 1.0),
    (16, 0.5),
    (16, 8.0),
    (200, 2.0),
    (200, 50.0),
    (256, 1.0),
    (256, 8.0),
    (256, 50),
]


@pytest.mark.parametrize(("levels", "budget"), sampled(CASES, keep=5))
def test_draws_are_the_reference_bit_for_bit(levels, budget):
    clip, first_user, first = 0.1, 999, 4 * 1001 + 3
    table = acceptance_thresholds(np.array([budget, 2.0]), levels)
    updates = updates_of_all_kinds(2, 500, clip, seed=levels)
    codes = drawn(updates, table, clip, first_user, first)
    for u, row in enumerate(table.tolist()):
        for i in range(updates.shape[1]):
            assert codes[u, i] == reference(updates[u, i], row, clip, first_user + u, first + i)[0], (u, i)


def all_first_words(user):
    """The first words of half a million coordinates: ties are rare, and have to be looked for."""
    return cipher_words.words(MATERIAL, 0, 2**19, 0, user, STREAM).astype(np.uint64)


@pytest.mark.parametrize(("levels", "budget"), [(2, 8.0), (3, 8.0), (16, 8.0), (200, 50.0), (256, 50.0)])
def test_draws_whose_rounding_ties_are_the_reference(levels, budget):
    """The update lies in the middle of a step of the first bits, so that the further bits go both ways."""
    user, clip, fraction = 3, 1.0, 1000
    update = np.float32(2 * (levels // 2 - 1 + (fraction + 0.5) / 2**ROUNDING_BITS) / (levels - 1) - 1)
    table = acceptance_thresholds(np.array([budget]), levels)
    ties = np.flatnonzero(all_first_words(user) >> np.uint64(8) & np.uint64(2**ROUNDING_BITS - 1) == fraction)[:120]
    levels_taken = set()
    for c in ties.tolist():
        code, tied, _ = reference(update, table[0].tolist(), clip, user, c)
        assert tied
        assert drawn([[update]], table, clip, user, c)[0, 0] == code
        levels_taken.add(rounded(update, user, c, levels, clip)[0])
    assert levels_taken == {levels // 2 - 1, levels // 2}


@pytest.mark.parametrize(("levels", "budget"), [(2, 1.0), (3, 8.0), (16, 0.5), (200, 2.0), (256, 8.0)])
def test_draws_whose_leading_bits_tie_are_the_reference(levels, budget):
    """The update is at level 0, so that a proposal is its own distance."""
    user, clip = 7, 1.0
    table = acceptance_thresholds(np.array([budget]), levels)
    words = all_first_words(user)
    proposals = words & np.uint64(2 ** (levels - 1).bit_length() - 1)
    leading = np.append(table[0] >> np.uint64(64 - LEADING_BITS), np.uint64(2**LEADING_BITS))
    ties = words >> np.uint64(32 - LEADING_BITS) == leading[np.minimum(proposals, levels).astype(int)]
    accepted = []
    for c in np.flatnonzero(ties)[:40].tolist():
        codes = drawn(np.full((1, 5), -2.0), table, clip, user, c - 2)[0]
        expected = [reference(-2.0, table[0].tolist(), clip, user, c - 2 + i) for i in range(5)]
        assert expected[2][2]  # the reference saw the tie, too
        assert codes.tolist() == [code for code, _, _ in expected]
        accepted.append(codes[2] == proposals[c])
    assert 0 < sum(accepted) < len(accepted)


@pytest.mark.parametrize("levels", sampled([2, 3, 16, 200, 256], keep=3))
def test_a_number_equal_to_its_threshold_is_accepted_and_one_above_is_not(levels):
    """Tables made so that attempt a decides by its last bit; to a = 8, past the seven that share a block of ties."""
    turned, clip, last = Counter(), 1.0, 2**64 - 1
    # Of few levels, one that was not proposed before is soon none.
    most = 6 if levels < 16 else 9
    for c in range(600 * most):
        a = c % most
        *earlier, (k, number) = islice(attempts(0, c, levels), a + 1)
        # The update is at level 0. What was proposed before must not be accepted, anything new afterwards is.
        if k >= levels or number == 0 or any(other == k and before <= number for other, before in earlier):
            continue
        codes = []
        for threshold in (number, number - 1):
            row = np.full((1, levels), last, dtype=np.uint64)
            row[0, [other for other, _ in earlier if other < levels]] = 0
            row[0, k] = threshold
            codes.append(int(drawn([[-2.0]], row, clip, 0, c)[0, 0]))
            assert codes[-1] == reference(-2.0, row[0].tolist(), clip, 0, c)[0]
        turned[a] += codes[0] == k != codes[1]
    assert len(turned) == most
    assert min(turned.values()) >= 1


@pytest.mark.parametrize("levels", [2, 16, 200, 256])
def test_splitting_a_block_changes_nothing(levels):
    users, width, clip = 5, 203, 0.3
    table = acceptance_thresholds(np.array([0.1, 1.0, 3.0, 8.0, 50.0]), levels)
    updates = updates_of_all_kinds(users, width, clip, seed=1)
    whole = drawn(updates, table, clip, 40, 13)
    rng = np.random.default_rng(levels)
    for _ in range(20):
        cuts = [0, *sorted(rng.choice(width + 1, 6).tolist()), width]
        parts = [drawn(updates[:, a:b], table, clip, 40, 13 + a) for a, b in pairwise(cuts)]
        assert (np.concatenate(parts, axis=1) == whole).all()
    single = [drawn(updates[u : u + 1], table[u : u + 1], clip, 40 + u, 13) for u in range(users)]
    assert (np.concatenate(single) == whole).all()
    assert (drawn(updates, table, clip, 41, 13) != whole).any()
    assert (drawn(updates, table, clip, 40, 14) != whole).any()


def chi_square_p_value(codes, law):
    """Of one sample against a law of levels; levels expected fewer than 25 times are counted as one."""
    expected = law * codes.size
    observed = np.bincount(codes.ravel(), minlength=len(law))
    rare = expected < 25
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    return chi2.sf(((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum(), len(expected) - 1)


def report_law(budget, levels, position):
    """Law of a report whose update lies at ``position`` in [0, K - 1]: a mixture of the two levels next to it."""
    j = min(int(position), levels - 2)
    lower, upper = level_probabilities(np.array([budget]), levels)[0, j : j + 2]
    return (j + 1 - position) * lower + (position - j) * upper


LAWS = [
    (2, 0.5, 0.9), (3, 1.0, 0.0), (16, 1.0, 0.57), (200, 2.0, 0.25), (16, 3.0, 1.0),
    (200, 60.0, 0.6), (256, 0.5, 0.85), (256, 1.0, 1.0), (256, 8.0, 0.4985),
]  # fmt: skip


@pytest.mark.parametrize(("levels", "budget", "share"), sampled(LAWS, keep=3))
def test_draws_follow_the_law_and_the_test_sees_ten_percent(levels, budget, share):
    n, clip = 2_000_000 if budget < 10 else 300_000, 0.1
    updates = np.full((1, n), clip * (2 * share - 1))
    law = report_law(budget, levels, share * (levels - 1))
    right, weak, strong = (
        chi_square_p_value(drawn(updates, acceptance_thresholds(np.array([factor * budget]), levels), clip), law)
        for factor in (1.0, 0.9, 1.1)
    )
    assert right > 1e-6
    assert max(weak, strong) < 1e-9


def test_the_law_test_sees_rounding_to_the_nearest_level():
    """Half a step from a level, at a budget that shows it: without random rounding the mixture is missed."""
    levels, budget, n = 16, 8.0, 1_000_000
    table = acceptance_thresholds(np.array([budget]), levels)
    law = report_law(budget, levels, 7.4)
    assert chi_square_p_value(drawn(np.full((1, n), 2 * 7.4 / 15 - 1), table, 1.0), law) > 1e-6
    assert chi_square_p_value(drawn(np.full((1, n), 2 * 7.0 / 15 - 1), table, 1.0), law) < 1e-9


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (1, 20), (2, 40)])
def test_updates_that_are_not_finite_are_reported(value, where):
    updates = np.zeros((3, 41), dtype=np.float32)
    table = acceptance_thresholds(np.ones(3), 16)
    codes = np.empty(updates.shape, dtype=np.uint8)
    address = (0, 0, np.uint64(STREAM))
    updates[where] = np.finfo(np.float32).max
    assert draw_codes(updates, table, 0.1, address, SOURCE.key, codes)
    updates[where] = value
    assert not draw_codes(updates, table, 0.1, address, SOURCE.key, codes)
