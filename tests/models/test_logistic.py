"""Logistic regression: shapes, and evaluation against a direct float64 computation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apes.errors import ParameterError
from apes.models.logistic import LogisticRegression
from apes.population import Examples

EPS32 = float(np.finfo(np.float32).eps)


def direct(weights, images, labels, classes):
    """Scores, accuracy and mean cross-entropy in float64, an image at a time."""
    w = weights.reshape(classes, -1)
    scores = np.array([[w[c, :-1] @ image + w[c, -1] for c in range(classes)] for image in images.astype(np.float64)])
    losses = [np.logaddexp.reduce(s) - s[label] for s, label in zip(scores, labels, strict=True)]
    return scores, float((scores.argmax(axis=1) == labels).mean()), float(np.mean(losses))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    features=st.integers(1, 40),
    classes=st.integers(2, 12),
    scale=st.sampled_from([0.0, 0.1, 3.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_evaluate_against_float64(features, classes, scale, seed):
    rng = np.random.default_rng(seed)
    model = LogisticRegression(features, classes)
    # Weights that float32 holds, so that only the arithmetic differs.
    weights = (scale * rng.normal(size=model.dimensions)).astype(np.float32).astype(np.float64)
    images = rng.random((30, features), dtype=np.float32)
    labels = rng.integers(0, classes, 30).astype(np.uint8)
    scores, accuracy, loss = direct(weights, images, labels, classes)
    # A float32 dot product of p terms is off by at most p eps times the sum of their sizes; the loss moves by
    # at most twice the largest error of a score.
    rounding = (features + 2) * EPS32 * (np.abs(weights).reshape(classes, -1).sum(axis=1).max() + 1e-30)
    measured = model.evaluate(weights, Examples(images, labels))
    margin = np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2]
    is_clear = bool((margin > 2 * rounding).all()) or scale == 0
    assert abs(measured[0] - accuracy) <= (0 if is_clear else (margin <= 2 * rounding).mean())
    assert abs(measured[1] - loss) <= 2 * rounding + 1e-12 * abs(loss)


def test_scores_that_would_overflow_an_exponential():
    model = LogisticRegression(1, 2)
    examples = Examples(np.ones((1, 1), np.float32), np.array([1], np.uint8))
    assert model.evaluate(np.array([1e4, 0.0, -1e4, 0.0]), examples) == (0.0, 2e4)
    assert model.evaluate(np.array([-1e4, 0.0, 1e4, 0.0]), examples) == (1.0, 0.0)


def test_a_model_of_zeros_knows_nothing():
    model = LogisticRegression(784, 10)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10, dtype=np.uint8), 3)
    accuracy, loss = model.evaluate(model.start(), Examples(rng.random((30, 784), dtype=np.float32), labels))
    assert accuracy == 0.1  # ties go to class 0
    assert loss == pytest.approx(np.log(10), rel=1e-14)


def test_shapes_and_layout():
    model = LogisticRegression(3, 2)
    assert model.dimensions == 8
    assert LogisticRegression(784, 10).dimensions == 7850
    assert model.start().tolist() == [0.0] * 8
    assert model.start().dtype == np.float64
    shaped = model.shaped(np.arange(8.0))
    assert shaped.dtype == np.float32
    assert shaped.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]  # class after class, the bias last
    with pytest.raises(ValueError, match="reshape"):
        model.shaped(np.zeros(7))


@pytest.mark.parametrize(("features", "classes", "name"), [(0, 2, "features"), (1, 1, "classes"), (1.0, 2, "features")])
def test_invalid_shapes(features, classes, name):
    with pytest.raises(ParameterError, match=rf"^{name} must be"):
        LogisticRegression(features, classes)
