"""What a population's reports look like, against direct averages over all users."""

import numpy as np
import pytest

from apes.analyzer.expected import (
    budget_quadrature,
    continuous_response,
    law_at_zero,
    padded,
    pooled_channel,
    top_levels,
)
from apes.budgets import make_budgets
from apes.client.randomizer import Place
from apes.client.sparsifier import Threshold
from apes.mathematics.laws import ClipLaplace
from apes.mathematics.levels import level_probabilities, levels_beyond
from apes.mathematics.randomness import SimulationSource

CLIP = 0.1
POPULATIONS = {
    "uniform2": make_budgets("uniform2", 2_000, 1),
    "gauss1": make_budgets("gauss1", 2_000, 1),
    "gauss3": make_budgets("gauss3", 2_000, 1),
    "mixgauss2": make_budgets("mixgauss2", 2_000, 1),
    "0.05 to 1": np.linspace(0.05, 1, 2_000),
    "0.05 to 3": np.linspace(0.05, 3, 1_000),
    "0.05 to 50": np.geomspace(0.05, 50, 2_000),
    "1e-6 to 8": np.geomspace(1e-6, 8, 3_000),
    "one far from 100": np.append(np.linspace(0.05, 0.1, 100), 20.0),
    "nearly equal": 1 + 1e-9 * np.arange(100),
    "65 different": np.linspace(0.5, 2, 65),
    "64 different": np.repeat(np.linspace(0.01, 9, 64), 3),
    "everybody alike": np.full(1_000, 0.7),
    "one user": np.array([2.5]),
}
every_population = pytest.mark.parametrize("budgets", POPULATIONS.values(), ids=POPULATIONS)

FUNCTIONS = {
    **{f"exp(-{s} e)": (lambda e, s=s: np.exp(-e * s)) for s in (0.01, 0.3, 1.0)},
    "e / (exp(e) - 1)": lambda e: e / np.expm1(e),
    **{
        f"{name} at {at} C": (lambda e, at=at, name=name: getattr(ClipLaplace(at, e, 1.0), name)())
        for name in ("mean", "var")
        for at in (-1.0, -0.5, 0.0, 0.1, 0.99)
    },
    **{
        f"p({k} | {j}) of {levels}": (lambda e, j=j, k=k, levels=levels: level_probabilities(e, levels)[:, j, k])
        for levels, j, k in ((2, 0, 0), (2, 0, 1), (3, 1, 1), (3, 0, 2), (16, 0, 0), (16, 7, 12), (16, 15, 0))
    },
}


@every_population
def test_quadrature_is_the_mean_over_users(budgets):
    nodes, weights = budget_quadrature(budgets)
    errors = {name: abs(weights @ law(nodes) - law(budgets).mean()) for name, law in FUNCTIONS.items()}
    assert [name for name, error in errors.items() if not error <= 1e-9] == []


@every_population
def test_quadrature_has_few_nodes_inside_the_range(budgets):
    nodes, weights = budget_quadrature(budgets)
    assert nodes.size <= max(64, 24 + 4 * np.ptp(budgets) + 1)
    assert budgets.min() <= nodes.min() <= nodes.max() <= budgets.max()
    assert weights.sum() == pytest.approx(1, abs=1e-13)


def direct_channel(budgets, levels):
    """Average over all users, some at a time."""
    total = np.zeros((levels, levels))
    for part in np.array_split(budgets, max(1, budgets.size // 1000)):
        total += level_probabilities(part, levels).sum(axis=0)
    return total / budgets.size


@every_population
@pytest.mark.parametrize("levels", [2, 3, 16])
def test_pooled_channel_is_the_average_over_users(budgets, levels):
    channel = pooled_channel(budgets, levels)
    assert np.abs(channel - direct_channel(budgets, levels)).max() <= 1e-9
    assert np.abs(channel.sum(axis=1) - 1).max() <= 1e-12


@pytest.mark.parametrize("levels", [255, pytest.param(256, marks=pytest.mark.exhaustive)])
def test_pooled_channel_of_many_levels(levels):
    budgets = np.random.default_rng(0).uniform(0.05, 3, 200)
    assert np.abs(pooled_channel(budgets, levels) - direct_channel(budgets, levels)).max() <= 1e-9


def test_pooled_channel_does_not_depend_on_the_order():
    budgets = POPULATIONS["uniform2"]
    shuffled = np.random.default_rng(0).permutation(budgets)
    assert pooled_channel(budgets, 16).tobytes() == pooled_channel(shuffled, 16).tobytes()
    assert (pooled_channel(budgets + 0.01, 16) != pooled_channel(budgets, 16)).any()


CHANNEL = pooled_channel(POPULATIONS["uniform2"], 16)


@pytest.mark.parametrize("levels", [2, 3, 16, 255, 256])
def test_law_at_zero_is_that_of_an_input_rounded_at_random(levels):
    channel = pooled_channel(POPULATIONS["0.05 to 3"], levels)
    law = law_at_zero(channel)
    below = (levels - 1) / 2
    share = below - int(below)  # of being rounded up
    expected = (1 - share) * channel[int(below)] + share * channel[int(np.ceil(below))]
    assert np.abs(law - expected).max() <= 1e-16
    assert np.abs(law - law[::-1]).max() <= 1e-15


@pytest.mark.parametrize("kept", [np.zeros(16), np.ones(16), np.linspace(0, 1, 16), levels_beyond(16, 0.6)])
def test_padded_channel(kept):
    padding = law_at_zero(level_probabilities(np.array([4.0]), 16)[0])
    result = padded(CHANNEL, kept, padding)
    assert np.abs(result.sum(axis=1) - 1).max() <= 1e-12
    assert (result >= 0).all()
    for j, k in np.ndindex(16, 16):
        replaced = sum(CHANNEL[j, m] * (1 - kept[m]) for m in range(16))
        assert result[j, k] == pytest.approx(CHANNEL[j, k] * kept[k] + replaced * padding[k], abs=1e-15)


@pytest.mark.parametrize("levels", [2, 3, 16, 255, 256])
@pytest.mark.parametrize("fraction", [1e-3, 0.2, 0.5, 0.999, 1.0])
def test_top_levels_keep_the_fraction_at_zero(levels, fraction):
    channel = pooled_channel(POPULATIONS["uniform2"], levels)
    kept = top_levels(channel, fraction)
    assert law_at_zero(channel) @ kept == pytest.approx(fraction, abs=1e-12)
    sizes = np.abs(2 * np.arange(levels) - (levels - 1))
    by_size = kept[np.argsort(sizes, kind="stable")]
    assert (np.diff(by_size) >= -1e-12).all()  # the larger, the more surely kept
    assert (kept == kept[::-1]).all()
    partly = kept[(kept > 1e-12) & (kept < 1 - 1e-12)]
    assert np.unique(partly).size <= 1


@pytest.mark.parametrize(
    ("levels", "threshold", "expected"),
    [
        (3, 0.0, [1, 1, 1]),
        (3, 0.5, [1, 0, 1]),
        (3, 1.0, [1, 0, 1]),
        (5, 0.5, [1, 1, 0, 1, 1]),
        (5, 0.51, [1, 0, 0, 0, 1]),
        (4, 1 / 3, [1, 1, 1, 1]),
        (4, 0.34, [1, 0, 0, 1]),
    ],
)
def test_levels_beyond(levels, threshold, expected):
    assert levels_beyond(levels, threshold).tolist() == expected


class Absent:
    """A randomizer whose padding is no level of the reports."""

    clip = CLIP

    def prepare(self, budgets):
        return budgets

    def padding(self, tables, width, place, source):
        return np.full((tables.shape[0], width), -1, dtype=np.int64)


def disagreements(levels):
    """Thresholds 1 - keep at which the analyzer expects other levels to be kept than the client keeps."""
    every_level, tables = np.arange(levels, dtype=np.uint8)[None], np.ones((1, levels))
    kept_by_client = {
        tau: Threshold(tau).apply(every_level, tables, Absent(), Place(0, 0), SimulationSource(0))[0] >= 0
        for tau in 1 - np.arange(1, 101) / 100
    }
    return [tau for tau, kept in kept_by_client.items() if (kept != levels_beyond(levels, tau)).any()]


def test_the_client_keeps_the_levels_that_the_analyzer_expects():
    assert [levels for levels in (2, 3, 4, 8, 16, 32, 64, 128, 255, 256) if disagreements(levels)] == []


@pytest.mark.exhaustive
def test_the_client_keeps_the_levels_that_the_analyzer_expects_at_every_number_of_levels():
    assert [levels for levels in range(2, 257) if disagreements(levels)] == []


@every_population
def test_continuous_response(budgets):
    inputs, expected, variance = continuous_response(budgets, CLIP)
    assert inputs[0] == -CLIP
    assert inputs[-1] == CLIP
    assert inputs[inputs.size // 2] == 0 == expected[inputs.size // 2]
    assert (np.diff(inputs) > 0).all()
    assert (np.diff(expected) > 0).all()
    for place in (0, 123, 499, 777, inputs.size - 1):
        direct = ClipLaplace(inputs[place], budgets, CLIP).mean().mean()
        assert abs(expected[place] - direct) <= 1e-9 * CLIP
    assert variance == pytest.approx(ClipLaplace(0.0, budgets, CLIP).var().mean(), rel=1e-9)
