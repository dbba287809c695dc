"""How the training examples are spread over users."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F64, I64

MAX_CLASSES = 1 << 16
# Keeps the stream apart from those that other parts of the package derive from the same seed.
_STREAM = 0x5350_4C49_54
# From here on mixtures are uniform to within 1e-6, and far beyond it the sampler overflows.
_UNIFORM_ALPHA = 1e12

# From labels, offsets and the number of classes: the examples in the order in which users hold them.
_Deal = Callable[[I64, I64, int, np.random.Generator], I64]


def partition(labels: NDArray[Any], users: int, split: str, seed: int, classes: int | None = None) -> tuple[I64, I64]:
    """Deal all examples to users, each example once, in equal shares (the first users get the remainder).

    Args:
        labels: class of every example, whole numbers in [0, classes); or real-valued targets, for ``iid``.
        users: number of users, in [1, number of examples].
        split: ``iid`` deals at random; ``label`` gives user u as its j-th example one of class (u + j) mod classes, or
            of the class with most examples left where that one is used up; ``dirichlet:ALPHA`` fills every user's share
            from a mixture of classes drawn from Dirichlet(ALPHA, .., ALPHA), ALPHA in (0, inf), as far as they last.
        seed: at least 0; the same seed and number of classes give the same split.
        classes: number of classes, in [1, 65,536]; None for the highest label + 1.

    Returned are ``order`` and ``offsets``: user u holds the examples ``order[offsets[u]:offsets[u + 1]]``.

    >>> order, offsets = partition(np.array([0, 1, 2, 0, 1]), users=2, split="label", seed=0)
    >>> offsets
    array([0, 3, 5])
    """
    labels, classes = _checked(np.asarray(labels), split, classes)
    share, rest = divmod(len(labels), whole("users", users, 1, len(labels)))
    deal = parse_split(split)
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_STREAM, whole("seed", seed, 0)])))
    first = np.arange(users + 1)
    offsets = first * share + np.minimum(first, rest)
    return deal(labels, offsets, classes, rng), offsets


def _checked(labels: NDArray[Any], split: str, classes: int | None) -> tuple[I64, int]:
    """Check the labels; zeros stand for real numbers, which ``iid`` does not look at."""
    if classes is not None:
        whole("classes", classes, 1, MAX_CLASSES)
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iuf":
        raise ParameterError(f"labels must be a non-empty list of numbers, got {labels.dtype} of shape {labels.shape}")
    if labels.dtype.kind == "f":
        if split != "iid":
            raise ParameterError(f"split must be iid for real-valued labels ({labels.dtype}), got {split!r}")
        labels = np.zeros(len(labels), dtype=np.int64)
    end = MAX_CLASSES if classes is None else classes
    bad = (labels < 0) | (labels >= end)
    if bad.any():
        raise ParameterError(f"labels must be in [0, {end - 1}], got {labels[bad][0]}")
    return labels.astype(np.int64), int(labels.max()) + 1 if classes is None else classes


def parse_split(split: str) -> _Deal:
    """Turn the text of a split into the function that deals."""
    kind, colon, text = str(split).partition(":")
    if not colon and kind in _PLAIN:
        return _PLAIN[kind]
    if kind != "dirichlet":
        raise ParameterError(f"split must be iid, label or dirichlet:ALPHA, got {split!r}")
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise ParameterError(f"ALPHA of split dirichlet:ALPHA must be in (0, inf), got {split!r}")
    return partial(_deal_mixtures, min(alpha, _UNIFORM_ALPHA))


def _deal_labels(labels: I64, offsets: I64, classes: int, rng: np.random.Generator) -> I64:
    """Deal class (u + j) mod classes as the j-th example of user u while it lasts."""
    left = np.bincount(labels, minlength=classes)
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    places = (users + np.arange(len(labels)) - offsets[users]) % classes
    for place, label in enumerate(places.tolist()):
        if not left[label]:
            places[place] = left.argmax()
        left[places[place]] -= 1
    # From the last to the first: any order is as random, and this one deals as earlier versions did.
    return _fill(places, labels, rng.permutation(len(labels))[::-1])


def _deal_mixtures(alpha: float, labels: I64, offsets: I64, classes: int, rng: np.random.Generator) -> I64:
    """Fill every user's share from a Dirichlet mixture of the classes."""
    shuffled = rng.permutation(len(labels))
    users = len(offsets) - 1
    mixtures = rng.dirichlet(np.full(classes, alpha), size=users)
    left = np.bincount(labels, minlength=classes)
    places = np.empty_like(labels)
    # In random order, or the users with high numbers would always be the ones to get what is left over.
    for user in rng.permutation(users):
        start, end = offsets[user : user + 2]
        counts = _draw(mixtures[user], int(end - start), left, rng)
        places[start:end] = np.repeat(np.arange(classes), counts)
        left -= counts
    return _fill(places, labels, shuffled)


def _draw(mixture: F64, size: int, left: I64, rng: np.random.Generator) -> I64:
    """Draw how many examples of each class a user gets: ``size`` in all, no more than are ``left``."""
    counts = np.zeros_like(left)
    while (need := size - int(counts.sum())) > 0:
        remaining = left - counts
        weights = np.where(remaining > 0, mixture, 0.0)
        if not weights.sum() > 0:
            weights = remaining.astype(np.float64)  # nothing of the user's classes is left
        drawn = rng.multinomial(need, weights / weights.sum())
        counts += np.minimum(drawn, remaining)
    return counts


def _fill(places: I64, labels: I64, shuffled: I64) -> I64:
    """Put the examples, taken in the order ``shuffled``, into places whose classes are given."""
    order = np.empty_like(shuffled)
    order[np.argsort(places, kind="stable")] = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return order


_PLAIN: dict[str, _Deal] = {
    "iid": lambda labels, offsets, classes, rng: rng.permutation(len(labels)),
    "label": _deal_labels,
}
