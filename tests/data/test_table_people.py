"""Whose rows they are: how many count, who judges, which budget is whose; and what is said about it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from people_tables import CHOICES, columns

from apes import DataError, ParameterError, People, Schema
from apes.data.table.people_rows import read_people
from apes.data.table.reading import Reading
from apes.data.table.rows import encode_examples, encode_table

# Of every column of numbers.
UNIT = {"*": (0.0, 1.0)}


def crowd(users, most=5, seed=1):
    """A table of so many users with 1 to ``most`` rows each, in random order."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(users), rng.integers(1, most + 1, users)))
    return {"user": who, "x": rng.random(who.size), "y": rng.integers(0, 3, who.size), "e": 0.1 + who / users}


def people_of(table, **change):
    return People.from_table(table, **{"user": "user", "label": "y", "budget": "e", "bounds": UNIT, **change})


def test_the_first_rows_of_a_person_count():
    table = {"user": ["b", "a", "b", "b", "a", "c"], "x": np.arange(6) / 10, "y": [0, 1, 0, 1, 0, 1]}
    people = People.from_table(
        table, user="user", label="y", budgets="constant:1", bounds=UNIT, max_rows=2, test_share=0
    )
    block = people.block(0, 3)
    assert np.diff(block.offsets).tolist() == [2, 2, 1]
    assert np.allclose(block.features[:, 0], 9 * (2 * np.array([0.1, 0.4, 0.0, 0.2, 0.5]) - 1), atol=1e-6)
    assert (people.facts.rows, people.facts.left_out) == (5, 1)


def test_nobody_is_split_and_nobody_is_lost():
    table = crowd(500)
    rows = read_people(table, Reading("user", "y", "e", bounds=UNIT, test_share=0.3))
    train = set(rows.names.tolist())
    x = 9 * (2 * table["x"] - 1)
    of_train = np.array([str(who) in train for who in table["user"].tolist()])
    assert sorted(rows.features[:, 0]) == pytest.approx(sorted(x[of_train]), abs=1e-5)
    assert sorted(rows.test_features[:, 0]) == pytest.approx(sorted(x[~of_train]), abs=1e-5)
    assert rows.facts.users == len(train)
    assert rows.facts.users + rows.facts.test_users == 500
    # 150 expected, a standard deviation of 10.2: five of them.
    assert abs(rows.facts.test_users - 150) < 52


@given(st.randoms(use_true_random=False), st.integers(0, 2**64 - 1), st.floats(0, 0.9))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_who_judges_depends_on_nobody_else(random, seed, share):
    table = crowd(60)
    reading = Reading("user", "y", "e", bounds=UNIT, test_share=share, seed=seed)
    whole = set(read_people(table, reading).names.tolist())
    order = list(range(table["x"].size))
    random.shuffle(order)
    mixed = read_people({name: values[order] for name, values in table.items()}, reading)
    assert set(mixed.names.tolist()) == whole
    some = np.isin(table["user"], random.sample(range(60), 40))
    few = read_people({name: values[some] for name, values in table.items()}, reading)
    assert set(few.names.tolist()) == whole & {str(who) for who in table["user"][some].tolist()}


def test_another_seed_another_test_part():
    parts = [
        set(read_people(crowd(100), Reading("user", "y", "e", bounds=UNIT, seed=seed)).names.tolist())
        for seed in (1, 2)
    ]
    assert parts[0] != parts[1]


def test_the_order_of_people_in_a_table_does_not_matter():
    table = crowd(50, most=1)
    order = np.random.default_rng(2).permutation(50)
    assert people_of(table).digest == people_of({name: values[order] for name, values in table.items()}).digest


def test_budgets_by_column_by_level_by_user_and_by_law():
    table = columns()
    assert People.from_table(table, **CHOICES).budgets.tolist() == [1.0, 0.1, 1.0, 0.1]
    by_number = {**CHOICES, "budgets": None}
    numbers = np.where(table["privacy"] == "low", 0.25, 0.75)
    assert People.from_table(table | {"privacy": numbers}, **by_number).budgets.tolist() == [0.75, 0.25, 0.75, 0.25]
    without = {**CHOICES, "budget": None, "ignore": ["privacy"]}
    own = {"u1": 0.1, "u2": 0.2, "u3": 0.3, "u4": 0.4}
    assert People.from_table(table, **{**without, "budgets": own}).budgets.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert People.from_table(table, **{**without, "budgets": "constant:0.7"}).budgets.tolist() == [0.7] * 4
    with pytest.raises(ParameterError, match=r"^budgets must name every user, got none for 'u3'$"):
        People.from_table(table, **{**without, "budgets": {"u1": 1, "u2": 1}})
    for bad in (0.0, -1.0):
        with pytest.raises(DataError, match=r"row 2, column 'privacy': a budget must be in \(0, inf\), got"):
            People.from_table(table | {"privacy": np.where(numbers > 0.5, bad, 0.3)}, **by_number)


def test_ids_that_are_numbers_stay_apart():
    table = {"user": [7.0, 7.0, 70.0], "x": [0.1, 0.2, 0.3], "y": ["a", "b", "a"]}
    rows = read_people(table, Reading("user", "y", bounds=UNIT, test_share=0))
    assert rows.names.tolist() == ["7", "70"]
    texts = read_people(table | {"user": ["07", "7", "7 "]}, Reading("user", "y", bounds=UNIT, test_share=0))
    assert texts.names.tolist() == ["07", "7"]


def test_what_lies_outside_is_clipped_and_said():
    table = {"user": range(4), "x": [-1.0, 0.5, 2.0, 1.0], "z": [0.0, 1.0, 0.0, 1.0], "y": [0, 1, 0, 1]}
    people = People.from_table(table, user="user", label="y", budgets="constant:1", bounds=UNIT, test_share=0)
    assert people.facts.clipped == {"x": 0.5}
    scale = 9 / np.sqrt(2)
    assert np.allclose(people.block(0, 4).features[:, 0], [-scale, 0, scale, scale], atol=1e-6)


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_no_row_is_longer_than_nine(values, low, width):
    count = len(values)
    table = {"user": range(count), "y": [at % 2 for at in range(count)], "x": values, "z": values[::-1]}
    bounds = {"x": (low, low + width), "*": (-1, 1)}
    people = People.from_table(table, user="user", label="y", budgets="constant:1", bounds=bounds, test_share=0)
    assert np.linalg.norm(people.block(0, count).features.astype(np.float64), axis=1).max() <= 9 * (1 + 1e-6)


def test_classes_that_are_given_or_found():
    table = {"user": range(3), "x": [0.1, 0.2, 0.3], "y": ["10", "9", "-1"]}
    choices = {"user": "user", "label": "y", "budgets": "constant:1", "bounds": UNIT, "test_share": 0}
    found = People.from_table(table, **choices)
    assert found.schema.classes == ("-1", "9", "10")
    assert found.schema.class_values().tolist() == [-1, 9, 10]
    given_classes = People.from_table(table, classes=["9", "10", "-1", "x"], **choices)
    assert given_classes.classes == 4
    assert given_classes.block(0, 3).labels.tolist() == [1, 0, 2]
    assert given_classes.schema.class_values().tolist() == ["9", "10", "-1", "x"]
    with pytest.raises(DataError, match=r"row 3, column 'y': must be one of classes 9, 10; got '-1'$"):
        People.from_table(table, classes=["9", "10"], **choices)
    with pytest.raises(ParameterError, match=r"^classes must be 2 to 65536 names, got 1$"):
        People.from_table(table | {"y": ["a"] * 3}, **choices)
    with pytest.raises(ParameterError, match=r"^classes must be names that differ, .* got '9'$"):
        People.from_table(table, classes=["9", "9"], **choices)


def test_real_valued_targets():
    table = {"user": range(4), "x": [0.1, 0.2, 0.3, 0.4], "y": [10.0, 20.0, 30.0, 45.0]}
    choices = {"user": "user", "label": "y", "budgets": "constant:1", "test_share": 0, "task": "regression"}
    people = People.from_table(table, bounds={"y": (0, 40), "x": (0, 1)}, **choices)
    assert people.block(0, 4).labels.tolist() == [-0.5, 0.0, 0.5, 1.0]
    assert people.facts.clipped == {"y": 0.25}
    with pytest.raises(DataError, match=r"row 2, column 'y': must be a number, got 'two'"):
        People.from_table(table | {"y": ["1", "two", "3", "4"]}, bounds=(0, 40), **choices)
    with pytest.raises(ParameterError, match=r"^classes must be left out: task is 'regression'"):
        People.from_table(table, classes=["a", "b"], bounds=(0, 40), **choices)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"user": "who"}, "has no column 'who'"),
        ({"label": "who"}, "has no column 'who'"),
        ({"budget": "who"}, "has no column 'who'"),
        ({"ignore": ["who"]}, "has no column 'who'"),
        ({"categories": {"who": ["a"]}}, "has no column 'who'"),
        ({"categories": {"outcome": ["a"]}}, "categories must be of columns to learn from, got 'outcome'"),
        ({"categories": {"city": []}}, "categories of column 'city' must be 1 to 65536 names, got 0"),
        ({"categories": {"city": ["Ulm", "Ulm"]}}, "categories of column 'city' must be names that differ"),
        ({"bounds": {"agee": (0, 1)}}, "bounds must be of columns to learn from, got 'agee'"),
        ({"bounds": {"outcome": (0, 1)}}, "bounds must be of columns to learn from, got 'outcome'"),
        ({"bounds": {"age": (1, 1)}}, "bounds of column 'age' must be two numbers LOW < HIGH, got 1.0 and 1.0"),
        ({"bounds": {"age": (0, float("inf"))}}, "bounds of column 'age' must be two numbers LOW < HIGH"),
        ({"bounds": {"age": (float("nan"), 1)}}, "bounds of column 'age' must be two numbers LOW < HIGH"),
        ({"bounds": {"age": 3}}, "bounds of column 'age' must be LOW and HIGH, got 3"),
        ({"bounds": {"age": ("a", "b")}}, "bounds of column 'age' must be LOW and HIGH"),
        ({"bounds": (0, 1, 2)}, "bounds of column 'age' must be LOW and HIGH, got (0, 1, 2)"),
        ({"user": "outcome"}, "user, label and budget must be columns of their own, got 'outcome'"),
        ({"ignore": ["user"]}, "user, label and budget must be columns of their own, got 'user'"),
        ({"ignore": ["age", "city"], "bounds": {}, "categories": {}}, "a column beside user, label and budget"),
        ({"task": "guess"}, "task must be one of classification, regression; got 'guess'"),
        ({"max_rows": 0}, "max_rows must be in [1, inf), got 0"),
        ({"test_share": 1.0}, "test_share must be in [0, 1), got 1.0"),
        ({"test_share": -0.1}, "test_share must be in [0, 1], got -0.1"),
        ({"test_share": float("nan")}, "test_share must be in [0, 1], got nan"),
        ({"test_share": 0.999999}, "test_share must leave somebody to train"),
        ({"seed": -1}, "seed must be in [0, 18446744073709551615], got -1"),
        ({"budgets": "uniform2"}, "budgets must be levels by name, or left out, beside a column"),
        ({"budgets": {"low": 0.0, "high": 1}}, "budget level 'low' must be in (0, inf), got 0.0"),
        ({"budget": None, "budgets": None, "ignore": ["privacy"]}, "budget must name a column, or budgets a law"),
    ],
)
def test_bad_choices(change, said):
    with pytest.raises((DataError, ParameterError)) as error:
        People.from_table(columns(), **{**CHOICES, **change})
    assert said in str(error.value)


def test_a_schema_comes_back_from_a_file_and_encodes_alike():
    people = People.from_table(columns(), **CHOICES)
    schema = Schema.from_dict(json.loads(json.dumps(people.schema.as_dict())))
    assert schema == people.schema
    assert schema.digest == people.schema.digest
    # Without users, labels and budgets, in another order of columns, among others.
    table = {name: values for name, values in columns().items() if name in ("city", "age")}
    encoded = encode_table({"more": np.zeros(6), **dict(reversed(table.items()))}, schema)
    assert np.array_equal(encoded[[1, 0, 2, 4, 3, 5]], people.block(0, 4).features)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_whoever_has_the_schema_encodes_labels_alike(task):
    table = columns() | {"outcome": np.linspace(0, 1.5, 6)} if task == "regression" else columns()
    bounds = CHOICES["bounds"] | ({"outcome": (0, 1)} if task == "regression" else {})
    people = People.from_table(table, **CHOICES | {"task": task, "bounds": bounds})
    for row in range(6):
        own = {name: values[row : row + 1] for name, values in table.items()}
        features, labels = encode_examples(own, people.schema)
        place = [1, 0, 2, 4, 3, 5].index(row)
        block = people.block(0, 4)
        assert np.array_equal(features[0], block.features[place])
        assert labels[0] == block.labels[place]
    with pytest.raises(DataError, match="has no rows"):
        encode_examples({name: values[:0] for name, values in table.items()}, people.schema)


@pytest.mark.parametrize(
    "change",
    [
        {"bounds": {"age": (0, 121)}},
        {"categories": {"city": ["Ulm", "Bonn"]}},
        {"categories": {"city": ["Bonn", "Ulm", "Kiel"]}},
        {"classes": ["well", "ill"]},
        {"budgets": {"low": 0.2, "high": 1.0}},
    ],
)
def test_every_public_choice_is_in_the_digest(change):
    schemas = [People.from_table(columns(), **{**CHOICES, **more}).schema for more in ({}, change)]
    assert schemas[0].digest != schemas[1].digest


def test_whole_and_real_bounds_are_the_same_schema():
    schemas = [
        People.from_table(columns(), **{**CHOICES, "bounds": {"age": bounds}}).schema
        for bounds in ((0, 120), (0.0, 120.0), [np.int64(0), np.float32(120)])
    ]
    assert len({schema.digest for schema in schemas}) == 1


@pytest.mark.parametrize("damage", [{"version": 2}, {"columns": {}}, {"more": 1}, {"task": "guess"}, {"classes": 3}])
def test_a_damaged_schema(damage):
    stored = People.from_table(columns(), **CHOICES).schema.as_dict() | damage
    with pytest.raises(DataError, match="schema"):
        Schema.from_dict(stored)
