"""Bounds of numbers: asked for always, whatever is in a column; made from the data only where that is said."""

import json

import numpy as np
import pytest
from people_tables import CHOICES, columns, write_csv

from apes import LogisticRegression, ParameterError, Partitions, People, Plan, Schema, train
from apes.data.table.reading import MissingBounds, Reading
from apes.federation.own_table import Whose, read_own_table

WITHOUT = {name: value for name, value in CHOICES.items() if name != "bounds"}
CHOSEN = {"user": "who", "label": "y", "budgets": "constant:1", "test_share": 0}


def numbers(rows=40, seed=1):
    """Two columns of numbers, one of them 0 or 1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 7, rows)
    return {"who": np.arange(rows), "x": x, "flag": np.arange(rows) % 2, "y": (x > 2).astype(int)}


class Untouchable:
    """A table of which the header may be looked at, and no row."""

    title = "the table"
    names = ("who", "age", "flag", "city", "y")

    def chunks(self, *asked):
        raise AssertionError("rows were read")


@pytest.mark.parametrize(
    ("choices", "missing"),
    [
        ({"categories": {"city": ["a", "b"]}}, ("age", "flag")),
        ({"categories": {"city": ["a", "b"]}, "bounds": {"age": (0, 120)}}, ("flag",)),
        ({"ignore": ["city", "age"]}, ("flag",)),
        ({"bounds": {"age": (0, 120), "flag": (0, 1)}}, ("city",)),
        ({"ignore": ["city"], "bounds": {"age": (0, 1), "flag": (0, 1)}, "task": "regression"}, ("y",)),
        ({"bounds": {"*": (0, 1)}}, ()),
    ],
)
def test_what_is_asked_for_follows_from_choices_and_header(choices, missing):
    reading = Reading("who", "y", **choices)
    assert reading.unbounded(Untouchable()) == missing
    if missing:
        with pytest.raises(MissingBounds) as error:
            reading.columns(Untouchable())
        assert error.value.columns == missing


def parquet_file(folder, table):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.table(table), folder / "part.parquet")
    return folder / "part.parquet"


def npz_file(folder, table):
    np.savez(folder / "t.npz", **table)
    return folder / "t.npz"


def frame(folder, table):
    return pytest.importorskip("pandas").DataFrame(table)


FORMS = {
    "arrays": lambda folder, table: table,
    "csv": lambda folder, table: write_csv(
        folder / "t.csv", list(zip(*(map(str, own) for own in table.values()), strict=True)), list(table)
    ),
    "npz": npz_file,
    "parquet": lambda folder, table: parquet_file(folder / "parts", table),
    "frame": frame,
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_table_is_read_without_bounds(form, tmp_path):
    source = FORMS[form](tmp_path, numbers())
    with pytest.raises(
        ParameterError, match=r"^bounds must be given for every column of numbers, got none for x, flag:"
    ):
        People.from_table(source, **CHOSEN)
    with pytest.raises(ParameterError, match=r"bounds must be given .* got none for flag: add bounds=\{'flag': \(LOW,"):
        People.from_table(source, bounds={"x": (0, 1)}, **CHOSEN)
    assert People.from_table(source, bounds=(0, 1), **CHOSEN).schema.bounds_from_data == ()


def test_no_partitioned_table_is_opened_without_bounds(tmp_path):
    parquet_file(tmp_path / "parts", numbers())
    with pytest.raises(ParameterError, match=r"^bounds must be given .* got none for x, flag:"):
        Partitions.open(tmp_path / "parts", **CHOSEN)


@pytest.mark.parametrize("form", FORMS)
def test_bounds_from_data_are_the_least_and_the_largest_value_and_said(form, tmp_path):
    table = numbers()
    people = People.from_table(FORMS[form](tmp_path, table), bounds={"flag": (0, 2)}, bounds_from_data=True, **CHOSEN)
    found = {column.name: (column.low, column.high) for column in people.schema.columns.numbers}
    assert found == {"x": (table["x"].min(), table["x"].max()), "flag": (0, 2)}
    assert people.schema.bounds_from_data == ("x",)
    assert people.facts.clipped == {}


def test_those_of_many_files_are_those_of_one_table(tmp_path):
    table = numbers(60)
    table["y"] = table["x"] * 2
    choices = CHOSEN | {"bounds_from_data": True, "task": "regression"}
    for at in range(3):
        rows = slice(20 * at, 20 * at + 20)
        (tmp_path / "parts").mkdir(exist_ok=True)
        file = parquet_file(tmp_path / "one", {name: own[rows] for name, own in table.items()})
        file.rename(tmp_path / "parts" / f"{at}.parquet")
    people, whole = Partitions.open(tmp_path / "parts", **choices), People.from_table(table, **choices)
    assert people.schema == whole.schema
    assert people.schema.bounds_from_data == ("x", "flag", "y")
    assert people.schema.target.high == table["y"].max()


def test_bounds_from_data_that_cannot_be():
    with pytest.raises(
        ParameterError, match=r"bounds must be of columns by name beside bounds_from_data, got \(0, 1\) for all"
    ):
        People.from_table(numbers(), bounds=(0, 1), bounds_from_data=True, **CHOSEN)
    with pytest.raises(ParameterError, match=r"bounds of column 'flag' must be given: all of its values are 3"):
        People.from_table(numbers() | {"flag": np.full(40, 3)}, bounds_from_data=True, **CHOSEN)
    with pytest.raises(ParameterError, match="bounds_from_data must be True or False, got 'yes'"):
        People.from_table(numbers(), bounds_from_data="yes", **CHOSEN)


def test_a_schema_says_it_also_from_a_file_and_others_keep_their_digest():
    usual = People.from_table(columns(), **CHOICES).schema
    assert "bounds_from_data" not in usual.as_dict()
    # What it was before there were bounds from data: runs of earlier versions are bound to it.
    assert usual.digest == "f59a86e36773743301494451188cb5c2231c696ea71ad56f74611c3376db3238"
    made = People.from_table(columns(), bounds_from_data=True, **WITHOUT).schema
    assert [(column.low, column.high) for column in made.columns.numbers] == [(0, 120)]
    assert made.columns == usual.columns
    assert made.digest != usual.digest
    again = Schema.from_dict(json.loads(json.dumps(made.as_dict())))
    assert again == made
    assert again.caveats == ("bounds of age were made from the data, and what they tell about people is not covered",)
    assert usual.caveats == ()


def test_a_guarantee_says_it_for_everybody_and_for_one():
    people = People.from_table(numbers(), bounds={"flag": (0, 1)}, bounds_from_data=True, **CHOSEN)
    run = train(LogisticRegression.of(people), people, Plan(norm=0.5, clip=0.1, rounds=1, delta=1e-3, seed=1))
    said = "bounds of x were made from the data, and what they tell about people is not covered"
    for guarantee in (run.guarantee, run.guarantee.of(1.0), run.of_user(0)):
        assert guarantee.caveats == (said,)
        assert str(guarantee).endswith(f"; but {said}")
        assert guarantee.as_dict([])["caveats"] == [said]


def test_a_device_reads_by_the_bounds_of_the_terms_whoever_made_them():
    made = People.from_table(columns(), bounds_from_data=True, **WITHOUT).schema
    table = columns() | {"age": np.linspace(-50, 200, 6)}
    arrays, facts = read_own_table(table, made, Whose("user", "privacy"))
    assert facts.clipped["age"] > 0
    assert np.abs(arrays["features"][:, 0]).max() == pytest.approx(9 / np.sqrt(2))
