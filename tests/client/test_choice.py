"""Which b coordinates are kept: exactly the largest, and a fair choice among the tied.

Every statistical limit has a false-alarm rate of 1e-6; beside each test stands a wrong rule that it rejects.
"""

from itertools import combinations, pairwise

import cipher_words
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels import sampled
from scipy.stats import chi2

from apes.client.draws.choice import keep_any, keep_largest, put_kept
from apes.mathematics.randomness import Purpose, SimulationSource

SOURCE = SimulationSource(2**33 + 5, 3)
STREAM = SOURCE.stream(Purpose.CHOICE)
MATERIAL = SOURCE.run_key.material
LARGEST = {np.uint8: 255, np.uint32: 2**31 - 1}
exact = settings(derandomize=True, deadline=None, max_examples=80)
both_types = pytest.mark.parametrize("dtype", [np.uint8, np.uint32])


def kept_of(sizes, b, first_user=0, first=0):
    kept = np.ones(sizes.shape, dtype=np.bool_)
    keep_largest(sizes, b, (first_user, first, STREAM), SOURCE.key, kept)
    return kept


def any_of(shape, b, first_user=0, first=0):
    kept = np.ones(shape, dtype=np.bool_)
    keep_any(b, (first_user, first, STREAM), SOURCE.key, kept)
    return kept


@exact
@given(seed=st.integers(0, 10**6), width=st.integers(1, 70), part=st.floats(0, 1), bits=st.integers(0, 31))
@both_types
def test_exactly_b_are_kept_and_they_are_the_largest(dtype, seed, width, part, bits):
    """From sizes that are all equal (0 bits differ) to sizes that all differ, at the lower and at the upper end."""
    rng, b = np.random.default_rng(seed), max(1, round(part * width))
    spread = min(2**bits, LARGEST[dtype] + 1)
    sizes = rng.integers(0, spread, (6, width)).astype(dtype)
    sizes[3:] = LARGEST[dtype] - sizes[3:]
    for row, kept in zip(sizes, kept_of(sizes, b), strict=True):
        assert kept.sum() == b
        assert b == width or row[kept].min() >= row[~kept].max()


def test_sizes_that_differ_in_one_bit_are_told_apart():
    """Every digit of the search, its first and its last bit."""
    for bit in range(31):
        for base in (0, 2**31 - 1):
            sizes = np.full((1, 9), base, dtype=np.uint32)
            sizes[0, 4] ^= np.uint32(1 << bit)
            kept = kept_of(sizes, 1 if base == 0 else 8)[0]
            assert kept[4] == (base == 0)
            assert kept.sum() == (1 if base == 0 else 8)


def reference(sizes, b, user, first):
    """Follow the text of `apes.client.draws.choice` by sorting, in Python's integers."""
    cut = sorted(sizes, reverse=True)[b - 1]
    kept = [size > cut for size in sizes]
    tied = [i for i, size in enumerate(sizes) if size == cut]
    for m, i in enumerate(tied):
        word = cipher_words.word(MATERIAL, first + m, 0, user, STREAM)
        kept[i] = word * (len(tied) - m) < (b - sum(kept)) << 32
    return kept


@pytest.mark.parametrize("first", [0, 1, 255, 4007])
@both_types
def test_choices_are_the_reference_bit_for_bit(dtype, first):
    rng = np.random.default_rng(first)
    for distinct in (1, 3, 40):
        sizes = rng.integers(0, distinct, (5, 61)).astype(dtype)
        for b in (1, 2, 30, 60, 61):
            expected = [reference(row, b, 900 + u, first) for u, row in enumerate(sizes.tolist())]
            assert kept_of(sizes, b, 900, first).tolist() == expected


def test_any_is_the_largest_of_equal_sizes():
    for first in range(5):
        for b in (1, 7, 30):
            assert (any_of((6, 30), b, 3, first) == kept_of(np.zeros((6, 30), dtype=np.uint8), b, 3, first)).all()


@pytest.mark.parametrize("choose", [kept_of, lambda sizes, b, user: any_of(sizes.shape, b, user)], ids=["top", "any"])
def test_splitting_the_users_changes_nothing(choose):
    rng = np.random.default_rng(8)
    sizes = rng.integers(0, 4, (30, 50)).astype(np.uint8)
    whole = choose(sizes, 20, 70)
    for _ in range(10):
        cuts = [0, *sorted(rng.choice(31, 4).tolist()), 30]
        parts = [choose(sizes[a:b], 20, 70 + a) for a, b in pairwise(cuts) if a < b]
        assert (np.concatenate(parts) == whole).all()
    assert (choose(sizes, 20, 71) != whole).any()


def test_seed_and_round_change_the_choice():
    chosen = set()
    for source in (
        SimulationSource(1, 1),
        SimulationSource(1, 2),
        SimulationSource(2, 1),
        SimulationSource(1 + 2**32, 1),
    ):
        kept = np.empty((1, 60), dtype=np.bool_)
        keep_any(30, (0, 0, source.stream(Purpose.CHOICE)), source.key, kept)
        chosen.add(kept.tobytes())
    assert len(chosen) == 4


def unevenness(kept, b):
    """Chi-square of how often each subset of b places is kept, over its limit: above 1 is uneven."""
    subsets = [sum(1 << i for i in subset) for subset in combinations(range(kept.shape[1]), b)]
    counts = np.bincount(kept @ (1 << np.arange(kept.shape[1])), minlength=1 << kept.shape[1])
    assert counts[subsets].sum() == kept.shape[0]
    expected = kept.shape[0] / len(subsets)
    return ((counts[subsets] - expected) ** 2).sum() / expected / chi2.isf(1e-6, len(subsets) - 1)


def favouring(tied, b, users, favour):
    """Selection sampling that keeps the first tied place with ``favour`` times its probability."""
    rng = np.random.default_rng(1)
    kept = np.zeros((users, tied), dtype=np.bool_)
    for m in range(tied):
        share = (b - kept.sum(axis=1)) / (tied - m)
        kept[:, m] = rng.random(users) < share * (favour if m == 0 else 1)
    return kept


@pytest.mark.parametrize(("tied", "b"), sampled([(5, 2), (2, 1), (6, 3), (7, 6)], keep=1))
def test_ties_are_a_fair_choice_among_subsets(tied, b):
    users = 200_000
    assert unevenness(any_of((users, tied), b), b) <= 1
    # Beside larger and smaller sizes, at places that differ from user to user.
    rng = np.random.default_rng(tied)
    for dtype in (np.uint8, np.uint32):
        sizes = np.tile(np.array([9, 7, *[5] * tied, 3], dtype=dtype), (users, 1))
        order = rng.permuted(np.tile(np.arange(tied + 3), (users, 1)), axis=1)
        kept = kept_of(np.take_along_axis(sizes, order, axis=1), b + 2, first_user=users)
        among_tied = np.take_along_axis(sizes, order, axis=1) == 5
        assert unevenness(kept[among_tied].reshape(users, tied), b) <= 1
    assert unevenness(favouring(tied, b, users, 1.0), b) <= 1
    assert unevenness(favouring(tied, b, users, 0.9), b) > 1
    assert unevenness(np.tile(np.arange(tied) < b, (users, 1)), b) > 1  # the first places, always


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_kept_values_go_over_the_padding(dtype):
    rng = np.random.default_rng(4)
    values, padding = rng.integers(0, 256, (2, 9, 77)).astype(dtype)
    kept = rng.random((9, 77)) < 0.3
    expected = np.where(kept, values, padding)
    put_kept(values, kept, padding)
    assert (padding == expected).all()
