"""Budgets out of a CSV file: as the command line reads them, and refused in words where they are none."""

import numpy as np
import pytest

import apes
from apes.page.uploads import read_upload


@pytest.mark.parametrize(
    ("content", "column"),
    [
        (b"0.1\n0.5\n1\n", None),
        (b"budget\n0.1\n0.5\n1\n", None),
        (b"\xef\xbb\xbfbudget,name\n0.1,a\n\n0.5,b\n1,c\n", None),
        (b'name,budget\n"a, b",0.1\nc,0.5\nd,1\n', "budget"),
        (b"0.1\r\n0.5\r\n1", None),
    ],
)
def test_what_the_command_line_reads(content, column, tmp_path):
    (tmp_path / "wishes.csv").write_bytes(content)
    place = f"{tmp_path}/wishes.csv" + (f":{column}" if column else "")
    found = read_upload(content, "wishes.csv", column)
    assert found.budgets.tolist() == sorted(apes.make_budgets(f"file:{place}", 3, seed=1).tolist())
    assert found.place == "wishes.csv" + (f":{column}" if column else "")


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        (b"", None, "holds no budgets"),
        (b"\n\n", None, "holds no budgets"),
        (b"budget\n", None, "holds no budgets"),
        (b"0.1\nlots\n", None, "person 2 must be a number, got 'lots'"),
        (b"0.1\n-1\n", None, "budgets[1] must be in (0, inf), got -1.0"),
        (b"0.1\nnan\n", None, "budgets[1] must be in (0, inf)"),
        (b"0.1\n0\n", None, "must be in (0, inf), got 0.0"),
        (b"a,b\n1,2\n3\n", "b", "person 2 is missing"),
        (b"a,b\n1,2\n", "c", "its columns are a, b"),
        (b"\xff\xfe0\x001\x00", None, "not text in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", None, "not text in UTF-8"),
        (b"PK\x03\x04" + b"\x80" * 100, None, "not text in UTF-8"),
        (b'"' + b"1" * 200_000, None, "in wishes.csv"),
        (b"0.1\n" * 1_000_001, None, "more than 1,000,000"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_none_is_refused(content, column, said):
    with pytest.raises(apes.DataError) as refused:
        read_upload(content, "wishes.csv", column)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


def test_what_the_page_shows_of_it():
    few = read_upload(b"budget,name\n0.1,a\n0.1,b\n0.5,c\n", "wishes.csv", None).as_dict()
    assert (few["users"], few["columns"]) == (3, ["budget", "name"])
    assert few["bars"] == [[0.1, 0.1, 2], [0.5, 0.5, 1]]
    content = "\n".join(map(str, np.linspace(0.05, 1, 5000))).encode()
    many = read_upload(content, "wishes.csv", None).as_dict()
    assert len(many["bars"]) == 24
    assert sum(users for _, _, users in many["bars"]) == 5000
