"""A device's side of a round: the law of what leaves it, sparsified or not.

Statistical limits have a false-alarm rate of 1e-6; beside each stands a wrong law that is rejected.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import chi2, ncx2
from scipy.stats import norm as normal

from apes import LogisticRegression, Terms
from apes.analyzer.expected import law_at_zero
from apes.client.client import Client, DeviceClient
from apes.client.randomizer import CodedClipLaplace
from apes.client.sparsifier import RandomB, Threshold
from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities, levels_beyond
from apes.mathematics.randomness import SimulationSource, SystemSource
from apes.population import UserBlock

CLIP, LEVELS = 0.1, 16
# Users and coordinates.
SHAPE = (200, 500)


@dataclass(frozen=True)
class Constant:
    """A model whose updates are all the same number."""

    value: float

    def updates(self, weights, block):
        return np.full((block.budgets.size, weights.size), self.value, dtype=np.float32)


def block_of(users, budget):
    empty = np.zeros((users, 1), dtype=np.float32)
    return UserBlock(0, np.full(users, budget), empty, np.zeros(users, dtype=np.uint8), np.arange(users + 1))


def drawn(sparsifier, budget, shape=SHAPE, value=CLIP, kept_first=None):
    client = DeviceClient(Constant(value), CodedClipLaplace(CLIP, LEVELS), sparsifier, kept_first)
    return client.levels(np.zeros(shape[1], dtype=np.float32), block_of(shape[0], budget), SystemSource())


def law(sparsifier, budget, dimensions):
    """Probability of each level on an input at the upper end."""
    rows = level_probabilities(np.array([budget]), LEVELS)[0]
    if sparsifier is None:
        return rows[-1]
    if isinstance(sparsifier, RandomB):
        kept = sparsifier.b / dimensions
        return kept * rows[-1] + (1 - kept) * law_at_zero(rows)
    far = levels_beyond(LEVELS, sparsifier.tau)
    public = law_at_zero(level_probabilities(np.array([sparsifier.padding_epsilon]), LEVELS)[0])
    return rows[-1] * far + (1 - rows[-1][far].sum()) * public


def distance(levels, probabilities):
    counts, expected = np.bincount(levels.ravel(), minlength=LEVELS), levels.size * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


# At a budget of 4 it takes a tenth of the coordinates that it takes at 1 to see 10 % of it.
EXPENSIVE = pytest.param(1.0, (500, 2000), marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("budget", "shape"), [(4.0, SHAPE), EXPENSIVE], ids=["large budget", "small budget"])
@pytest.mark.parametrize("share", [None, "half at random", "threshold"])
def test_levels_have_their_law(share, budget, shape):
    dimensions = shape[1]
    sparsifier = {None: None, "half at random": RandomB(dimensions // 2), "threshold": Threshold(0.6)}[share]
    limit, expected = chi2.isf(1e-6, LEVELS - 1), law(sparsifier, budget, dimensions)
    other = law(sparsifier, 1.1 * budget, dimensions)
    power = np.prod(shape) * ((other - expected) ** 2 / expected).sum()
    assert ncx2.cdf(limit, LEVELS - 1, power) < 1e-8  # enough draws
    assert distance(drawn(sparsifier, budget, shape), expected) < limit
    assert distance(drawn(sparsifier, 1.1 * budget, shape), expected) > limit


def test_a_threshold_pads_by_a_public_budget_and_not_by_the_users_own():
    """Otherwise what replaces a small report would be no post-processing of it: it would tell the user's budget."""
    public = level_probabilities(np.array([1.0]), LEVELS)[0]
    expected = (public[LEVELS // 2 - 1] + public[LEVELS // 2]) / 2
    limit = chi2.isf(1e-6, LEVELS - 1)
    # Under so large a budget a report on 0 is one of the two levels in the middle: every one is padded.
    levels = drawn(Threshold(0.6, padding_epsilon=1.0), 200.0, (100, 200), value=0.0)
    assert distance(levels, expected) < limit
    wrong = level_probabilities(np.array([4.0]), LEVELS)[0]
    assert distance(levels, (wrong[LEVELS // 2 - 1] + wrong[LEVELS // 2]) / 2) > limit


@pytest.mark.parametrize("shape", [(400, 100), pytest.param((500, 2000), marks=pytest.mark.exhaustive)], ids=str)
def test_random_b_lets_exactly_b_through(shape):
    """With budgets this large a report is its input: the end where it is kept, the middle where it is not."""
    (users, dimensions), b = shape, 15 * shape[1] // 100
    kept = drawn(RandomB(b), 200.0, shape) > 11
    assert (kept.sum(axis=1) == b).all()
    # Everybody chooses alone, and no coordinate is dearer than another.
    assert (kept[0] != kept[1]).any()
    assert unevenness(kept) < 1
    favoured = kept.copy()
    favoured[: users // 10] = np.arange(dimensions) < b  # one user in ten chooses the first ones
    assert unevenness(favoured) > 1


def unevenness(kept):
    """Chi-square of how often each coordinate is kept, over its limit."""
    often, share = kept.sum(axis=0), kept.mean()
    spread = len(kept) * share * (1 - share)
    return ((often - len(kept) * share) ** 2 / spread).sum() / chi2.isf(1e-6, often.size - 1)


def test_random_b_chooses_without_looking_at_the_update():
    """Of a few large coordinates a device keeps no more than of the others."""

    @dataclass(frozen=True)
    class Half(Constant):
        def updates(self, weights, block):
            values = super().updates(weights, block)
            values[:, ::2] = -self.value / 2
            return values

    client = DeviceClient(Half(CLIP), CodedClipLaplace(CLIP, LEVELS), RandomB(10))
    levels = client.levels(np.zeros(20, dtype=np.float32), block_of(2000, 200.0), SystemSource())
    large, small = levels[:, 1::2] == LEVELS - 1, levels[:, ::2] < 6
    assert ((large.sum(axis=1) + small.sum(axis=1)) == 10).mean() > 0.99
    # Ten of twenty at random: 5 each on average, with a variance of 25 / 19.
    assert abs(large.sum(axis=1).mean() - 5) < normal.isf(0.5e-6) * np.sqrt(25 / 19 / 2000) + 0.02


def test_top_b_first_sets_the_others_to_zero():
    """Of equal sizes the first ones stay; with budgets this large a report is its input."""
    levels = drawn(None, 200.0, (50, 200), kept_first=30)
    assert (levels[:, :30] > 11).all()
    assert (levels[:, 30:] < 12).all()


def test_a_device_cannot_draw_from_a_simulations_randomness():
    """What can be drawn again can be subtracted: there is no method for it, and the one there is needs the system's."""
    device = DeviceClient(Constant(CLIP), CodedClipLaplace(CLIP, LEVELS))
    assert not isinstance(device, Client)
    assert not hasattr(device, "reports")
    with pytest.raises(AttributeError):
        device.levels(np.zeros(20, dtype=np.float32), block_of(2, 1.0), SimulationSource(1, 1))


def test_a_device_chooses_in_the_same_steps_whatever_the_data(monkeypatch):
    """Never by the quick road, whose time depends on the data; a simulation does."""

    def refused(updates, b):
        raise AssertionError("the quick road")

    monkeypatch.setattr("apes.client.top_b_first.keep_largest_quickly", refused)
    assert drawn(None, 1.0, (2, 20), kept_first=3).shape == (2, 20)
    simulated = Client(Constant(CLIP), CodedClipLaplace(CLIP, LEVELS), kept_first=3)
    with pytest.raises(AssertionError, match="the quick road"):
        next(simulated.reports(np.zeros(20, dtype=np.float32), block_of(2, 1.0), SimulationSource(1, 1)))


def test_random_b_of_too_few_coordinates():
    with pytest.raises(ParameterError, match=r"^b must be in \[1, 20\]"):
        drawn(RandomB(21), 1.0, (3, 20))


def test_which_terms_run_on_devices():
    model = LogisticRegression(24, 4)
    for choices in ({}, {"framework": "s-apes", "sparsifier": "random-b"}, {"framework": "s-apes-threshold"}):
        assert isinstance(Terms(**choices).device_client(model), DeviceClient)
    assert Terms(framework="s-apes", sparsifier="random-b", keep=0.3).device_client(model).sparsifier == RandomB(30)
    with pytest.raises(ParameterError, match="top-b looks at all"):
        Terms(framework="s-apes").device_client(model)
    with pytest.raises(ParameterError, match="levels must be"):
        Terms(levels="continuous").device_client(model)


class Replayed(SystemSource):
    """The operating system's randomness, replaced by a stream that begins anew with every source."""

    def __init__(self, seed):
        self._stream = np.random.default_rng(seed)

    def words(self, *shape):
        return self._stream.integers(0, 2**64, shape, dtype=np.uint64)

    def bytes(self, *shape):
        return self._stream.integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"norm": 0.3},
        {"framework": "s-apes-first"},
        {"framework": "s-apes-threshold"},
        {"framework": "s-apes", "sparsifier": "random-b"},
    ],
    ids=str,
)
def test_what_was_drawn_before_leaves_no_trace(choice):
    """No error feedback: a report is made of data, weights and fresh randomness, whatever was reported before."""
    generator, offsets = np.random.default_rng(5), np.arange(0, 33, 4)
    rows, labels = generator.random((32, 6), dtype=np.float32), np.arange(32, dtype=np.uint8) % 3
    block = UserBlock(0, np.full(8, 0.7), rows, labels, offsets)
    model = LogisticRegression(6, 3)
    used, fresh = (Terms(**choice).device_client(model) for _ in range(2))
    now, before = (generator.normal(size=model.dimensions).astype(np.float32) for _ in range(2))
    for seed in range(3):
        used.levels(before, block, Replayed(100 + seed))
    first = used.levels(now, block, Replayed(1))
    assert np.array_equal(first, fresh.levels(now, block, Replayed(1)))
    assert not np.array_equal(first, fresh.levels(now, block, Replayed(2)))
