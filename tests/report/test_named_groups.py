"""Groups are named by the levels of their members, wherever they are shown; and what held-out people say is said so."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.accounting.account import BudgetGroup, with_levels
from apes.accounting.words import HELD_OUT
from apes.cli.main import app
from apes.report.facts import Certified, levels_of
from apes.training.run_folder import RunFolder

GROUPS = [BudgetGroup(0.1, 5, 0.2, 0.1), BudgetGroup(0.469, 7, 0.5, 0.2)]


def cli(*arguments):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_a_group_has_the_names_of_all_its_levels():
    told = with_levels(GROUPS, {"low": 0.1, "usual": 0.469, "open": 0.469})
    assert [group["levels"] for group in told] == [["low"], ["usual", "open"]]
    # One that lies between the ends of groups, as where there are more budgets than groups.
    assert [group["levels"] for group in with_levels(GROUPS, {"between": 0.3})] == [[], ["between"]]
    assert [group["levels"] for group in with_levels(GROUPS, {"beyond": 0.5})] == [[], []]


def test_without_levels_there_are_no_names():
    told = with_levels(GROUPS, {})
    assert [group["budget"] for group in told] == [0.1, 0.469]
    assert all("levels" not in group for group in told)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose cap lowers two levels of four to one budget; a third, beyond it, nobody chose."""
    folder = tmp_path_factory.mktemp("levels")
    ages = np.random.default_rng(1).integers(18, 90, 90)
    wishes = ("low", "usual", "open")
    rows = [f"{user},{age},{'ab'[int(age > 50)]},{wishes[user % 3]}" for user, age in enumerate(ages)]
    (folder / "people.csv").write_text("id,age,y,wish\n" + "\n".join(rows) + "\n")
    columns = ["--user-column", "id", "--label-column", "y", "--budget-column", "wish", "--bounds", "age=0:120"]
    levels = ["--budget-levels", "low=0.1,usual=0.5,open=1,nobody=2", "--cap", 0.469]
    summary = cli("train", "--data", folder / "people.csv", *columns, *levels, "--clip", 0.2, "--rounds", 2,
                  "--out", folder / "run", "--json")  # fmt: skip
    (folder / "said.json").write_text(summary)
    return folder


@pytest.mark.service
class TestOfARun:
    def test_a_merged_group_is_named_by_its_members_everywhere(self, folder):
        run, summary = folder / "run", json.loads((folder / "said.json").read_text())
        shown, certified = (json.loads(cli(*words, "--json")) for words in (("show", run), ("account", "--run", run)))
        for facts in (summary, shown, certified):
            named = [(group["budget"], group["levels"]) for group in facts["certified"]["by_budget"]]
            assert named == [(0.1, ["low"]), (0.469, ["usual", "open"])]
        page = (run / "private/report.html").read_text()
        assert "0.469 (usual, open)" in page
        assert "0.1 (low)" in page
        for words in (("show", run), ("account", "--run", run)):
            assert "usual, open 0.469" in cli(*words)

    def test_an_earlier_versions_run_has_the_levels_that_are_sure(self, folder):
        """Its configuration does not say who was lowered by a cap."""
        opened = RunFolder.open(folder / "run")
        by_round, guarantee = opened.recertify()
        earlier = RunFolder.open(opened.path)
        earlier.config = {**opened.config, "levels": {}}
        told = Certified(guarantee, by_round).as_dict(levels_of(earlier, guarantee))
        assert [group["levels"] for group in told["by_budget"]] == [["low"], []]

    def test_what_held_out_people_say_is_not_covered_and_said_so(self, folder):
        run, summary = folder / "run", json.loads((folder / "said.json").read_text())
        assert summary["accuracy_note"] == HELD_OUT
        assert json.loads(cli("show", run, "--json"))["accuracy_note"] == HELD_OUT
        assert f"{100 * summary['accuracy']:.2f} %" in cli("show", run)
        assert HELD_OUT in " ".join(cli("show", run).split())
        page = (run / "private/report.html").read_text()
        assert page.count(HELD_OUT) == 2

    def test_of_a_public_test_part_nothing_is_said(self, tmp_path):
        words = ["--users", 40, "--rounds", 1, "--preset", "paper", "--out", tmp_path / "run"]
        assert json.loads(cli("train", *words, "--json"))["accuracy_note"] is None
        assert json.loads(cli("show", tmp_path / "run", "--json"))["accuracy_note"] is None
        assert HELD_OUT not in (tmp_path / "run" / "private/report.html").read_text()


@pytest.mark.service
def test_train_says_it_beside_the_accuracy(tmp_path):
    """Also of labels that are numbers, where it is an error."""
    ages = np.arange(20, 60)
    rows = [f"{user},{age},{age / 100}" for user, age in enumerate(ages)]
    (tmp_path / "people.csv").write_text("id,age,y\n" + "\n".join(rows) + "\n")
    columns = ["--user-column", "id", "--label-column", "y", "--budgets", "constant:1", "--bounds"]
    for bounds in (["age=0:120"], ["age=0:120,y=0:1", "--task", "regression"]):
        said = cli("train", "--data", tmp_path / "people.csv", *columns, *bounds, "--clip", 0.2, "--rounds", 1)
        assert HELD_OUT in " ".join(said.split())
    words = [*columns, "age=0:120", "--clip", 0.2, "--rounds", 1, "--liars", 2]
    said = cli("poison", "--data", tmp_path / "people.csv", *words)
    assert HELD_OUT in " ".join(said.split())
