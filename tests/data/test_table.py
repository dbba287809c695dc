"""Tables in every form come to the same people; what is wrong with one is said in a line that names row and column."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from people_tables import CHOICES, HEADER, ROWS, columns, write_csv

import apes
from apes import DataError, ParameterError, People
from apes.data.table.chunk import ROWS_AT_ONCE
from apes.data.table.opening import is_table, open_table

pandas = pytest.importorskip("pandas")


class Frame:
    """A data frame of a library that nobody has installed."""

    def __init__(self, arrays):
        self._arrays, self.columns = arrays, list(arrays)

    def __getitem__(self, name):
        array = self._arrays[name]
        return type("Series", (), {"to_numpy": lambda self: array})()


def npz(folder):
    np.savez(folder / "people.npz", **columns())
    return folder / "people.npz"


def parquet(folder):
    pandas.DataFrame(columns()).to_parquet(folder / "people.parquet")
    return folder / "people.parquet"


def categorical(folder):
    frame = pandas.DataFrame(columns()).astype({"city": "category", "age": "int32"})
    frame.to_parquet(folder / "people.parquet")
    return folder / "people.parquet"


FORMS = {
    "csv": lambda folder: write_csv(folder / "people.csv"),
    "text of a path": lambda folder: str(write_csv(folder / "people.csv")),
    "parquet": parquet,
    "parquet with categories": categorical,
    "npz": npz,
    "arrays": lambda folder: columns(),
    "lists": lambda folder: {name: values.tolist() for name, values in columns().items()},
    "pandas": lambda folder: pandas.DataFrame(columns()),
    "any frame": lambda folder: Frame(columns()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_people(form, tmp_path):
    people = People.from_table(FORMS[form](tmp_path), **CHOICES)
    assert people.digest == People.from_table(columns(), **CHOICES).digest
    assert people.schema == People.from_table(columns(), **CHOICES).schema
    block = people.block(0, 4)
    # In order of the ids; a person's rows in the table's order.
    assert np.diff(block.offsets).tolist() == [1, 3, 1, 1]
    assert block.budgets.tolist() == [1.0, 0.1, 1.0, 0.1]
    assert people.schema.classes == ("ill", "well")
    assert block.labels.tolist() == [1, 0, 1, 0, 0, 1]
    ages = np.array([60, 30, 45, 120, 0, 90]) / 60 - 1
    scale = 9 / np.sqrt(2)
    assert np.allclose(block.features[:, 0], scale * ages, atol=1e-6)
    assert np.allclose(block.features[:, 1:], scale * np.eye(2)[[0, 1, 0, 1, 1, 0]], atol=1e-6)
    assert np.linalg.norm(block.features, axis=1).max() <= 9 * (1 + 1e-6)


def test_rows_of_an_array_are_columns():
    features = np.random.default_rng(1).random((30, 5))
    table = {"features": features, "who": np.arange(30), "y": np.arange(30) % 3}
    people = People.from_table(table, user="who", label="y", budgets="constant:0.5", bounds=(0, 1), test_share=0)
    assert [column.name for column in people.schema.columns.numbers] == [f"features.{at}" for at in range(5)]
    assert people.schema.classes == ("0", "1", "2")
    order = np.argsort([str(who) for who in range(30)])
    assert np.allclose(people.block(0, 30).features, (2 * features[order] - 1) * 9 / np.sqrt(5), atol=1e-5)


def test_a_byte_order_mark_spaces_and_blank_lines_are_no_matter(tmp_path):
    text = "\ufeff user , x ,y\n\n a ,0.5, no\n\nb , 1e0,yes\n"
    (tmp_path / "t.CSV").write_text(text, encoding="utf-8")
    own = {"a": 0.1, "b": 0.2}
    people = People.from_table(tmp_path / "t.CSV", user="user", label="y", budgets=own, bounds=(0, 1), test_share=0)
    assert people.budgets.tolist() == [0.1, 0.2]
    assert np.allclose(people.block(0, 2).features[:, 0], [0, 9])


def test_long_tables_are_read_in_parts(tmp_path):
    rows = 2 * ROWS_AT_ONCE + 7
    x = np.random.default_rng(2).random(rows)
    lines = [[f"u{at % 100}", repr(float(x[at])), str(at % 2)] for at in range(rows)]
    path = write_csv(tmp_path / "long.csv", lines, ["user", "x", "y"])
    told = []
    numbers = np.concatenate(
        [chunk.numbers for chunk in open_table(path).chunks(["x"], ["y"], lambda *at: told.append(at))]
    )
    assert (numbers[:, 0] == x).all()
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    # The row of an error is counted over all parts.
    lines[ROWS_AT_ONCE + 5][1] = "much"
    write_csv(path, lines, ["user", "x", "y"])
    with pytest.raises(DataError, match=rf"row {ROWS_AT_ONCE + 6}, column 'x': must be a number, got 'much'"):
        People.from_table(path, user="user", label="y", budgets="constant:1", bounds=(0, 1))


def changed(row, column, value):
    rows = [list(each) for each in ROWS]
    rows[row - 1][HEADER.index(column)] = value
    return rows


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (2, "user", "", "is missing"),
        (3, "user", "  ", "is missing"),
        (6, "outcome", "", "is missing"),
        (1, "privacy", "", "is missing"),
        (4, "city", "", "is missing"),
        (4, "age", "", "is missing"),
        (4, "age", "NaN", "is missing"),
        (4, "age", "null", "is missing"),
        (4, "age", "inf", "must be finite, got 'inf'"),
        (5, "age", "old", "must be a number, got 'old'; a column of texts needs the list of its values"),
        (5, "age", "x" * 1000, "must be a number, got 'xxxxxxx"),
        (6, "city", "Kiel", "must be one of categories Bonn, Ulm; got 'Kiel'"),
        (2, "privacy", "middle", "must be one of budget levels low, high; got 'middle'"),
        (5, "privacy", "high", "a person must have one budget, got 1 for user 'u2', who has 0.1 in row 1"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "frame"])
def test_bad_cells_are_named(form, row, column, value, said, tmp_path):
    path = write_csv(tmp_path / "bad.csv", changed(row, column, value))
    source = path if form == "csv" else pandas.DataFrame(changed(row, column, value), columns=HEADER, dtype=object)
    title = str(path) if form == "csv" else "the data frame"
    with pytest.raises(DataError) as error:
        People.from_table(source, **CHOICES)
    assert str(error.value).startswith(f"{title}, row {row}, column {column!r}: {said}")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(title)


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT])
@pytest.mark.parametrize("column", ["age", "city", "outcome"])
def test_whatever_stands_for_missing_in_a_frame(column, missing):
    frame = pandas.DataFrame(columns()).astype(object)
    frame.loc[3, column] = missing
    with pytest.raises(DataError, match=rf"^the data frame, row 4, column '{column}': is missing$"):
        People.from_table(frame, **CHOICES)


def test_gaps_in_parquet_files(tmp_path):
    frame = pandas.DataFrame(columns())
    frame.loc[3, "age"] = None
    frame.to_parquet(tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=r"gap.parquet, row 4, column 'age': is missing$"):
        People.from_table(tmp_path / "gap.parquet", **CHOICES)


def test_masked_cells_are_missing():
    table = columns()
    table["age"] = np.ma.MaskedArray(table["age"], mask=[0, 0, 1, 0, 0, 0])
    with pytest.raises(DataError, match=r"row 3, column 'age': is missing"):
        People.from_table(table, **CHOICES)


GARBAGE = np.random.default_rng(3).bytes(4096)
BAD_FILES = [
    ("t.csv", b"", "is empty"),
    ("t.csv", b"\n\n", "is empty"),
    ("t.csv", b"user,age,city,privacy,outcome\n", "has no rows"),
    ("t.csv", b"user,age,age,privacy,outcome\nu,1,1,low,ill\n", "has two columns 'age'"),
    ("t.csv", b"user,age,,privacy,outcome\nu,1,1,low,ill\n", "column 3 has no name"),
    ("t.csv", b"user,age,city,outcome\nu,1,Ulm,ill\n", "has no column 'privacy'; its columns are user, age,"),
    ("t.csv", b"user;age;city;privacy;outcome\nu;1;Ulm;low;ill\n", "has no column 'user'"),
    ("t.csv", b"user,age,city,privacy,outcome\nu,1,Ulm,low,ill\nu,1,Ulm,low\n", "row 2: has 4 cells where"),
    ("t.csv", b"user,age,city,privacy,outcome\nu,1,Ulm,low,ill,1\n", "row 1: has 6 cells where the header has 5"),
    ("t.csv", b'user,age,city,privacy,outcome\nu,1,"Ulm,low,ill\n', "is not CSV: unexpected end of data"),
    ("t.csv", b"user,age,city,privacy,outcome\nu,1,\xff\xfe,low,ill\n", "is not UTF-8 text"),
    ("t.csv", b"user,age,city,privacy,outcome\nu,1,Ulm,low," + b"i" * 200_000 + b"\n", "field larger than"),
    ("t.csv", GARBAGE, "t.csv"),
    ("t.csv", b"\x89PNG\r\n\x1a\n" + bytes(100), "t.csv"),
    ("t.parquet", b"", "cannot be read as Parquet"),
    ("t.parquet", GARBAGE, "cannot be read as Parquet"),
    ("t.npz", b"", "cannot be read as a NumPy archive"),
    ("t.npz", b"PK\x03\x04" + GARBAGE[:500], "cannot be read as a NumPy archive"),
    ("t.txt", b"user\n", "must end in .csv, .parquet, .npz"),
]


@pytest.mark.parametrize(
    ("name", "content", "said"), BAD_FILES, ids=[f"{name} {said[:20]}" for name, _, said in BAD_FILES]
)
def test_bad_files_are_named(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        People.from_table(tmp_path / name, **CHOICES)
    assert said in str(error.value)
    assert str(tmp_path / name) in str(error.value)


@given(st.binary(max_size=400))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_no_bytes_but_a_table_are_a_table(tmp_path_factory, content):
    for name in ("t.csv", "t.npz", "t.parquet"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        with pytest.raises(DataError):
            People.from_table(path, **CHOICES)


def test_pickled_arrays_are_refused(tmp_path):
    table = columns()
    np.savez(tmp_path / "objects.npz", **table | {"city": table["city"].astype(object)})
    with pytest.raises(DataError, match=r"objects.npz cannot be read as a NumPy archive: .*allow_pickle"):
        People.from_table(tmp_path / "objects.npz", **CHOICES)


def test_arrays_that_are_no_columns(tmp_path):
    with pytest.raises(DataError, match=r"column 'age': has 5 rows, 'user' has 6"):
        People.from_table(columns() | {"age": np.ones(5)}, **CHOICES)
    with pytest.raises(DataError, match=r"column 'age': must have one number per row"):
        People.from_table(columns() | {"age": np.ones((6, 2, 2))}, **CHOICES)
    np.save(tmp_path / "lone.npy", np.ones(3))
    os.rename(tmp_path / "lone.npy", tmp_path / "lone.npz")
    with pytest.raises(DataError, match=r"lone.npz cannot be read as a NumPy archive"):
        People.from_table(tmp_path / "lone.npz", **CHOICES)
    for source in (3, None, [1, 2]):
        with pytest.raises(ParameterError, match=r"^source must be a file, arrays by name or a data frame"):
            People.from_table(source, **CHOICES)
    with pytest.raises(DataError, match=r"^there is no file none.csv$"):
        People.from_table("none.csv", **CHOICES)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = parquet(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow to be read; get it with: pip install 'apes-fl\[tables\]'"):
        People.from_table(path, **CHOICES)


def test_what_names_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text("x")
    assert [is_table(name) for name in ("a.csv", "b.PARQUET", "c.npz", "rows.txt", ".", "rows/*")] == [True] * 6
    assert [is_table(name) for name in ("digits", "none.txt")] == [False] * 2


@pytest.mark.service
def test_a_torch_data_set():
    torch = pytest.importorskip("torch")
    x, y = torch.rand(12, 2, 3), torch.arange(12) % 3
    people = People.from_torch(
        torch.utils.data.TensorDataset(x, y),
        users=[at // 3 for at in range(12)],
        budgets="constant:1",
        test=torch.utils.data.TensorDataset(x[:4], y[:4]),
    )
    assert np.array_equal(people.block(0, 4).features, x.numpy())
    assert people.block(1, 2).labels.tolist() == [0, 1, 2]
    assert people.test.labels.tolist() == [0, 1, 2, 0]


def test_anything_with_items_is_a_torch_data_set():
    items = [([0.5, at], float(at)) for at in range(6)]
    people = People.from_torch(items, users=list("aabbcc"), budgets={"a": 0.1, "b": 0.2, "c": 0.3}, test_share=0)
    assert people.block(0, 3).labels.dtype == np.float32
    for bad, said in (
        ([], "dataset is empty"),
        ([1, 2], r"dataset\[0\] must be a pair"),
        ([([1.0], 0), ([1.0, 2.0], 0)], r"dataset\[1\] must have numbers of \(1,\)"),
        ([([1.0], [0, 1])], r"dataset\[0\] must have numbers"),
    ):
        with pytest.raises(DataError, match=said):
            People.from_torch(bad, users=[0] * len(bad), budgets="constant:1")
    with pytest.raises(ParameterError, match=r"^dataset must have __len__, __getitem__, got int$"):
        People.from_torch(3, users=[0], budgets="constant:1")


def test_the_schema_is_in_the_terms():
    """The same rows under other bounds are other terms: what was encoded otherwise is not gone on with."""
    runs = []
    for high in (1.0, 2.0):
        table = {"x": np.linspace(0, 1, 40) * high, "user": np.arange(40), "y": np.arange(40) % 2}
        people = People.from_table(table, user="user", label="y", budgets="constant:1", bounds=(0, high))
        model, saved = apes.LogisticRegression.of(people), []
        apes.train(model, people, apes.Plan(rounds=1, seed=1), after_round=saved.append)
        runs.append((people.digest, saved[0].identity.terms))
    assert runs[0][0] == runs[1][0]
    assert runs[0][1] != runs[1][1]
