"""How the training images are spread over users."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.errors import ParameterError

_CLASSES = 10
# Keeps the stream apart from those that other parts of the package derive from the same seed.
_STREAM = 0x5350_4C49_54
# From here on mixtures are uniform to within 1e-6, and far beyond it the sampler overflows.
_UNIFORM_ALPHA = 1e12

_Labels = NDArray[np.integer]
_Deal = Callable[[_Labels, NDArray[np.int64], np.random.Generator], NDArray[np.int64]]


def partition(labels: _Labels, users: int, split: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Deal all images to users, each image once, in equal shares (the first users get the remainder).

    Args:
        labels: class of every image, in [0, 9].
        users: number of users, in [1, number of images].
        split: ``iid`` deals at random; ``label`` gives user u as its j-th image one of class (u + j) mod
            10, or of the class with most images left where that one is used up; ``dirichlet:ALPHA`` fills
            every user's share from a mixture of classes drawn from Dirichlet(ALPHA, .., ALPHA), ALPHA in
            (0, inf), as far as the classes last.
        seed: at least 0; the same seed gives the same split.

    Returns:
        ``order`` and ``offsets``: user u holds the images ``order[offsets[u]:offsets[u + 1]]``.

    Raises:
        ParameterError: if an argument is outside its range.

    >>> order, offsets = partition(np.array([0, 1, 2, 0, 1]), users=2, split="label", seed=0)
    >>> offsets
    array([0, 3, 5])
    """
    labels = _checked(np.asarray(labels))
    share, rest = divmod(len(labels), whole("users", users, 1, len(labels)))
    deal = _parse(split)
    words = np.random.SeedSequence([_STREAM, whole("seed", seed, 0)])
    sizes = np.full(users, share, dtype=np.int64)
    sizes[:rest] += 1
    order = deal(labels, sizes, np.random.Generator(np.random.Philox(words)))
    return order, np.concatenate(([0], np.cumsum(sizes)))


def _checked(labels: _Labels) -> _Labels:
    if labels.ndim != 1 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(
            f"labels must be a non-empty list of whole numbers, got {labels.dtype} of shape {labels.shape}"
        )
    bad = (labels < 0) | (labels >= _CLASSES)
    if bad.any():
        raise ParameterError(f"labels must be in [0, {_CLASSES - 1}], got {labels[bad][0]}")
    return labels


def _parse(split: str) -> _Deal:
    """Turn the text of a split into the function that deals."""
    kind, colon, text = split.partition(":")
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

    def deal(labels: _Labels, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        return _deal_mixtures(labels, sizes, alpha, rng)

    return deal


def _deal_iid(labels: _Labels, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.permutation(len(labels))


def _deal_labels(labels: _Labels, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Deal class (u + j) mod 10 as the j-th image of user u while it lasts."""
    pools = [pool.tolist() for pool in _pools(labels, rng)]
    order = []
    for user, size in enumerate(sizes.tolist()):
        for j in range(size):
            pool = pools[(user + j) % _CLASSES] or max(pools, key=len)
            order.append(pool.pop())
    return np.array(order, dtype=np.int64)


def _deal_mixtures(
    labels: _Labels, sizes: NDArray[np.int64], alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Fill every user's share from a Dirichlet mixture of the classes."""
    pools = _pools(labels, rng)
    mixtures = rng.dirichlet(np.full(_CLASSES, min(alpha, _UNIFORM_ALPHA)), size=len(sizes))
    counts = np.empty((len(sizes), _CLASSES), dtype=np.int64)
    left = np.array([len(pool) for pool in pools])
    # In random order, or the users with high numbers would always be the ones to get what is left over.
    for user in rng.permutation(len(sizes)):
        counts[user] = _draw(mixtures[user], int(sizes[user]), left, rng)
        left = left - counts[user]
    # The class of every place in the order of dealing; as many of each class as its pool holds.
    places = np.repeat(np.tile(np.arange(_CLASSES), len(sizes)), counts.ravel())
    order = np.empty(len(labels), dtype=np.int64)
    for label, pool in enumerate(pools):
        order[places == label] = pool
    return order


def _draw(
    mixture: NDArray[np.float64], size: int, left: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw how many images of each class a user gets: ``size`` in all, no more than are ``left``."""
    counts = np.zeros(_CLASSES, dtype=np.int64)
    while (need := size - int(counts.sum())) > 0:
        remaining = left - counts
        weights = np.where(remaining > 0, mixture, 0.0)
        if not weights.sum() > 0:
            weights = remaining.astype(np.float64)  # nothing of the user's classes is left
        drawn = rng.multinomial(need, weights / weights.sum())
        counts += np.minimum(drawn, remaining)
    return counts


def _pools(labels: _Labels, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Collect the images of every class in random order."""
    order = rng.permutation(len(labels))
    return [order[labels[order] == label] for label in range(_CLASSES)]


_PLAIN: dict[str, _Deal] = {"iid": _deal_iid, "label": _deal_labels}
