"""People in memory against somebody who brings what is missing, ambiguous or does not fit."""

import numpy as np
import pytest

import apes
from apes import DataError, ParameterError, People

NAN = float("nan")


def of_ids(users, **more):
    rows = len(users)
    return People.from_arrays(np.ones((rows, 2)), np.arange(rows) % 2, users=users, budgets="constant:0.5", **more)


class Items:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        return np.ones(2, dtype=np.float32), at % 2


# Sorting these finds no equal ones: a person would be cut into many.
MISSING = [
    (np.array([3, NAN, 1, 2, NAN, 3, 1, NAN, 2, 3, 1], dtype=object), r"users\[1\] must be an id, got none \(nan\)"),
    ([1.0, 2.0, NAN, 2.0], r"users\[2\] must be an id, got none \(nan\)"),
    (np.array(["2020-01-01", "NaT", "NaT"], dtype="datetime64[D]"), r"users\[1\] must be an id, got none"),
    (np.ma.array([1, 2, 3], mask=[False, False, True]), r"users\[2\] must be an id, got none \(masked\)"),
    (["a", "b", NAN, "a"], r"users\[2\] must be an id, got none \(nan\)"),
    (["a", "", "a"], r"users\[1\] must be an id, got none \(''\)"),
    (np.array([frozenset([1]), frozenset([2])] * 2, dtype=object), r"users\[1\] must be an id that has an order"),
]


@pytest.mark.parametrize(("users", "words"), MISSING)
def test_ids_that_tell_nobody_apart(users, words):
    with pytest.raises(ParameterError, match=words):
        of_ids(users)
    with pytest.raises(ParameterError, match=words):
        People.from_torch(Items(len(users)), users=users, budgets="constant:0.5")


def test_ids_are_taken_as_they_are():
    assert of_ids(np.array([(1, 2), (0, 3), (1, 2)], dtype="i8,i8")).budgets.size == 2
    assert of_ids(["a", "b", "a"]).budgets.size == 2
    # NumPy would make one number of the first two.
    assert of_ids([2**53, 2**53 + 1, 0.5]).budgets.size == 3
    pairs = np.empty(3, dtype=object)
    pairs[:] = [(1, 2), (0, 3), (1, 2)]
    assert np.diff(of_ids(pairs).block(0, 2).offsets).tolist() == [1, 2]


def test_classes_can_be_said():
    rows, labels = np.ones((6, 2)), [0, 1, 0, 1, 0, 1]
    assert People.from_arrays(rows, labels, budgets="constant:1", classes=5).classes == 5
    assert People.from_torch(Items(6), users=range(6), budgets="constant:1", classes=5).classes == 5
    for classes, words in (
        (1, r"labels must be in \[0, 0\]"),
        (0, "classes must be in"),
        (2.5, "classes must be a whole"),
    ):
        with pytest.raises(ParameterError, match=words):
            People.from_arrays(rows, labels, budgets="constant:1", classes=classes)
    with pytest.raises(ParameterError, match="classes must be left out: labels are real-valued; got 2"):
        People.from_arrays(rows, np.linspace(0, 1, 6), budgets="constant:1", classes=2)


ROWS = np.ones((6, 3))


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ((ROWS, np.full(6, 7)), r"test labels must be in \[0, 1\], there being 2 classes, got 7 to 7"),
        ((ROWS[:, :2], np.zeros(6, int)), r"test must have rows of shape \(3,\), got \(2,\)"),
        ((ROWS[:5], np.zeros(6, int)), "test must have one label per row"),
        ((ROWS, np.zeros(6)), "test must have classes as labels, as people have, got float64"),
        ((ROWS[:0], np.zeros(0, int)), "test must have one label per row, and a row"),
        (ROWS, "test must be a pair of features and labels, got ndarray"),
    ],
)
def test_examples_that_do_not_fit(test, words):
    with pytest.raises(ParameterError, match=words):
        People.from_arrays(ROWS, [0, 1] * 3, budgets="constant:1", test=test)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": [[1, 2], [1]]}, "features must be a list of numbers, got lists of different lengths"),
        ({"features": [[10**5000]]}, "features must be a list of numbers, got a list"),
        ({"labels": [[0], [1, 2]]}, "labels must be a list of numbers, got lists of different lengths"),
        ({"offsets": [0, NAN, 2]}, "offsets must be a list of numbers, got float64"),
        ({"offsets": [0, 2, 2]}, "offsets must rise from 0"),
        ({"budgets": [0.5, 10**5000]}, "budgets must be a list of numbers"),
        ({"classes": 1}, r"labels must be in \[0, 0\]"),
    ],
)
def test_people_by_hand(change, words):
    whole = {"features": [[1, 2], [3, 4]], "labels": [0, 1], "offsets": [0, 1, 2], "budgets": [0.5, 1]}
    assert People(**whole).block(0, 2).features.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ParameterError, match=words):
        People(**{**whole, **change})


def table(**change):
    return {"u": ["a", "b", "c", "d"], "x": [0.1, 0.2, 0.3, 0.4], "y": ["p", "q", "p", "q"], **change}


def of_table(columns, **change):
    choices = {"user": "u", "label": "y", "budgets": "constant:0.5", "bounds": (0, 1), "test_share": 0.0}
    return People.from_table(columns, **{**choices, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": ["p", NAN, "q", "p"]}, "the table, row 2, column 'y': is missing"),
        ({"u": ["p", "q", NAN, "p"]}, "the table, row 3, column 'u': is missing"),
        ({"x": [[1], [1, 2], [3], [4]]}, "the table, column 'x': must have one number per row"),
        ({"x": [1, 10**5000, 2, 3]}, "row 2, column 'x': must be a number, got a number of 16610 bits"),
        ({"u": [1, 10**5000, 2, 3]}, "row 2, column 'u': must be shorter, got a number of 16610 bits"),
        ({"x": [1, 1 + 2j, 2, 3]}, "row 1, column 'x': must be a real number"),
        ({"x": np.array([1, np.complex64(2j), 2, 3], dtype=object)}, "row 2, column 'x': must be a real number"),
    ],
)
def test_cells_that_cannot_be_read(change, words):
    with pytest.raises(DataError) as error:
        of_table(table(**change))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("columns", "change", "words"),
    [
        (
            {"u": [1, 2, 3, 4]},
            {"budgets": {1: 0.1, "1": 5.0, 2: 0.1, 3: 0.1, 4: 0.1}},
            "two that are the same text: '1'",
        ),
        ({}, {"budgets": [0.1, 0.2, 0.3, 0.4]}, "budgets of a table must be by name"),
        ({"b": [1, 2, 1, 2]}, {"budget": "b", "budgets": [0.1] * 4}, "budgets must be levels by name, or left out"),
        ({"b": [1, 2, 1, 2]}, {"budget": "b", "budgets": {1: 0.1, "1": 1, 2: 1}}, "two that are the same text: '1'"),
        ({}, {"bounds": (0, 5e-324)}, "bounds of column 'x' must be at least 1e-300 apart"),
    ],
)
def test_choices_of_two_meanings(columns, change, words):
    with pytest.raises(ParameterError) as error:
        of_table(table(**columns), **change)
    assert words in str(error.value)


def test_names_of_levels_and_users_may_be_numbers():
    assert of_table(table(b=[1, 2, 1, 2]), budget="b", budgets={1: 0.1, 2: 1}).budgets.tolist() == [0.1, 1, 0.1, 1]
    truth = of_table(table(b=[True, False] * 2), budget="b", budgets={True: 0.1, False: 1})
    assert truth.schema.budget_levels == (("True", 0.1), ("False", 1.0))
    own = of_table(table(u=[1.0, 2.0, 3.0, 4.0]), budgets={1.0: 0.1, 2: 5, "3": 0.3, 4.0: 0.4})
    assert own.budgets.tolist() == [0.1, 5, 0.3, 0.4]


def trained(columns, plan, **change):
    people = of_table(columns, **change)
    return apes.train(apes.LogisticRegression.of(people), people, plan)


PLAN = apes.Plan(norm=0.5, clip=0.2, rounds=1, delta=1e-3, seed=1)


def test_class_names_beyond_64_bits_stay_texts():
    names = [str(2**63 + 1), "1"] * 20
    columns = {"u": np.arange(40), "x": np.linspace(0, 1, 40), "y": names}
    model = trained(columns, PLAN).model
    assert set(model.predict({"x": [0.0, 0.5, 1.0]}).tolist()) <= set(names)
    assert model.to_sklearn().classes_.tolist() == ["1", str(2**63 + 1)]


def test_targets_in_a_file_are_of_nobody_in_a_table(tmp_path):
    (tmp_path / "t.csv").write_text("target\n" + "50\n" * 40)
    columns = {"u": np.arange(40), "x": np.linspace(0, 1, 40), "y": ["p", "q"] * 20}
    plan = apes.Plan(clip=0.2, rounds=1, delta=1e-3, target_epsilon=f"file:{tmp_path / 't.csv'}", seed=1)
    with pytest.raises(ParameterError, match="target_epsilon must be a number or own:FACTOR for people of a table"):
        trained(columns, plan)
