"""The ramp under a sum: a few low frequencies give what all of them give, and the closed form is right."""

from itertools import product

import mpmath
import numpy as np
import pytest
from levels import sampled

from apes.accounting.certificate import spectrum
from apes.accounting.certificate.curve import hiding_curve
from apes.accounting.certificate.divergence import excess
from apes.accounting.certificate.spectrum import RampSpectrum, ramp_transform


@pytest.mark.parametrize(
    ("length", "rate"), sampled(list(product([16, 1000], [0.0, 1e-9, 3e-7, 1e-5, 1e-3, 0.1, 2.0])), keep=5)
)
def test_closed_form_of_the_ramp(rate, length):
    angles = np.pi / length * np.array([0, 1, 2, 7, length - 1])
    values, errors = ramp_transform(rate, angles, length)
    with mpmath.workdps(40):
        for angle, value, error in zip(angles, values, errors, strict=True):
            z = mpmath.exp(-mpmath.mpc(rate, float(angle)))
            exact = mpmath.fsum(j * z**j for j in range(length))
            assert abs(exact - mpmath.mpc(complex(value))) <= error
            assert error <= 1e-7 * max(abs(exact), 1)


@pytest.mark.parametrize(("budget", "users", "levels"), [(1.0, 10_000, 256), (3.0, 200_000, 256), (0.2, 50_000, None)])
def test_low_frequencies_are_enough(monkeypatch, budget, users, levels):
    curve = hiding_curve(budget, np.full(users, budget), 1e-8, levels)
    sizes = curve.sizes[curve.sizes > users // 100]
    for t in (0.0, curve.epsilon(1e-3), curve.epsilon(1e-8), curve.epsilon(1e-40)):
        low = excess(curve.pair, t, sizes, 192)
        with monkeypatch.context() as patched:
            patched.setattr(spectrum, "_SHORT", 1 << 40)
            full = excess(curve.pair, t, sizes, 192)
        np.testing.assert_allclose(low, full, rtol=1e-7)


def _law(rng, size):
    weights = rng.dirichlet(np.full(size, 0.3))
    places = np.arange(size) - round(float(weights @ np.arange(size)))
    return places, weights


def test_frequencies_left_out_are_nothing():
    rng = np.random.default_rng(7)
    left = 0
    for _ in range(100):
        places, weights = _law(rng, int(rng.integers(2, 100)))
        n, m = 1 << 16, int(10 ** rng.uniform(1, 6))
        last = RampSpectrum(places, weights, 0.01, n)._last_frequency(m)
        if last == 0:
            continue
        left += 1
        moduli = np.abs(np.fft.rfft(np.bincount(places % n, weights, n)))
        assert m * np.log(moduli[last + 1 :].max()) < -59
    assert left > 20


def test_a_law_on_every_second_place_needs_the_high_frequencies():
    """There |F| comes back to 1, and the low frequencies alone would give half of the truth."""
    places, weights = np.array([-2, 0, 2]), np.array([0.25, 0.5, 0.25])
    assert RampSpectrum(places, weights, 0.01, 1 << 16)._last_frequency(10**5) == 0


def test_small_sums_against_enumeration():
    rng = np.random.default_rng(3)
    for _ in range(30):
        places, weights = _law(rng, 6)
        law, m, rate = np.ones(1), int(rng.integers(2, 30)), float(rng.uniform(0, 0.5))
        for _ in range(m):
            law = np.convolve(law, weights)
        sums = m * places[0] + np.arange(law.size)
        exact = float(law @ np.where(sums > 0, sums * np.exp(-rate * np.maximum(sums, 0)), 0))
        bound = float(RampSpectrum(places, weights, rate, 1 << 10).expectations(np.array([m]))[0])
        assert exact * (1 - 1e-12) <= bound <= exact * (1 + 1e-9) + 1e-11
