"""The shuffler's loops: counting against bincount, and uniform permutations.

Limits of the statistical tests have a false-alarm rate of 1e-6; biased shuffles show that they can fail.
"""

from itertools import permutations

import cipher_words
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from apes.errors import ProtocolError
from apes.mathematics.randomness import Purpose, SimulationSource
from apes.shuffler.counts import LevelCounts, count_bits, count_levels
from apes.shuffler.shuffle import permute_rows

SOURCE = SimulationSource(8, 1)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    users=st.integers(1, 40),
    width=st.sampled_from([1, 2, 63, 127, 128, 129, 300]),
    levels=st.sampled_from([2, 3, 16, 255, 256]),
    seed=st.integers(0, 99),
)
def test_counts_are_bincounts(users, width, levels, seed):
    codes = np.random.default_rng(seed).integers(0, levels, (users, width)).astype(np.uint8)
    counts = np.full((width, levels), 7, dtype=np.uint16)
    expected = np.array([np.bincount(column, minlength=levels) for column in codes.T])
    assert count_levels(codes, counts)
    assert (counts == expected + 7).all()
    if levels == 2:
        ones = np.full(width, 7, dtype=np.uint16)
        assert count_bits(codes, ones)
        assert (ones == expected[:, 1] + 7).all()


@pytest.mark.parametrize("users", [31, 32, 254, 255, 256, 510, 511, 1024])
@pytest.mark.parametrize("levels", [5, 256])
def test_everybody_on_one_level(users, levels):
    """More than a byte of the tile would hold."""
    codes = np.full((users, 130), levels - 1, dtype=np.uint8)
    counts = np.full((130, levels), 7, dtype=np.uint16)
    assert count_levels(codes, counts)
    assert (counts[:, -1] == users + 7).all()
    assert (counts[:, :-1] == 7).all()


@pytest.mark.parametrize("place", [(0, 0), (4, 99), (2, 64)])
@pytest.mark.parametrize("level", [5, 255])
def test_a_level_out_of_range_counts_nothing(place, level):
    codes = np.full((5, 100), 4, dtype=np.uint8)
    codes[place] = level
    counts = np.zeros((100, 5), dtype=np.uint16)
    assert not count_levels(codes, counts)
    assert not counts.any()


@pytest.mark.parametrize("bits", [[2, 0], [1, 255], [0, 4]])
def test_a_byte_that_is_not_a_bit_counts_nothing(bits):
    counts = np.zeros(70, dtype=np.uint16)
    assert not count_bits(np.repeat(np.array(bits, dtype=np.uint8)[:, None], 70, axis=1), counts)
    assert not counts.any()


def test_as_many_bits_as_a_tally_holds():
    counts = np.zeros(3, dtype=np.uint16)
    assert count_bits(np.ones((65535, 3), dtype=np.uint8), counts)
    assert (counts == 65535).all()


@pytest.mark.parametrize("levels", [2, 3])
def test_counts_of_parts_of_the_coordinates(levels):
    """At any moment every coordinate's counts add up to those who reported it."""
    counts, codes = LevelCounts(10, levels), np.random.default_rng(1).integers(0, levels, (9, 10)).astype(np.uint8)
    counts.add(codes[:4, :6])
    counts.add(codes[4:], 0)
    expected = [np.bincount(codes[:, c] if c < 6 else codes[4:, c], minlength=levels) for c in range(10)]
    assert (counts.total() == expected).all()
    counts.add(codes[:4, 6:], 6)
    everybody = np.array([np.bincount(column, minlength=levels) for column in codes.T])
    assert (counts.total() == everybody).all()
    counts.join(everybody)
    assert (counts.total() == 2 * everybody).all()
    everybody[3, 0] += 1
    with pytest.raises(ProtocolError, match="not of the same users in every coordinate"):
        counts.join(everybody)


def test_two_levels_are_one_integer_per_coordinate():
    counts = LevelCounts(100_000, 2)
    counts.add(np.ones((3, 100_000), dtype=np.uint8))
    (tally,) = counts._tallies
    assert (counts._counts.nbytes, tally.counts.nbytes) == (800_000, 200_000)


def permuted(rows, n, first=0, source=SOURCE):
    values = np.tile(np.arange(n, dtype=np.uint8), (rows, 1))
    permute_rows(values, first, source.stream(Purpose.SHUFFLE), source.key)
    return values


def naive_shuffle(rows, n):
    """The classic mistake: swap every place with any place."""
    rng = np.random.default_rng(1)
    values = np.tile(np.arange(n, dtype=np.uint8), (rows, 1))
    everyone = np.arange(rows)
    for i in range(n):
        j = rng.integers(0, n, rows)
        here, there = values[:, i].copy(), values[everyone, j].copy()
        values[:, i] = there
        values[everyone, j] = here
    return values


def order_distance(values):
    """Chi-square of all n! orders being equally likely, and its limit."""
    rows, n = values.shape
    digits = n ** np.arange(n)
    names = np.array(list(permutations(range(n)))) @ digits
    counts = np.bincount(values @ digits, minlength=n**n)[names]
    assert counts.sum() == rows
    expected = rows / names.size
    return ((counts - expected) ** 2).sum() / expected, chi2.isf(1e-6, names.size - 1)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_orders_are_equally_likely(n):
    rows = 100_000
    distance, limit = order_distance(permuted(rows, n))
    assert distance <= limit
    if n > 2:  # of two values, the naive shuffle is uniform as well
        distance, limit = order_distance(naive_shuffle(rows, n))
        assert distance > limit
    biased = permuted(rows, n)
    biased[: rows // 20] = np.arange(n)  # one row in twenty is left alone
    distance, limit = order_distance(biased)
    assert distance > limit


def place_distance(places, n):
    counts = np.bincount(places, minlength=n)
    return ((counts - places.size / n) ** 2).sum() * n / places.size


@pytest.mark.parametrize("n", [7, 64, 255])
def test_every_value_lands_everywhere(n):
    values = permuted(50_000, n)
    assert (np.sort(values, axis=1) == np.arange(n)).all()
    limit = chi2.isf(1e-6, n - 1)
    for user in (0, n // 2, n - 1):
        assert place_distance(np.argmax(values == user, axis=1), n) <= limit
    stuck = np.argmax(values == 0, axis=1)
    stuck[: stuck.size // 50] = 0  # one in fifty stays where it was
    assert place_distance(stuck, n) > limit


@pytest.mark.parametrize("n", [2, 129, 2048, 5000])
def test_orders_are_those_of_the_stream(n):
    """Fisher-Yates in integers: place i is swapped with the place that (i + 1) times its number / 2^64 says."""
    values = np.tile(np.arange(n, dtype=np.float32), (2, 1))
    stream = SOURCE.stream(Purpose.SHUFFLE)
    permute_rows(values, 70, stream, SOURCE.key)
    for row, permuted_row in enumerate(values):
        expected = list(range(n))
        numbers = cipher_words.numbers(SOURCE.run_key.material, 0, n, 0, 70 + row, int(stream)).tolist()
        for i in range(n - 1, 0, -1):
            j = (i + 1) * numbers[i] >> 64
            expected[i], expected[j] = expected[j], expected[i]
        assert permuted_row.tolist() == expected


def test_neighbouring_rows_are_independent():
    n, rows = 8, 100_000
    values = permuted(rows, n)
    limit = chi2.isf(1e-6, n * n - 1)
    for user, other in ((0, 0), (0, 1), (7, 3)):
        here, there = np.argmax(values[::2] == user, axis=1), np.argmax(values[1::2] == other, axis=1)
        assert place_distance(here * n + there, n * n) <= limit
    follows = np.argmax(values[::2] == 0, axis=1)
    copied = np.where(np.arange(follows.size) % 50 == 0, follows, np.argmax(values[1::2] == 0, axis=1))
    assert place_distance(follows * n + copied, n * n) > limit  # one row in fifty repeats its neighbour


def test_rows_are_addressed_by_their_coordinate():
    whole = permuted(30, 11)
    pieces = [permuted(10, 11, first) for first in (0, 10, 20)]
    assert (np.vstack(pieces) == whole).all()
    assert (permuted(30, 11, source=SimulationSource(8, 2)) != whole).any()
    assert (permuted(30, 11, source=SimulationSource(9, 1)) != whole).any()


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_permute(n):
    assert permuted(3, n).tolist() == [list(range(n))] * 3
