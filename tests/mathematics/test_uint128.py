"""128-bit arithmetic in pairs of words, against Python's integers: every result, every carry."""

import random
from itertools import product

import numba
import numpy as np
import pytest

from apes.mathematics.uint128 import add, divide_small, fraction_product, mul_high, subtract, times_word

WORD = 1 << 64
UNIT = 1 << 127
MASK = WORD - 1

# Where carries start, stop and run through: around 0, the half words, the words and the unit 2^127.
EDGES = sorted({(1 << bit) + step for bit in (0, 31, 32, 63, 64, 95, 96, 126, 127) for step in (-1, 0, 1)} | {0})
UINT128_EDGES = [*EDGES, WORD * WORD - 1, WORD * WORD - WORD, (WORD * WORD - 1) // 3]
WORD_EDGES = [value for value in EDGES if value < WORD] + [MASK, MASK - 1, MASK // 3]


def samples(count, seed):
    """Random 128-bit numbers of all lengths: uniform ones would never have a short high word."""
    draw = random.Random(seed)
    return [draw.getrandbits(128) >> draw.randrange(128) for _ in range(count)]


def pairs(limit, seed):
    values = [value for value in UINT128_EDGES if value <= limit]
    sampled = [value for value in samples(6000, seed) if value <= limit]
    return list(product(values, values)) + list(zip(sampled[::2], sampled[1::2], strict=False))


def words(value):
    return np.uint64(value >> 64), np.uint64(value & MASK)


def joined(parts):
    total = 0
    for part in parts:
        total = (total << 64) | int(part)
    return total


@numba.njit
def upper_product(a, b):
    """mul_high is an intrinsic: it exists inside compiled code only."""
    return mul_high(a, b)


def test_mul_high_is_the_upper_word_of_the_product():
    draws = random.Random(1)
    cases = list(product(WORD_EDGES, WORD_EDGES))
    cases += [(draws.getrandbits(64), draws.getrandbits(64)) for _ in range(2000)]
    for a, b in cases:
        assert int(upper_product(np.uint64(a), np.uint64(b))) == a * b >> 64


@pytest.mark.parametrize(("operation", "sign"), [(add, 1), (subtract, -1)], ids=["add", "subtract"])
def test_sums_and_differences_wrap_at_two_to_the_128(operation, sign):
    carried = 0
    for a, b in pairs(WORD * WORD, seed=2):
        assert joined(operation(*words(a), *words(b))) == (a + sign * b) % (WORD * WORD)
        carried += (a & MASK) + sign * (b & MASK) not in range(WORD)
    assert carried > 500  # carries or borrows from the low word: the branch worth testing


def test_divide_small_is_the_floor_of_the_quotient():
    draws = random.Random(3)
    divisors = [1, 2, 3, 7, 254, 255, (1 << 31) - 1]
    cases = list(product(UINT128_EDGES, divisors))
    cases += [(value, draws.randrange(1, 1 << draws.randrange(1, 32))) for value in samples(3000, seed=4)]
    for value, divisor in cases:
        assert joined(divide_small(*words(value), np.uint64(divisor))) == value // divisor


@pytest.mark.parametrize("up", [False, True])
def test_fraction_product_rounds_the_way_it_is_told(up):
    inexact = 0
    for a, b in pairs(UNIT, seed=5):
        exact = -(-a * b // UNIT) if up else a * b // UNIT
        assert joined(fraction_product(*words(a), *words(b), up)) == exact
        inexact += a * b % UNIT != 0
    assert inexact > 500


def test_fraction_product_rounds_up_for_one_lost_bit_wherever_it_is():
    # 2^i 2^j / 2^127 with i + j < 127 is all remainder: one bit, in the low or in the second word.
    for i, j in product(range(127), range(127)):
        if i + j < 127:
            factors = (*words(1 << i), *words(1 << j))
            assert joined(fraction_product(*factors, True)) == 1
            assert joined(fraction_product(*factors, False)) == 0


def test_times_word_is_the_exact_product_in_three_words():
    draws = random.Random(6)
    cases = list(product(WORD_EDGES, UINT128_EDGES))
    cases += [(draws.getrandbits(64) >> draws.randrange(64), value) for value in samples(3000, seed=7)]
    for a, value in cases:
        parts = times_word(np.uint64(a), *words(value))
        assert len(parts) == 3
        assert joined(parts) == (a + 1) * value
