"""The command plan in words: no cap where none is needed, one round, files of budgets, caps that are set already."""

import json

import pytest
from typer.testing import CliRunner

from apes.cli.main import app
from apes.cli.plan import _rounds_in_words, _users_in_words

COMMON = ["plan", "--delta", "1e-6", "--dimensions", "20"]


def run(*arguments):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*COMMON, *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.service
def test_no_cap_is_said_where_none_is_needed():
    asked = [
        "--target-epsilon",
        "50",
        "--solve",
        "cap",
        "--users",
        "1500",
        "--rounds",
        "1",
        "--budgets",
        "constant:0.7",
    ]
    assert run(*asked).startswith("no cap is needed (the largest budget is 0.7): certified epsilon ")
    assert json.loads(run(*asked, "--json"))["needed"] is False
    asked[1] = "0.1"
    assert run(*asked).startswith("cap budgets at 0.")
    assert json.loads(run(*asked, "--json"))["needed"] is True


@pytest.mark.parametrize(
    ("rounds", "said"),
    [(1, "1 round fits"), (2, "2 rounds fit"), (10**6, "1,000,000 rounds, the most there can be, fit")],
)
def test_rounds_in_words(rounds, said):
    assert _rounds_in_words(rounds) == said


def test_users_in_words():
    assert _users_in_words(1, of_file=False) == "1 user is enough"
    assert _users_in_words(2000, of_file=False) == "2,000 users are enough"


@pytest.mark.service
def test_users_like_those_in_a_file(tmp_path):
    people = tmp_path / "people.csv"
    people.write_text("0.5\n" * 3 + "1\n")
    asked = ["--target-epsilon", "0.5", "--solve", "users", "--rounds", "1", "--budgets"]
    of_file = run(*asked, f"file:{people}")
    assert "users are enough, if their budgets are spread as those in the file: certified epsilon 0.4" in of_file
    found = json.loads(run(*asked, f"file:{people}", "--json"))["answer"]
    shares = json.loads(run(*asked, "0.5:75%,1:25%", "--json"))["answer"]
    # Whole people make shares a little uneven.
    assert found == pytest.approx(shares, rel=0.02)


@pytest.mark.service
def test_a_cap_that_is_set_already_leaves_more_rounds():
    asked = ["--target-epsilon", "0.5", "--solve", "rounds", "--users", "1500", "--budgets", "0.1:60%,1:40%", "--json"]
    without, capped = (json.loads(run(*asked, *cap))["answer"] for cap in ([], ["--cap", "0.2"]))
    assert 1 <= without < capped


@pytest.mark.parametrize("solve", ["cap", "rounds", pytest.param("levels", marks=pytest.mark.service)])
def test_a_target_out_of_reach_is_no_success(solve):
    asked = ["plan", "--target-epsilon", "1e-9", "--delta", "1e-12", "--users", "4", "--dimensions", "3"]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*asked, "--budgets", "constant:50", "--solve", solve])
    assert done.exit_code == 1
    assert "is out of reach" in done.stdout
