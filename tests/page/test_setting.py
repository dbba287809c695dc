"""What is typed into the page: understood, or said to be wrong beside its field."""

import numpy as np
import pytest

import apes
from apes.page.setting import SettingError, people, read_setting, read_shares
from apes.page.uploads import Uploads, read_upload

ASKED = {
    "users": "25000",
    "shares": [["0.1", "60"], ["0.5", "30"], ["1", "10"]],
    "rounds": "30",
    "dimensions": "7850",
    "delta": "1e-6",
    "way": "apes",
    "clip": "0.1",
    "norm": "1",
    "keep": "5",
    "cap": "",
}


def read(**changed):
    return read_setting(ASKED | changed, Uploads())


def refusal(**changed):
    with pytest.raises(SettingError) as refused:
        read(**changed)
    return refused.value.fields


def test_an_ordinary_setting():
    setting = read()
    assert (setting.users, setting.rounds, setting.dimensions, setting.delta) == (25_000, 30, 7850, 1e-6)
    assert setting.budgets == "0.1:60%,0.5:30%,1.0:10%"
    own = people(setting.users, setting.budgets, None)
    assert dict(zip(*map(np.ndarray.tolist, np.unique(own, return_counts=True)), strict=True)) == {
        0.1: 15_000,
        0.5: 7_500,
        1.0: 2_500,
    }


@pytest.mark.parametrize(("typed", "users"), [("25,000", 25_000), ("1e5", 100_000), (" 7 ", 7), ("1000000", 10**6)])
def test_whole_numbers_as_people_write_them(typed, users):
    assert read(users=typed).users == users


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("users", "many"),
        ("users", ""),
        ("users", "0"),
        ("users", "-5"),
        ("users", "1000001"),
        ("users", "2.5"),
        ("users", "nan"),
        ("users", "1e400"),
        ("users", "9" * 5000),
        ("users", "2,5"),
        ("users", None),
        ("users", [1]),
        ("users", True),
        ("rounds", "1e9"),
        ("rounds", "inf"),
        ("dimensions", "1e13"),
        ("delta", "0"),
        ("delta", "0.7"),
        ("delta", "nan"),
        ("delta", "x" * 10_000),
        ("clip", "0"),
        ("clip", "-1"),
        ("clip", "1e-300"),
        ("cap", "0"),
        ("cap", "none"),
        ("way", "carrier pigeon"),
        ("way", ["apes"]),
        ("shares", []),
        ("shares", "0.1:60%"),
        ("shares", [["0.1"]]),
        ("shares", [["0", "60"]]),
        ("shares", [["nan", "60"]]),
        ("shares", [["0.1", "-1"]]),
        ("shares", [["0.1", "101"]]),
        ("shares", [["0.1", "0"], ["1", "0"]]),
        ("shares", [["0.1", "1"]] * 33),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_nonsense_is_said_beside_its_field(field, typed):
    fields = refusal(**{field: typed})
    assert list(fields) == [field]
    assert "must" in fields[field]
    assert len(fields[field]) < 400


def test_the_words_are_those_of_the_package():
    with pytest.raises(apes.ParameterError) as said:
        apes.Terms(rounds=0)
    assert refusal(rounds="0") == {"rounds": str(said.value)}


def test_all_that_is_wrong_is_said_at_once():
    assert set(refusal(users="x", rounds="y", shares=[["0", "1"]])) == {"users", "rounds", "shares"}


@pytest.mark.parametrize(("way", "field"), [("one-bit", "norm"), ("s-apes-first", "keep")])
def test_what_does_not_matter_is_not_looked_at(way, field):
    assert list(refusal(way=way, **{field: "x"})) == [field]
    assert read(way="apes", **{field: "x"}).way == "apes"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([["0.1", "60"], ["0.5", "30"], ["1", "10"]], "0.1:60%,0.5:30%,1.0:10%"),
        ([["1", "3"]], "1.0:100%"),
        ([["1", "1"], ["0.5", "1"], ["0.1", "1"]], "0.1:33.333334%,0.5:33.333333%,1.0:33.333333%"),
        ([["0.5", "20"], ["0.5", "20"], ["1", "60"]], "0.5:40%,1.0:60%"),
        ([["0.5", "0"], ["1", "60"]], "1.0:100%"),
    ],
)
def test_shares_are_taken_in_proportion(rows, told):
    assert read_shares(rows) == told
    assert apes.make_budgets(told, 1000, seed=1).size == 1000


def test_terms_are_those_that_were_chosen():
    assert read(way="one-bit", clip="0.2", norm="3").terms == apes.Terms(
        "apes", clip=0.2, norm=3.0, rounds=30, delta=1e-6
    )
    assert read(way="s-apes-first", keep="10", cap="0.4").terms == apes.Terms(
        "s-apes-first", clip=0.1, keep=0.1, cap=0.4, rounds=30, delta=1e-6
    )


def test_budgets_of_a_file():
    uploads = Uploads()
    kept = uploads.keep(read_upload(b"0.5\n0.1\n1\n", "wishes.csv", None))
    setting = read_setting(ASKED | {"upload": kept.digest, "users": "any"}, uploads)
    assert setting.users == 3
    assert people(3, "", setting.upload).tolist() == [0.1, 0.5, 1.0]
    assert people(6, "", setting.upload).tolist() == [0.1, 0.1, 0.5, 0.5, 1.0, 1.0]


def test_a_file_that_is_not_here_any_more():
    assert "drop it again" in refusal(upload="0" * 64)["upload"]


def test_only_the_last_files_are_kept():
    uploads = Uploads()
    kept = [uploads.keep(read_upload(f"0.{number}\n".encode(), "f.csv", None)) for number in range(1, 7)]
    assert uploads.named(kept[-1].digest) is kept[-1]
    with pytest.raises(apes.DataError):
        uploads.named(kept[0].digest)
