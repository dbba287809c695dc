"""Oriented gradients against a plain version in NumPy, and what a public map must keep to."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apes import ParameterError
from apes.data.scale import ROW_NORM
from apes.features.named import named_features
from apes.features.oriented_gradients import OrientedGradients
from apes.features.scale import scaled_rows


def plain(images, cells, orientations, side):
    """The same map, pixel by pixel, in float64."""
    out = []
    for image in images.reshape(-1, side, side).astype(np.float64):
        padded = np.pad(image, 1)
        across, down = padded[1:-1, 2:] - padded[1:-1, :-2], padded[2:, 1:-1] - padded[:-2, 1:-1]
        strengths = np.zeros((orientations, cells, cells))
        for y in range(side):
            for x in range(side):
                turn = np.arctan2(down[y, x], across[y, x]) / (2 * np.pi) * orientations
                low = int(np.floor(turn))
                for i in range(cells):
                    for j in range(cells):
                        far = [abs(p - ((c + 0.5) * side / cells - 0.5)) * cells / side for p, c in ((y, i), (x, j))]
                        weight = max(0, 1 - far[0]) * max(0, 1 - far[1]) * np.hypot(across[y, x], down[y, x])
                        strengths[low % orientations, i, j] += weight * (1 - (turn - low))
                        strengths[(low + 1) % orientations, i, j] += weight * (turn - low)
        along = np.array([np.maximum(0, 1 - np.abs(np.arange(side) - ((c + 0.5) * side / cells - 0.5)) * cells / side)
                          .sum() for c in range(cells)])  # fmt: skip
        row = np.sqrt(strengths / along[:, None] / along[None]).ravel()
        row -= row.mean()
        out.append(row * 9 / max(np.linalg.norm(row), 1e-9))
    return np.array(out)


@pytest.mark.parametrize(("side", "cells", "orientations"), [(8, 3, 8), (7, 2, 5), (28, 5, 8), (6, 6, 2)])
def test_the_compiled_map_is_the_plain_one(side, cells, orientations):
    images = np.random.default_rng(4).random((3, side * side), dtype=np.float32)
    found = OrientedGradients(side, cells, orientations)(images)
    assert found.shape == (3, orientations * cells * cells)
    assert found == pytest.approx(plain(images, cells, orientations, side), abs=2e-4)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_rows_depend_on_themselves_alone_and_have_one_norm(seed, scale):
    images = (scale * np.random.default_rng(seed).random((5, 784))).astype(np.float32)
    found = OrientedGradients()(images)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.full(5, ROW_NORM), rel=1e-5)
    assert found.mean(axis=1) == pytest.approx(np.zeros(5), abs=1e-5)
    assert (OrientedGradients()(images[2:3]) == found[2:3]).all()


def test_blank_images_stay_blank_and_nothing_else_is_taken():
    assert (OrientedGradients()(np.full((2, 784), 0.0, dtype=np.float32)) == 0).all()
    for rows in (np.zeros((2, 783)), np.zeros(784)):
        with pytest.raises(ParameterError, match="28 x 28 pixels, got shape"):
            OrientedGradients()(rows.astype(np.float32))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"cells": 0}, r"cells must be in \[1, 28\], got 0"),
        ({"cells": 29}, r"cells must be in \[1, 28\], got 29"),
        ({"side": 1}, r"side must be in \[2, inf\), got 1"),
        ({"orientations": 1}, r"orientations must be in \[2, 64\], got 1"),
        ({"norm": float("nan")}, r"norm must be in \(0, inf\), got nan"),
    ],
    ids=str,
)
def test_bad_choices(choice, said):
    with pytest.raises(ParameterError, match=said):
        OrientedGradients(**choice)


def test_every_choice_is_in_the_digest():
    changed = [{}, {"side": 14}, {"cells": 3}, {"orientations": 4}, {"norm": 2.0}]
    assert len({OrientedGradients(**choice).digest for choice in changed}) == len(changed)
    assert json.loads(OrientedGradients().digest)[0] == "oriented-gradients"


def test_names():
    assert named_features("pixels") is None
    assert named_features("oriented-gradients") == OrientedGradients()
    assert named_features("oriented-gradients:7") == OrientedGradients(cells=7)
    for name in ("gradients", "oriented-gradients:", "oriented-gradients:x", "oriented-gradients:99999", "pixels:2"):
        with pytest.raises(ParameterError, match=r"features must be pixels or oriented-gradients\[:CELLS\], got"):
            named_features(name)
    with pytest.raises(ParameterError, match="cells must be in"):
        named_features("oriented-gradients:0")


def test_scaled_rows():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]], dtype=np.float32)
    assert scaled_rows(rows, 10.0) == pytest.approx(np.array([[6.0, 8.0], [0.0, 0.0], [10.0, 0.0]]))
