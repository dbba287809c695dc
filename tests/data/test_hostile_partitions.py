"""Files of a partitioned table that are damaged, odd, or change: one line each, which names the file."""

import os
from dataclasses import replace

import numpy as np
import pytest
from parquet_parts import CHOICES, crowd, rows_of, write_parquet, write_parts

from apes import DataError, LogisticRegression, ParameterError, Partitions, Plan, train
from apes.data.partitions import files
from apes.data.partitions.piece_rows import read_piece

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
CHOSEN = CHOICES | {"ignore": ["city"]}
PLAN = Plan(norm=0.5, clip=0.1, rounds=2, delta=1e-3, seed=1)


@pytest.fixture
def folder(tmp_path):
    return write_parts(tmp_path / "parts", crowd(120))


def opened_and_read(folder, **choices):
    return Partitions.open(folder, **choices).test


def refused(folder, *words, **change):
    """In one line that names a file."""
    with pytest.raises(DataError) as caught:
        opened_and_read(folder, **CHOSEN | change)
    line = str(caught.value)
    assert "\n" not in line
    for word in words:
        assert word in line
    return line


def test_somebody_in_two_files(folder):
    table = crowd(120)
    write_parquet(folder / "zz.parquet", rows_of(table, np.flatnonzero(table["user"] == "p00077")))
    line = refused(folder, "user 'p00077' is in", "as well; a file must hold all that its people have")
    assert "zz.parquet" in line
    assert "part-" in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table | {"more": table["x"]}, "column 'more' is in one of them only"),
        (lambda table: {name: table[name] for name in ("user", "e", "y", "city")}, "column 'x' is in one of them only"),
        (lambda table: dict(reversed(table.items())), "they are in another order"),
        (lambda table: table | {"x": table["x"].astype(str)}, "column 'x': must be double, as in"),
        (lambda table: table | {"x": table["x"].astype(np.float32)}, "got float"),
        (lambda table: rows_of(table, slice(0)), "zz.parquet has no rows"),
        (lambda table: table | {"x": np.where(table["x"] > 1, np.nan, 0.5)}, "zz.parquet, row "),
        (lambda table: table | {"e": -table["e"]}, "zz.parquet, row 1, column 'e': a budget must be in (0, inf)"),
        (lambda table: table | {"user": np.full(table["y"].size, "")}, "zz.parquet, row 1, column 'user': is missing"),
        (lambda table: table | {"e": np.arange(1.0, table["y"].size + 1)}, "a person must have one budget"),
    ],
)
def test_an_odd_file(change, words, folder):
    others = crowd(20, seed=4)
    others["user"] = np.array([f"q{user}" for user in others["user"]])
    write_parquet(folder / "zz.parquet", change(others))
    assert "zz.parquet" in refused(folder, words)


def test_labels_that_are_no_class_are_named_by_their_row(folder, monkeypatch):
    from apes.data.partitions import census

    monkeypatch.setattr(census, "FEWEST_ROWS", 1)
    table = crowd(200, most=1, seed=3)
    table["user"], table["y"] = np.array([f"q{user}" for user in table["user"]]), np.arange(200)
    write_parquet(folder / "zz.parquet", table | {"y": np.where(table["y"] == 170, 9, 1)}, row_group_size=50)
    refused(folder, "zz.parquet, row 171, column 'y': must be one of classes 0, 1, 2; got '9'", classes=["0", "1", "2"])


@pytest.mark.parametrize("size", [0, 3, 100, -1, -30])
def test_a_file_that_is_cut_off(size, folder):
    path = folder / "part-2.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:size] if size >= 0 else content[: len(content) + size])
    refused(folder, "part-2.parquet cannot be read as Parquet")


def test_damage_in_the_middle_is_found_when_it_is_read(tmp_path, monkeypatch):
    """Where pages have checksums, by them; the file's own end is whole."""
    folder = write_parts(tmp_path / "parts", crowd(120), write_page_checksum=True, use_dictionary=False)
    path = folder / "part-2.parquet"
    content = bytearray(path.read_bytes())
    people = Partitions.open(folder, **CHOSEN)
    states = {str(file): files._state(str(file)) for file in folder.iterdir()}
    middle = len(content) // 8
    content[middle : middle + 40] = bytes(40)
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"part-2.parquet has changed since it was opened"):
        people.test  # noqa: B018 - reads
    refused(folder, "part-2.parquet")
    # A disk that forgets does not say when.
    monkeypatch.setattr(files, "_state", states.__getitem__)
    with pytest.raises(DataError, match=r"part-2.parquet cannot be read as Parquet: .*CRC"):
        people.test  # noqa: B018 - reads


def change(path):
    """Another file in its place, of the same size: numbers differ, nothing else does."""
    table = crowd(120)
    state = path.stat()
    ids = {user for user in table["user"].tolist() if int(user[1:]) * 4 // 120 == 3 - int(path.stem[-1])}
    chosen = np.array([user in ids for user in table["user"].tolist()])
    rows = rows_of(table, np.flatnonzero(chosen))
    write_parquet(path, rows | {"x": rows["x"][::-1].copy()})
    return state


def test_a_file_that_changed_since(folder):
    people = Partitions.open(folder, **CHOSEN | {"test_share": 0, "max_rows": 63})
    path = folder / "part-1.parquet"
    state = change(path)
    assert path.stat().st_size == state.st_size
    rounds = []
    with pytest.raises(DataError, match=r"part-1.parquet has changed since it was opened"):
        train(LogisticRegression.of(people), people, PLAN, after_round=rounds.append)
    assert rounds == []


@pytest.mark.parametrize("counted", ["users", "held"])
def test_a_piece_of_which_another_number_is_found_than_was_counted(folder, counted):
    """On a disk that tells of no change: the people or rows of a piece would no longer be those that are charged."""
    people = Partitions.open(folder, **CHOSEN | {"test_share": 0})
    piece, encoding = people._all.pieces[0], people._all.encoding
    assert read_piece(piece, encoding)[0].offsets[-1] == piece.held
    with pytest.raises(DataError, match=r"has changed since it was opened"):
        read_piece(replace(piece, **{counted: getattr(piece, counted) + 1}), encoding)


def test_an_edited_file_whose_time_was_put_back(folder):
    """Neither read nor taken for the file that it was: also by who opens it anew."""
    people = Partitions.open(folder, **CHOSEN | {"test_share": 0, "max_rows": 60})
    path = folder / "part-1.parquet"
    state = change(path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    with pytest.raises(DataError, match=r"part-1.parquet has changed since it was opened"):
        people.block(0, 120)
    assert Partitions.open(folder, **CHOSEN | {"test_share": 0, "max_rows": 60}).digest != people.digest


def test_a_file_that_was_only_touched_is_the_same(folder):
    people = Partitions.open(folder, **CHOSEN | {"test_share": 0, "max_rows": 62})
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes())
        os.utime(path, (1, 1))
    assert people.block(0, 120).budgets.size == 120


def test_a_file_that_is_gone(folder):
    people = Partitions.open(folder, **CHOSEN | {"test_share": 0, "max_rows": 61})
    (folder / "part-0.parquet").unlink()
    with pytest.raises(DataError, match=r"part-0.parquet cannot be read: No such file"):
        people.block(0, 120)


def test_choices_that_do_not_fit(folder):
    for change_, words in (
        ({"user": "who"}, "has no column 'who'"),
        ({"bounds": {"z": (0, 1)}}, "bounds must be of columns to learn from, got 'z'"),
        ({"budgets": "uniform2"}, "budgets must be levels by name, or left out, beside a column"),
        ({"budgets": {"low": 0.1}}, "must be one of budget levels low"),
        ({"test_share": 1}, r"test_share must be in \[0, 1\)"),
    ):
        with pytest.raises((DataError, ParameterError), match=words):
            Partitions.open(folder, **CHOSEN | change_)
