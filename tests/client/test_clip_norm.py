"""The bound on an update's norm: kept in integers, whatever the update is."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from levels import sampled

from apes.client.clip import GRID, MOST_COORDINATES, clip_norm, clip_updates, norm_limit

HUGE = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).smallest_subnormal)


def steps_of(update, clip, norm):
    update = np.asarray(update, dtype=np.float32)
    steps = np.empty(update.size, dtype=np.int32)
    clip_norm(update, clip, norm_limit(norm, clip), steps)
    return steps


def is_bounded(update, clip, norm):
    """Whether |C k / N| <= min(C, |x|) for every coordinate, with the sign of x, and |C k / N|_2 <= R: exactly."""
    steps = steps_of(update, clip, norm).astype(object)
    unit = Fraction(clip) / GRID
    values = [unit * int(k) for k in steps]
    inputs = [Fraction(float(x)) for x in np.asarray(update, dtype=np.float32)]
    return (
        sum(value**2 for value in values) <= Fraction(norm) ** 2
        and all(abs(value) <= min(Fraction(clip), abs(x)) for value, x in zip(values, inputs, strict=True))
        and all(value * x >= 0 for value, x in zip(values, inputs, strict=True))
    )


@pytest.mark.parametrize(("norm", "clip"), [(1.0, 0.1), (0.1, 0.1), (1e-9, 0.1), (3.7, 1e-3), (1e300, 1e-30), (1, 3)])
def test_the_limit_is_the_largest_whole_number_that_keeps_the_norm(norm, clip):
    limit = norm_limit(norm, clip)
    exact = (Fraction(norm) * GRID / Fraction(clip)) ** 2
    assert limit <= exact
    assert limit + 1 > exact or limit == 2**63 - 1


UPDATES = {
    "huge": np.full(100, HUGE),
    "tiny": np.full(100, -TINY),
    "mixed": np.tile([HUGE, -HUGE, TINY, 0.0], 25),
    "zero": np.zeros(100),
    "spike": np.eye(1, 100)[0] * HUGE,
    "small spike": np.eye(1, 100)[0] * 1e-3,
    "line": np.linspace(-1, 1, 100),
    "all sizes": np.geomspace(1e-44, 1e38, 100),
}
GRID_OF_CASES = list(product(UPDATES, [1e-9, 0.01, 1.0, 1.7, 8.0, 1e9], [0.1, 1.0, 1e-30, 1e30, 0.3]))


@pytest.mark.parametrize(("name", "ratio", "clip"), sampled(GRID_OF_CASES, keep=32))
def test_bounded_whatever_the_update(name, ratio, clip):
    assert is_bounded(UPDATES[name], clip, ratio * clip)


@pytest.mark.parametrize("directions", [20, pytest.param(200, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("clip", [0.1, 0.25, 1.0])
def test_updates_on_the_boundary(clip, directions):
    """Norms within a few units in the last place of R, on either side; what is within a step of R may stay."""
    rng = np.random.default_rng(3)
    for _ in range(directions):
        direction = rng.normal(size=50)
        direction *= 0.9 * clip / np.abs(direction).max()
        norm = float(np.linalg.norm(direction.astype(np.float32).astype(np.float64)))
        for close in (norm, np.nextafter(norm, 0), np.nextafter(norm, 9), norm * (1 + 1e-7), norm * (1 - 1e-7)):
            assert is_bounded(direction, clip, float(close))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    update=arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    clip=st.floats(1e-30, 1e30),
    ratio=st.floats(1e-8, 1e3),
)
def test_bounded_for_any_finite_update(update, clip, ratio):
    assert is_bounded(update, clip, ratio * clip)


@pytest.mark.parametrize("clip", [0.1, 0.25, 0.3, 0.7, 1.0, 1e-30, 1e30])
def test_clipped_updates_are_within_the_clip_exactly(clip):
    """As real numbers: the float32 nearest to C may lie above it. What is within C stays as it is."""
    updates = np.array([HUGE, -HUGE, clip, -clip, 0.5 * clip, -TINY, 0.0], dtype=np.float32)
    clipped = clip_updates(updates, clip)
    assert clipped.dtype == np.float32
    assert all(abs(Fraction(float(value))) <= Fraction(clip) for value in clipped)
    assert (np.abs(clipped[:4]) >= np.nextafter(np.float32(clip), np.float32(0))).all()
    assert (clipped[4:] == updates[4:]).all()


@pytest.mark.parametrize("norm", [0.5, 1.0, 3.0])
def test_little_is_lost(norm):
    """No coordinate is off by more than two steps and a few units in the last place of a float32."""
    update = np.random.default_rng(5).normal(0, 0.05, 5000).astype(np.float32)
    clipped = clip_updates(update, 0.1).astype(np.float64)
    expected = clipped * min(1.0, norm / np.linalg.norm(clipped))
    got = steps_of(update, 0.1, norm) * (0.1 / GRID)
    assert np.abs(got - expected).max() <= 0.1 * (2 / GRID + 2**-20)
    assert np.linalg.norm(got) >= min(norm, np.linalg.norm(clipped)) * (1 - 1e-4)


def test_a_norm_that_cannot_be_reached_changes_nothing():
    update = np.random.default_rng(5).normal(0, 0.05, 5000).astype(np.float32)
    loose, none = (steps_of(update, 0.1, norm) for norm in (0.1 * np.sqrt(5000.5), 1e9))
    assert (loose == none).all()
    assert np.abs(none).max() == GRID
    assert (none == np.trunc(clip_updates(update, 0.1) * np.float32(GRID / 0.1 * (1 - 2.0**-22)))).mean() > 0.95


def test_the_widest_update_does_not_overflow():
    steps = steps_of(np.full(MOST_COORDINATES, HUGE), 1.0, 1e9)
    assert (steps == GRID).all()
    steps = steps_of(np.full(MOST_COORDINATES, -HUGE), 1.0, 2.0)
    assert int((steps.astype(np.int64) ** 2).sum()) <= 4 * GRID**2
    assert steps.min() == steps.max() == -1023


def test_nothing_rests_on_floating_point(monkeypatch):
    """Were the arithmetic off by a hundredth, the check in integers would leave nothing of the update."""
    monkeypatch.setattr("apes.client.clip._DOWN", 1.01)
    update, steps = np.full(100, 0.5, dtype=np.float32), np.empty(100, dtype=np.int32)
    clip_norm.py_func(update, 1.0, norm_limit(1.0, 1.0), steps)
    assert not steps.any()
    clip_norm.py_func(update, 1.0, norm_limit(10.0, 1.0), steps)
    assert steps.all()
