"""Binomial laws against sums in 40 digits, and at their ends."""

import mpmath
import numpy as np
import pytest

from apes.mathematics.binomial import binomial_cdf, binomial_pmf, binomial_sf, binomial_window

LAWS = [(n, p) for n in (1, 2, 15, 16, 17, 300) for p in (0.5, 0.3, 1e-3, 0.999, 1e-9)]


def exact(n, p):
    with mpmath.workdps(40):
        p = mpmath.mpf(p)
        return [mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize(("n", "p"), LAWS)
def test_against_40_digits(n, p):
    law, k = exact(n, p), np.arange(n + 1, dtype=np.float64)
    # What is below 1e-300 has fewer digits.
    common = [i for i in range(n + 1) if law[i] > 1e-290]
    np.testing.assert_allclose(binomial_pmf(k, n, p)[common], [float(law[i]) for i in common], rtol=1e-12)
    sums = [float(mpmath.fsum(law[: i + 1])) for i in common]
    np.testing.assert_allclose(binomial_cdf(k, n, p)[common], sums, rtol=1e-12)
    more = [float(mpmath.fsum(law[i + 1 :])) for i in common]
    np.testing.assert_allclose([binomial_sf(i, n, p) for i in common], more, rtol=1e-12, atol=1e-290)


@pytest.mark.parametrize(("n", "k", "p"), [(10**4, 5300, 0.5), (10**6, 300_500, 0.3), (10**6, 5, 1e-6)])
def test_many_trials(n, k, p):
    with mpmath.workdps(60):
        q = mpmath.mpf(p)
        value = mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k)
    assert float(binomial_pmf(np.array(float(k)), n, p) / value) == pytest.approx(1, abs=1e-12)


def test_ends_and_beyond():
    k = np.array([-1.0, 0.0, 3.0, 4.0])
    assert binomial_pmf(k, 3, 0.0).tolist() == [0, 1, 0, 0]
    assert binomial_pmf(k, 3, 1.0).tolist() == [0, 0, 1, 0]
    assert binomial_pmf(k, 3, 0.5).tolist() == pytest.approx([0, 0.125, 0.125, 0], rel=1e-14)
    assert binomial_cdf(k, 3, 0.5).tolist() == pytest.approx([0, 0.125, 1, 1], rel=1e-14)
    assert [binomial_sf(i, 3, 0.5) for i in (-1, 0, 2, 3)] == pytest.approx([1, 0.875, 0.125, 0], rel=1e-14)
    assert binomial_pmf(np.zeros(1), 0, 0.5).tolist() == [1]
    # One law for each number of trials.
    assert binomial_pmf(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).tolist() == pytest.approx(
        [0.5, 0.5], rel=1e-14
    )


@pytest.mark.parametrize("tail", [1e-17, 1e-9, 0.1])
@pytest.mark.parametrize(("n", "p"), [(50, 0.3), (1000, 0.5), (7, 1e-9), (0, 0.5)])
def test_windows(tail, n, p):
    low, high = binomial_window(tail, n, p)
    assert float(binomial_cdf(low - 1, n, p)) < tail <= max(float(binomial_cdf(low, n, p)), tail)
    assert binomial_sf(high, n, p) <= tail
    assert high == 0 or binomial_sf(high - 1, n, p) > tail
