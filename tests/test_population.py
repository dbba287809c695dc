"""Users in memory: what is refused, and blocks that are views of the data."""

from itertools import pairwise

import numpy as np
import pytest

from apes.errors import ParameterError
from apes.people.people import People

SIZES = [3, 1, 2, 5, 1]


def parts(**change):
    """Arguments of a small valid population, with some replaced."""
    rng = np.random.default_rng(4)
    rows = sum(SIZES)
    return {
        "features": rng.random((rows, 4), dtype=np.float32),
        "labels": (np.arange(rows) % 3).astype(np.uint8),
        "offsets": np.cumsum([0, *SIZES]),
        "budgets": np.linspace(0.1, 0.5, len(SIZES)),
        **change,
    }


def test_blocks_hold_the_right_rows():
    given = parts()
    population = People(**given)
    for start in range(len(SIZES)):
        for stop in range(start + 1, len(SIZES) + 1):
            block = population.block(start, stop)
            assert block.first_user == start
            assert block.budgets.tolist() == given["budgets"][start:stop].tolist()
            assert np.diff(block.offsets).tolist() == SIZES[start:stop]
            assert block.offsets[0] == 0
            for user, (low, high) in enumerate(pairwise(block.offsets), start):
                rows = slice(given["offsets"][user], given["offsets"][user + 1])
                assert (block.features[low:high] == given["features"][rows]).all()
                assert (block.labels[low:high] == given["labels"][rows]).all()


def test_blocks_do_not_copy_the_data():
    given = parts()
    population = People(**given)
    whole, block = population.block(0, len(SIZES)), population.block(1, 3)
    assert np.shares_memory(whole.features, given["features"])
    for name in ("features", "labels", "budgets"):
        assert np.shares_memory(getattr(block, name), getattr(whole, name))
        assert getattr(block, name).flags.c_contiguous


def test_other_types_and_layouts_are_converted():
    given = parts()
    population = People(
        **parts(
            features=np.asfortranarray(given["features"].astype(np.float64)),
            labels=given["labels"].astype(np.int64),
            offsets=given["offsets"].astype(np.int32),
            budgets=given["budgets"].tolist(),
        )
    )
    block = population.block(0, len(SIZES))
    assert (block.features.dtype, block.labels.dtype, block.offsets.dtype) == (np.float32, np.uint8, np.int64)
    assert block.features.flags.c_contiguous
    assert (block.features == given["features"]).all()
    assert (block.labels == given["labels"]).all()
    assert population.budgets.tolist() == given["budgets"].tolist()


def test_budgets_are_the_populations_own():
    given = parts()
    population = People(**given)
    given["budgets"][:] = 100.0
    assert population.budgets.max() == 0.5


ROWS = sum(SIZES)
NOT_FINITE = np.zeros((ROWS, 4), dtype=np.float32)
NOT_FINITE[2, 1] = np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgets": np.array([])}, r"^budgets must be a non-empty list of numbers, got shape \(0,\)$"),
        ({"budgets": np.array([1, 1, 0, 1, 1.0])}, r"^budgets\[2\] must be in \(0, inf\), got 0.0$"),
        ({"budgets": np.array([1, 1, 1, np.nan, 1])}, r"^budgets\[3\] must be in \(0, inf\), got nan$"),
        ({"budgets": np.ones(4)}, r"^offsets must have one entry more than the 4 budgets, got 6$"),
        ({"offsets": np.array([0, ROWS])}, r"^offsets must have one entry more than the 5 budgets, got 2$"),
        ({"offsets": np.array([1, 3, 4, 6, 11, 12])}, r"^offsets must rise from 0 to the number of rows"),
        ({"offsets": np.array([0, 3, 4, 6, 11, 13])}, r"^offsets must rise from 0 to the number of rows"),
        ({"offsets": np.array([0, 3, 3, 6, 11, 12])}, r"^offsets must rise .* by at least 1 per user$"),
        ({"offsets": np.array([0, 4, 3, 6, 11, 12])}, r"^offsets must rise .* by at least 1 per user$"),
        (
            {"labels": np.zeros(ROWS - 1, np.uint8)},
            r"^labels must have one entry per row of features \(12, 4\), got \(11,\)",
        ),
        ({"labels": np.zeros((ROWS, 1), np.uint8)}, r"^labels must have one entry per row of features"),
        ({"features": np.zeros(ROWS, np.float32)}, r"^labels must have one entry per row of features \(12,\)"),
        ({"features": NOT_FINITE}, r"^features\[2, 1\] must be finite, got nan$"),
        ({"features": np.full((ROWS, 4), np.inf)}, r"^features\[0, 0\] must be finite, got inf$"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ParameterError, match=message):
        People(**parts(**change))


@pytest.mark.parametrize("which", ["budgets", "targets"])
def test_a_person_has_one_budget_and_one_target(which):
    own = {"budgets": [0.1, 0.1, 0.3], "targets": [1.0, 1.0, 2.0]}
    people = People.from_arrays(np.zeros((3, 2)), [0, 1, 0], users=["a", "a", "b"], **own)
    assert (people.budgets.tolist(), people.targets.tolist()) == ([0.1, 0.3], [1.0, 2.0])
    for other in ([0.5, 0.4, 0.3], [0.4, 0.5, 0.3]):
        with pytest.raises(ParameterError, match=rf"^{which} must be equal within a user, got 0.4 and 0.5 for 'a'$"):
            People.from_arrays(np.zeros((3, 2)), [0, 1, 0], users=["a", "a", "b"], **own | {which: other})


@pytest.mark.parametrize("label", [65536, -1])
def test_labels_that_are_no_class(label):
    with pytest.raises(ParameterError, match=rf"^labels must be in \[0, 65535\], got {label} to {label}$"):
        People(**parts(labels=np.full(ROWS, label)))
    with pytest.raises(ParameterError, match=r"^labels must be classes or real-valued targets, got <U3$"):
        People(**parts(labels=np.full(ROWS, "cat")))


@pytest.mark.parametrize(("label", "kind"), [(255, np.uint8), (256, np.uint16), (65535, np.uint16)])
def test_labels_take_as_few_bytes_as_hold_them(label, kind):
    labels = np.append(np.zeros(ROWS - 1, dtype=np.int64), label)
    people = People(**parts(labels=labels))
    held = people.block(0, len(SIZES)).labels
    assert held.dtype == kind
    assert held.tolist() == labels.tolist()
    assert people.classes == label + 1


def test_features_that_float32_cannot_hold():
    with pytest.raises(ParameterError, match=r"^features"):
        People(**parts(features=np.full((ROWS, 4), 1e39)))


def test_the_digest_sees_every_part():
    """A run goes on with the same people only: data, budgets, and own targets."""
    given, targets = parts(), np.full(len(SIZES), 2.0)
    changes = [
        {"features": given["features"] + 1},
        {"labels": given["labels"][::-1]},
        {"offsets": np.cumsum([0, 1, 3, 2, 5, 1])},
        {"budgets": given["budgets"][::-1]},
        {"targets": targets},
        {"targets": targets + 1},
    ]
    digests = [People(**given).digest, *(People(**parts(**change)).digest for change in changes)]
    assert len(set(digests)) == len(digests)
    assert People(**parts()).digest == digests[0]


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (4, 6), (5, 6), (-1, 2), (2, 2), (3, 1)])
def test_a_block_of_users_that_there_are_not(start, stop):
    """Shorter than was asked for, it would leave somebody out who is charged."""
    people = People(**parts())
    with pytest.raises(ParameterError, match=r"start and stop must be in order within \[0, 5\]"):
        people.block(start, stop)
    with pytest.raises(ParameterError, match=r"start and stop must be in order within \[1, 4\]"):
        people.part(1, 4).block(start, stop)
