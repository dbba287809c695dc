"""What is asked of anybody's model, at the door of its updates: whose memory it gets, and what is checked."""

from dataclasses import replace

import numpy as np
import pytest

from apes.errors import ParameterError
from apes.models.model import prepare_updates
from apes.population import UserBlock

WEIGHTS = np.arange(4, dtype=np.float32)


def block():
    rows, labels = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6, dtype=np.uint8)
    return UserBlock(0, np.ones(3), rows, labels, np.array([0, 2, 4, 6]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 2, 2, 6])}, "offsets must rise from 0 to the number of rows, 6, by at least one row"),
        ({"offsets": np.array([0, 4, 2, 6])}, "offsets must rise"),
        ({"offsets": np.array([1, 2, 4, 6])}, "offsets must rise"),
        ({"offsets": np.array([0, 2, 4, 5])}, "offsets must rise"),
        ({"offsets": np.array([0, 2, 4, 7])}, "offsets must rise"),
        ({"offsets": np.array([0.0, 2.0, 4.0, 6.0])}, "offsets must rise"),
        ({"offsets": np.array([0])}, "offsets must rise"),
        ({"offsets": np.array([[0, 2, 4, 6]])}, "offsets must rise"),
        ({"features": np.zeros((5, 2), np.float32)}, "offsets must rise from 0 to the number of rows, 5"),
        ({"labels": np.zeros(5, np.uint8)}, "labels must have one entry per row, 6, got 5"),
        ({"budgets": np.ones(2)}, "budgets must have one entry per user, 3, got shape"),
        ({"budgets": np.ones((3, 1))}, "budgets must have one entry per user, 3, got shape"),
    ],
)
def test_a_block_whose_parts_do_not_fit_cannot_be_made(change, message):
    """A user without rows would report what lay in memory; offsets beyond the rows would be read and written."""
    with pytest.raises(ParameterError, match=message):
        replace(block(), **change)


class Model:
    """Whose updates are made by a function of the block."""

    def __init__(self, make):
        self.make = make

    def updates(self, weights, users):
        return self.make(users)


def some_updates(users):
    return np.add.outer(users.budgets, np.arange(4)).astype(np.float32)


def whole(model, **choices):
    return prepare_updates(model, WEIGHTS, block(), **choices).coordinates(0, 4, np.empty(12, dtype=np.float32))


@pytest.mark.parametrize("name", ["features", "labels"])
def test_a_model_cannot_change_anybodys_rows_or_labels(name):
    users = block()
    before = getattr(users, name).copy()

    def in_place(given):
        getattr(given, name)[:] = 0
        return some_updates(given)

    with pytest.raises(ValueError, match="read-only"):
        prepare_updates(Model(in_place), WEIGHTS, users)
    assert (getattr(users, name) == before).all()


class Forgetful:
    """A fast road that does not write the coordinates that it forgets."""

    def __init__(self, users, forgotten):
        self.values, self.forgotten = some_updates(users), forgotten

    def coordinates(self, start, stop, scratch):
        out = scratch[: len(self.values) * (stop - start)].reshape(-1, stop - start)
        for c in range(start, stop):
            if c != self.forgotten:
                out[:, c - start] = self.values[:, c]
        return out


class Fast(Model):
    """A model whose updates are written out part by part."""

    def prepare(self, weights, users):
        return Forgetful(users, self.make)


def test_what_a_fast_road_forgets_to_write_is_not_a_number():
    """And not what an earlier user's update left in that memory."""
    scratch = np.full(6, 7.0, dtype=np.float32)
    prepared = prepare_updates(Fast(2), WEIGHTS, block())
    found = prepared.coordinates(2, 4, scratch)
    assert np.isnan(found[:, 0]).all()
    assert (found[:, 1] == some_updates(block())[:, 3]).all()
    assert (whole(Fast(None)) == some_updates(block())).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_updates_that_are_not_finite_are_named_but_on_a_device(broken):
    def make(users):
        values = some_updates(users)
        values[1, 2] = broken
        return values

    with pytest.raises(ParameterError, match=rf"^Model.updates\[1, 2\] must be finite, got {broken}$"):
        whole(Model(make))
    assert np.isfinite(whole(Model(make), is_checked=False)).sum() == 11
