"""A device's side of a round: the law of what leaves it, sparsified or not.

Statistical limits have a false-alarm rate of 1e-6; beside each stands a wrong law that is rejected.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import chi2

from apes import LogisticRegression, Terms
from apes.analyzer.expected import law_at_zero
from apes.client.client import DeviceClient
from apes.client.randomizer import CodedClipLaplace
from apes.client.sparsifier import RandomB, Threshold
from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities, levels_beyond
from apes.mathematics.randomness import SystemSource
from apes.population import UserBlock

CLIP, LEVELS = 0.1, 16
USERS, DIMENSIONS = 500, 2000


@dataclass(frozen=True)
class Constant:
    """A model whose updates are all the same number."""

    value: float

    def updates(self, weights, block):
        return np.full((USERS, weights.size), self.value, dtype=np.float32)


def drawn(sparsifier, budget, value=CLIP, kept_first=None):
    client = DeviceClient(Constant(value), CodedClipLaplace(CLIP, LEVELS), sparsifier, kept_first)
    weights = np.zeros(DIMENSIONS, dtype=np.float32)
    empty = np.zeros((USERS, 1), dtype=np.float32)
    block = UserBlock(0, np.full(USERS, budget), empty, np.zeros(USERS, dtype=np.uint8), np.arange(USERS + 1))
    return client.levels(weights, block, SystemSource())


def law(sparsifier, budget):
    """Probability of each level on an input at the upper end."""
    rows = level_probabilities(np.array([budget]), LEVELS)[0]
    if sparsifier is None:
        return rows[-1]
    if isinstance(sparsifier, RandomB):
        kept = sparsifier.b / DIMENSIONS
        return kept * rows[-1] + (1 - kept) * law_at_zero(rows)
    far = levels_beyond(LEVELS, sparsifier.tau)
    public = law_at_zero(level_probabilities(np.array([sparsifier.padding_epsilon]), LEVELS)[0])
    return rows[-1] * far + (1 - rows[-1][far].sum()) * public


def distance(levels, probabilities):
    counts, expected = np.bincount(levels.ravel(), minlength=LEVELS), levels.size * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("sparsifier", [None, RandomB(DIMENSIONS // 2), Threshold(0.6)], ids=str)
def test_levels_have_their_law(sparsifier):
    limit = chi2.isf(1e-6, LEVELS - 1)
    assert distance(drawn(sparsifier, 1.0), law(sparsifier, 1.0)) < limit
    assert distance(drawn(sparsifier, 1.1), law(sparsifier, 1.0)) > limit


@pytest.mark.slow
def test_random_b_lets_exactly_b_through():
    """With budgets this large a report is its input: the end where it is kept, the middle where it is not."""
    levels = drawn(RandomB(300), 200.0)
    kept = levels > 11
    assert (kept.sum(axis=1) == 300).all()
    # Everybody chooses alone, and no coordinate is dearer than another.
    assert (kept[0] != kept[1]).any()
    often = kept.sum(axis=0)
    expected = USERS * 300 / DIMENSIONS
    spread = expected * (1 - 300 / DIMENSIONS)
    assert ((often - expected) ** 2 / spread).sum() < chi2.isf(1e-6, DIMENSIONS - 1)


def test_top_b_first_sets_the_others_to_zero():
    """Of equal sizes the first ones stay; with budgets this large a report is its input."""
    levels = drawn(None, 200.0, kept_first=300)
    assert (levels[:, :300] > 11).all()
    assert (levels[:, 300:] < 12).all()


def test_random_b_of_too_few_coordinates():
    with pytest.raises(ParameterError, match=rf"^b must be in \[1, {DIMENSIONS}\]"):
        drawn(RandomB(DIMENSIONS + 1), 1.0)


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
