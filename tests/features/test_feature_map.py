"""People seen through a feature map: what a map may do, and what is checked of what it returns."""

from dataclasses import dataclass

import numpy as np
import pytest

import apes
from apes.errors import ParameterError
from apes.features import feature_map
from apes.features.feature_map import mapped
from apes.population import Examples
from apes.training.cohort import Cohort

ROWS = np.random.default_rng(1).random((12, 3)).astype(np.float32)
LABELS = np.arange(12, dtype=np.uint8) % 2
PEOPLE = apes.People.from_arrays(ROWS, LABELS, users=np.arange(12) // 2, budgets="constant:0.5")


@dataclass
class Map:
    """Does as it is told, and counts how often it is asked."""

    make: object
    digest: str = "a map"
    asked: int = 0

    def __call__(self, rows):
        self.asked += 1
        return self.make(rows)


def seen(make, **choices):
    people, test = mapped(PEOPLE, Examples(ROWS, LABELS), Map(make, **choices))
    return people.block(1, 4), test


def test_rows_are_features_and_all_else_stays():
    block, test = seen(lambda rows: 2 * rows[:, :2])
    own = PEOPLE.block(1, 4)
    assert (block.features == 2 * own.features[:, :2]).all()
    assert (block.labels == own.labels).all()
    assert (block.offsets == own.offsets).all()
    assert block.budgets.tolist() == own.budgets.tolist()
    assert (test.features == 2 * ROWS[:, :2]).all()


def test_features_of_a_block_are_computed_once():
    features = Map(lambda rows: 2 * rows)
    people, _ = mapped(PEOPLE, None, features)
    first = people.block(0, 3).features
    assert np.shares_memory(people.block(0, 3).features, first)
    assert features.asked == 1


class Counting:
    """Doubles rows, and notes how many it was asked for."""

    digest = "counting"

    def __init__(self):
        self.sizes = []

    def __call__(self, rows):
        self.sizes.append(len(rows))
        return 2 * rows


def crowd(users=1000):
    """People with one to three rows each."""
    sizes = np.random.default_rng(2).integers(1, 4, users)
    rows = np.random.default_rng(3).random((sizes.sum(), 3)).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return apes.People(rows, np.arange(len(rows), dtype=np.uint8) % 2, offsets, np.full(users, 0.5))


def test_a_row_is_mapped_once_however_cohorts_shrink():
    """People whose own targets are reached leave, and blocks of the others never begin at the same users again."""
    people, features, rng = crowd(), Counting(), np.random.default_rng(4)
    seen_by, _ = mapped(people, None, features)
    present = np.ones(1000, dtype=bool)
    for _ in range(12):
        users = np.flatnonzero(present)
        cohort = Cohort(seen_by, users)
        for start in range(0, users.size, 256):
            block = cohort.block(start, min(start + 256, users.size))
            own = Cohort(people, users).block(start, min(start + 256, users.size))
            assert (block.features == 2 * own.features).all()
        present[rng.choice(users, users.size // 10, replace=False)] = False
    assert sum(features.sizes) == len(people.block(0, 1000).features)


def test_features_are_kept_as_long_as_there_is_room(monkeypatch):
    people, features = crowd(), Counting()
    room = 5 * people.block(0, 256).features.nbytes // 2
    monkeypatch.setattr(feature_map, "MOST_BYTES", room)
    seen_by, _ = mapped(people, None, features)
    for _ in range(3):
        for start in range(0, 1000, 256):
            stop = min(start + 256, 1000)
            assert (seen_by.block(start, stop).features == 2 * people.block(start, stop).features).all()
    # Two segments of four fit; the others are computed in each of three rounds.
    assert len(features.sizes) == 2 + 3 * 2


def test_without_room_nobody_is_mapped_who_was_not_asked_for(monkeypatch):
    """People who are left are asked for one by one: a segment for each of them would be a thousand times the work."""
    people, features = crowd(), Counting()
    monkeypatch.setattr(feature_map, "MOST_BYTES", 0)
    seen_by, _ = mapped(people, None, features)
    seen_by.block(0, 256)
    features.sizes.clear()
    for user in range(0, 1000, 100):
        one = people.block(user, user + 1).features
        assert (seen_by.block(user, user + 1).features == 2 * one).all()
    assert sum(features.sizes) == sum(len(people.block(user, user + 1).features) for user in range(0, 1000, 100))


def test_a_part_maps_its_own_users_only():
    people, features = crowd(), Counting()
    part = mapped(people, None, features)[0].part(300, 700)
    assert (part.block(450, 460).features == 2 * people.block(450, 460).features).all()
    assert (part.block(690, 700).features == 2 * people.block(690, 700).features).all()
    assert sum(features.sizes) <= len(people.block(300, 700).features)


def test_a_map_cannot_write_into_anybodys_rows():
    def in_place(rows):
        rows *= 2
        return rows

    before = PEOPLE.block(0, 6).features.copy()
    with pytest.raises(ValueError, match="read-only"):
        seen(in_place)
    assert (PEOPLE.block(0, 6).features == before).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda rows: np.where(rows == rows[2, 1], np.float32(np.nan), rows), r"Map\[2, 1\] must be finite, got nan"),
        (lambda rows: rows / np.float32(0), r"Map\[0, 0\] must be finite, got inf"),
        (lambda rows: rows.astype(np.float64), r"Map must return \d+ float32 rows, got float64"),
        (lambda rows: rows[1:], r"Map must return 12 float32 rows, got float32 \(11, 3\)"),
        (lambda rows: rows[:, 0], r"Map must return \d+ float32 rows, got float32 \(12,\)"),
        (lambda rows: rows.tolist(), r"Map must return \d+ float32 rows, got list"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_a_map_returns_is_checked(make, said):
    with pytest.raises(ParameterError, match=said):
        seen(make)


@pytest.mark.parametrize("digest", ["", None, 3])
def test_a_map_has_a_digest(digest):
    with pytest.raises(ParameterError, match=r"Map.digest must be a text"):
        seen(lambda rows: rows, digest=digest)
