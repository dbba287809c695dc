"""Updates of logistic regression against a naive float64 computation that keeps the full local weights.

Tolerances are multiples of float32's eps, 1.2e-7: features are below 1 and scores of the order of 1, so a step's
coefficients are off by a few eps for each of its sums, and local steps are chosen small enough not to amplify that
(rate times the largest curvature stays below 2). The worst errors measured are 0.6 eps for a gradient and 1.5 eps
for ten local steps; five times that is allowed.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apes.errors import ApesError, ParameterError
from apes.models.logistic import FedProx, LogisticRegression
from apes.people.people import People
from apes.population import UserBlock

EPS32 = float(np.finfo(np.float32).eps)
TOLERANCE = 3 * EPS32
ROWS_OF_USERS = [1, 2, 3, 4, 5, 6, 7, 1, 3]
RATE = 0.5


def population(classes, features, sizes=ROWS_OF_USERS, seed=0):
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    x = rng.random((rows, features), dtype=np.float32) / np.float32(np.sqrt(max(1, features / 12)))
    labels = rng.integers(0, classes, rows).astype(np.uint8)
    return People(x, labels, np.cumsum([0, *sizes]), np.ones(len(sizes)))


def random_weights(classes, features, scale=0.5, seed=1):
    return (scale * np.random.default_rng(seed).normal(size=(classes, features + 1))).astype(np.float32)


def loss(weights, x, labels):
    """Mean cross-entropy of one user, in float64."""
    scores = x @ weights[:, :-1].T + weights[:, -1]
    return float(np.mean(np.logaddexp.reduce(scores, axis=1) - scores[np.arange(labels.size), labels]))


def gradient(weights, x, labels):
    """Gradient of ``loss``, in float64, row by row."""
    total = np.zeros_like(weights)
    for row, label in zip(x, labels, strict=True):
        z = weights[:, :-1] @ row + weights[:, -1]
        p = np.exp(z - z.max())
        p /= p.sum()
        p[label] -= 1
        total += np.outer(p, [*row, 1.0])
    return total / labels.size


def fedprox(weights, x, labels, epochs, rate, mu):
    local = weights.copy()
    for _ in range(epochs):
        local = local - rate * (gradient(local, x, labels) + mu * (local - weights))
    return weights - local


def expected(block, weights, update):
    """One row a user, from the user's rows in float64."""
    w, x = weights.astype(np.float64), block.features.astype(np.float64)
    return np.array([update(w, x[a:b], block.labels[a:b]).ravel() for a, b in pairwise(block.offsets)])


def written(local, weights, block, start=0, stop=None):
    """Coordinates of a model whose weights are (classes, features + 1), after local steps or a gradient (None)."""
    stop = weights.size if stop is None else stop
    scratch = np.full(block.budgets.size * (stop - start) + 5, np.nan, dtype=np.float32)
    model = LogisticRegression(weights.shape[1] - 1, weights.shape[0], local)
    return model.prepare(weights.ravel(), block).coordinates(start, stop, scratch).copy()


@pytest.mark.parametrize("features", [1, 7, 13, 61])
@pytest.mark.parametrize("classes", [2, 3, 5, 10, 12])
def test_gradient_against_float64(classes, features):
    weights, block = random_weights(classes, features), population(classes, features).block(0, len(ROWS_OF_USERS))
    measured = written(None, weights, block)
    assert measured.dtype == np.float32
    assert np.abs(measured - expected(block, weights, gradient)).max() <= TOLERANCE


@pytest.mark.parametrize("classes", [2, 10])
def test_gradient_is_the_slope_of_the_loss(classes):
    features, h = 13, 1e-5
    weights = random_weights(classes, features)
    block = population(classes, features).block(0, len(ROWS_OF_USERS))
    measured = written(None, weights, block)
    x, w = block.features.astype(np.float64), weights.astype(np.float64)
    for user, (a, b) in enumerate(pairwise(block.offsets)):
        for place in (0, features, features + 3, w.size - 1):
            nudge = np.zeros(w.size)
            nudge[place] = h
            nudge = nudge.reshape(w.shape)
            slope = (loss(w + nudge, x[a:b], block.labels[a:b]) - loss(w - nudge, x[a:b], block.labels[a:b])) / (2 * h)
            # The difference itself is good to h^2 and to rounding / h, both about 1e-10.
            assert abs(measured[user, place] - slope) <= TOLERANCE + 1e-9


@pytest.mark.parametrize("epochs", [1, 2, 10])
@pytest.mark.parametrize("mu", [0.0, 0.01, 1.0])
@pytest.mark.parametrize(("classes", "features"), [(2, 13), (3, 1), (5, 7), (10, 61), (12, 21)])
def test_fedprox_against_full_local_weights(classes, features, mu, epochs):
    weights, block = random_weights(classes, features), population(classes, features).block(0, len(ROWS_OF_USERS))
    measured = written(FedProx(epochs, RATE, mu), weights, block)
    exact = expected(block, weights, lambda w, x, y: fedprox(w, x, y, epochs, RATE, mu))
    assert np.abs(measured - exact).max() <= TOLERANCE * np.sqrt(epochs)


@pytest.mark.parametrize("features", [1, 13])
@pytest.mark.parametrize("epochs", [1, 2, 10])
def test_fedprox_of_users_with_many_rows(epochs, features):
    """Up to and past the number of rows where the Gram matrix gives way to the local weights."""
    sizes = [399, 3, 400, 401, 1, 977]
    weights, block = random_weights(3, features), population(3, features, sizes).block(0, len(sizes))
    measured = written(FedProx(epochs, RATE, 0.01), weights, block)
    exact = expected(block, weights, lambda w, x, y: fedprox(w, x, y, epochs, RATE, 0.01))
    assert np.abs(measured - exact).max() <= TOLERANCE * np.sqrt(epochs)
    for user in range(len(sizes)):
        alone = written(FedProx(epochs, RATE, 0.01), weights, population(3, features, sizes).block(user, user + 1))
        assert alone.tobytes() == measured[user].tobytes()


def test_the_tolerance_sees_a_wrong_proximal_term_and_a_missing_epoch():
    weights, block = random_weights(10, 13), population(10, 13).block(0, len(ROWS_OF_USERS))
    measured = written(FedProx(10, RATE, 0.01), weights, block)
    for epochs, mu in ((10, 0.0), (10, 0.011), (9, 0.01)):
        other = expected(block, weights, lambda w, x, y, e=epochs, m=mu: fedprox(w, x, y, e, RATE, m))
        assert np.abs(measured - other).max() > 10 * TOLERANCE * np.sqrt(10)


def test_one_epoch_of_fedprox_is_a_gradient_step():
    weights, block = random_weights(10, 13), population(10, 13).block(0, len(ROWS_OF_USERS))
    step, slope = written(FedProx(1, 0.25, 1.0), weights, block), written(None, weights, block)
    assert (step == np.float32(0.25) * slope).all()


LOCAL = [None, FedProx(3, RATE, 0.01)]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    local=st.sampled_from(LOCAL),
    shape=st.sampled_from([(2, 1), (3, 13), (10, 29), (12, 8)]),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_parts_make_up_the_whole(local, shape, cuts):
    weights, block = random_weights(*shape), population(*shape).block(0, len(ROWS_OF_USERS))
    whole = written(local, weights, block)
    assert np.isfinite(whole).all()
    edges = sorted({0, weights.size, *(cut % weights.size for cut in cuts)})
    pieces = [written(local, weights, block, a, b) for a, b in pairwise(edges)]
    assert np.hstack(pieces).tobytes() == whole.tobytes()
    model = LogisticRegression(shape[1], shape[0], local)
    assert model.updates(weights.ravel(), block).tobytes() == whole.tobytes()


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    local=st.sampled_from(LOCAL),
    classes=st.sampled_from([2, 3, 5, 10, 12]),
    features=st.integers(1, 70),
    users=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_an_update_is_the_same_bits_in_every_block(local, classes, features, users):
    start, stop = min(users), max(users) + 1
    weights, people = random_weights(classes, features), population(classes, features)
    everybody = written(local, weights, people.block(0, len(ROWS_OF_USERS)))
    block = written(local, weights, people.block(start, stop))
    assert block.tobytes() == everybody[start:stop].tobytes()
    alone = written(local, weights, people.block(start, start + 1))
    assert alone.tobytes() == everybody[start].tobytes()


def test_confident_models_do_not_overflow():
    weights, block = random_weights(5, 13, scale=1e4), population(5, 13).block(0, len(ROWS_OF_USERS))
    for local in LOCAL:
        assert np.isfinite(written(local, weights, block)).all()
    assert np.abs(written(None, weights, block)).max() <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, r"^local_epochs must be in \[1, inf\), got 0$"),
        ({"epochs": 1.5}, r"^local_epochs must be a whole number, got 1.5$"),
        ({"learning_rate": 0.0}, r"^local_learning_rate must be in \(0, inf\), got 0.0$"),
        ({"learning_rate": np.nan}, r"^local_learning_rate must be in \(0, inf\), got nan$"),
        ({"learning_rate": np.inf}, r"^local_learning_rate must be in \(0, inf\), got inf$"),
        ({"mu": -0.01}, r"^mu must be in \[0, 1000\], got -0.01$"),
        ({"mu": np.nan}, r"^mu must be in \[0, 1000\], got nan$"),
        ({"mu": 1001}, r"^mu must be in \[0, 1000\], got 1001$"),
    ],
)
def test_invalid_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        FedProx(**arguments)


@pytest.mark.parametrize("label", [-1, -5_000_000, 2, 2**40])
def test_a_label_that_the_model_does_not_have(label):
    """Compiled loops would take it for a place in memory."""
    block = UserBlock(0, np.ones(1), np.ones((2, 1), np.float32), np.array([label, 0]), np.array([0, 2]))
    with pytest.raises(ApesError, match=rf"labels must be in \[0, 1\], got {label}"):
        LogisticRegression(1, 2).prepare(np.zeros(4, np.float32), block)
