"""Logarithm and exponential against mpmath, over the whole range, and where the reduction changes its exponent."""

import mpmath
import numpy as np
import pytest
from numba import njit

from apes.mathematics.elementary import exp_both, exp_negative, log

N = 4000
# As `compiled` does it, but not kept on disk: what is kept goes by this file, and would outlive a change of the other.
compiled = njit(nogil=True, error_model="numpy")


@compiled
def logs(x, out):
    for i in range(x.size):
        out[i] = log(x[i])


@compiled
def exponentials(x, up, down):
    for i in range(x.size):
        up[i], down[i] = exp_both(x[i])


@compiled
def negatives(x, out):
    for i in range(x.size):
        out[i] = exp_negative(x[i])


def around(points, steps=200):
    """The numbers next to each point, on both sides."""
    bits = np.asarray(points, dtype=np.float64).view(np.int64)
    return (bits[:, None] + np.arange(-steps, steps + 1)).ravel().view(np.float64)


def relative_error(measured, exact, x):
    """Largest relative error; an exact 0 must be met."""
    with mpmath.workprec(150):
        exact = [exact(mpmath.mpf(float(value))) for value in x]
        return max(
            float(abs(mpmath.mpf(float(got)) - right) / (abs(right) if right else 1))
            for got, right in zip(measured, exact, strict=True)
        )


rng = np.random.default_rng(4)
LOGARITHMS = {
    "every exponent": 2.0 ** rng.uniform(-1022, 1024, N),
    "ends": np.array([2.0**-1022, np.finfo(np.float64).max, 1.0]),
    "tails of a uniform number": 2.0 ** rng.uniform(-54, 0, N),
    "uniform": rng.random(N) + 2.0**-60,
    "next to 1": 1 + rng.choice([-1, 1], N) * 2.0 ** rng.uniform(-52, -1, N),
    "at the cuts": around([1.0, np.sqrt(0.5), np.sqrt(2), 0.25, 2.0**-53]),
}
EXPONENTIALS = {
    "every exponent": rng.uniform(-700, 700, N),
    "small": rng.choice([-1, 1], N) * 2.0 ** rng.uniform(-60, 0, N),
    "at the cuts": around(np.log(2) * np.array([-700.5, -1.5, -0.5, 0.5, 1.0, 1.5, 20.5, 1000.5])),
    "ends": np.array([-700.0, -0.0, 0.0, 700.0]),
}


@pytest.mark.parametrize("x", LOGARITHMS.values(), ids=LOGARITHMS)
def test_logarithm(x):
    measured = np.empty(x.size)
    logs(x, measured)
    assert relative_error(measured, mpmath.log, x) <= 2.0**-52


@pytest.mark.parametrize("x", EXPONENTIALS.values(), ids=EXPONENTIALS)
def test_exponentials(x):
    up, down = np.empty(x.size), np.empty(x.size)
    exponentials(x, up, down)
    assert relative_error(up, mpmath.exp, x) <= 2.0**-50
    assert relative_error(down, lambda value: mpmath.exp(-value), x) <= 2.0**-50


@pytest.mark.parametrize("least", [-87.0, -1.0, -1e-4])
def test_exponentials_in_float32(least):
    x = np.append(rng.uniform(least, 0, N), [least, -0.0, 0.0]).astype(np.float32)
    measured = np.empty_like(x)
    negatives(x, measured)
    assert relative_error(measured, mpmath.exp, x) <= 2.0**-22


def test_exponentials_in_float32_past_their_range():
    measured = np.empty(5, dtype=np.float32)
    negatives(np.float32([-87.5, -1e30, -np.inf, np.nan, 0]), measured)
    assert measured[:3] == pytest.approx(np.exp(-87.0), rel=2.0**-22)
    assert np.isnan(measured[3])
    assert measured[4] == 1


@pytest.mark.parametrize("width", range(1, 20))
def test_an_element_is_the_same_bits_wherever_it_stands(width):
    """In a vector or in what is left over at the end of a loop."""
    x = LOGARITHMS["uniform"][:64]
    whole, part = np.empty(64), np.empty(width)
    logs(x, whole)
    logs(x[64 - width :].copy(), part)
    assert part.tobytes() == whole[64 - width :].tobytes()
    both, parts = np.empty((2, 64)), np.empty((2, width))
    exponentials(x, both[0], both[1])
    exponentials(x[64 - width :].copy(), parts[0], parts[1])
    assert parts.tobytes() == both[:, 64 - width :].tobytes()
    narrow = -x.astype(np.float32)
    whole, part = np.empty_like(narrow), np.empty(width, dtype=np.float32)
    negatives(narrow, whole)
    negatives(narrow[64 - width :].copy(), part)
    assert part.tobytes() == whole[64 - width :].tobytes()
