"""The choice before perturbation: the b largest coordinates stay, and never more than b, whatever the numbers are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from apes import LogisticRegression, Terms
from apes.client.top_b_first import keep_largest_coordinates, keep_largest_quickly, top_b_first
from apes.errors import ParameterError
from apes.population import UserBlock

exact = settings(derandomize=True, deadline=None, max_examples=200)
rows = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)
# Few different sizes, so that many are equal.
tied = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.sampled_from([-2.0, -1.0, 0, 1.0, 2.0])
)


def kept_of(updates, b):
    """What a device keeps; a simulation keeps the same, to the bit."""
    out, quickly = updates.copy(), updates.copy()
    keep_largest_coordinates(out.view(np.uint32), b)
    keep_largest_quickly(quickly.view(np.uint32), b)
    assert out.tobytes() == quickly.tobytes()
    return out


def expected(row, b):
    """The b largest by size, the first ones of equal size; NaN is larger than everything."""
    size = np.where(np.isnan(row), np.inf, np.abs(row))
    # NaN before infinity, by a second key; then by place.
    order = sorted(range(row.size), key=lambda i: (-size[i], not np.isnan(row[i]), i))
    out = np.zeros_like(row)
    out[order[:b]] = row[order[:b]]
    return out


@exact
@given(st.one_of(rows, tied), st.data())
def test_the_largest_stay(updates, data):
    b = data.draw(st.integers(1, updates.shape[1]))
    out = kept_of(updates, b)
    # NaNs of different bits are of different sizes; all else is the same to the bit.
    if not np.isnan(updates).any():
        assert (out == np.stack([expected(row, b) for row in updates])).all()
    assert (np.count_nonzero(out, axis=1) <= b).all()
    stayed = (out == updates) | (np.isnan(out) & np.isnan(updates))
    assert (stayed | (out == 0)).all()


def test_a_large_row():
    updates = np.random.default_rng(3).standard_normal((3, 7850)).astype(np.float32)
    assert (kept_of(updates, 392) == np.stack([expected(row, 392) for row in updates])).all()
    assert (kept_of(updates, 7850) == updates).all()


def test_everything_may_be_broken():
    updates = np.full((2, 50), np.nan, dtype=np.float32)
    assert (np.isnan(kept_of(updates, 7)).sum(axis=1) == 7).all()
    updates = np.full((2, 50), -np.inf, dtype=np.float32)
    assert (np.isinf(kept_of(updates, 7)).sum(axis=1) == 7).all()


def block(users=5, features=30, rows=4):
    random = np.random.default_rng(7)
    return UserBlock(
        0,
        np.ones(users),
        random.random((users * rows, features), dtype=np.float32),
        random.integers(0, 3, users * rows).astype(np.uint8),
        rows * np.arange(users + 1),
    )


MODEL, WEIGHTS = LogisticRegression(30, 3), np.zeros(93, dtype=np.float32)


def test_asked_for_parts_or_for_all():
    """The choice is that of the whole update, whichever coordinates are asked for."""
    users = block()
    dense = MODEL.updates(WEIGHTS, users)
    sparse = kept_of(dense, 9)
    prepared = top_b_first(MODEL.prepare(WEIGHTS, users), 9, (5, 93))
    parts = [
        prepared.coordinates(low, high, np.empty(5 * 31, np.float32)) for low, high in [(0, 31), (31, 62), (62, 93)]
    ]
    assert (np.concatenate(parts, axis=1) == sparse).all()
    assert (prepared.coordinates(0, 93, np.empty(5 * 93, np.float32)) == sparse).all()


def test_more_than_there_are():
    dense = MODEL.prepare(WEIGHTS, block())
    with pytest.raises(ParameterError, match=r"^b must be in \[1, 93\], the number of coordinates; got 94$"):
        top_b_first(dense, 94, (5, 93))
    with pytest.raises(ParameterError, match=r"^b must be in \[1, inf\)"):
        top_b_first(dense, 0, (5, 93))


def test_simulation_and_device_choose_alike():
    model, terms = LogisticRegression(24, 4), Terms(framework="s-apes-first", keep=0.1)
    assert terms.client(model, model.dimensions).kept_first == terms.device_client(model).kept_first == 10
    assert terms.client(model, model.dimensions).sparsifier is terms.device_client(model).sparsifier is None
    assert Terms(framework="s-apes-first").client(LogisticRegression(784, 10), 7850).kept_first == 392
