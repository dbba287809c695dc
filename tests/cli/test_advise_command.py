"""The command advise: the officer's question, for people and for programs; pages to hand around; bad input."""

import json
import re
import shlex
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from apes.advice.handout import MARK
from apes.advice.words import figure
from apes.cli.advise import check_page, in_lines
from apes.cli.main import app
from apes.errors import ParameterError

SPEC = "0.1:60%,0.5:30%,1:10%"
# Small enough to be certified in a moment; one kind of reports costs more than the target.
ASKED = ["advise", "--budgets", SPEC, "--users", "1500", "--rounds", "2", "--target-epsilon", "4.2", "--delta", "1e-6"]


def run(*arguments):
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The question asked for a program, with a page."""
    page = tmp_path_factory.mktemp("advise") / "new" / "advice.html"
    done = run(*ASKED, "--json", "--html", page)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), page


@pytest.mark.service
def test_the_officers_question(told):
    facts, _ = told
    assert facts["question"] | {"users": 1500, "rounds": 2, "target_epsilon": 4.2} == facts["question"]
    assert facts["feasible"] is True
    for way in facts["ways"]:
        assert {"framework", "command", "epsilon", "groups", "noise", "accuracy"} <= set(way)
        assert [group["budget"] for group in way["groups"]] == [0.1, 0.5, 1.0]
        assert [group["share"] for group in way["groups"]] == pytest.approx([0.6, 0.3, 0.1])
        assert way["groups"][-1]["epsilon"] == way["epsilon"] > way["groups"][0]["epsilon"] > 0
    assert facts["ways"][0]["meets_target"] is True
    assert facts["ways"][-1]["meets_target"] is False
    assert {way["change"] for way in facts["ways"]} == {"none", "cap", "rounds", "users"}


@pytest.mark.parametrize("change", ["none", "cap"])
@pytest.mark.service
def test_a_command_trains_just_what_was_certified(told, change):
    way = next(way for way in told[0]["ways"] if way["change"] == change and way["meets_target"])
    words = shlex.split(way["command"])
    done = run(*words[1:], "--json")
    assert done.exit_code == 0, done.output
    trained = json.loads(done.stdout)
    assert trained["certified"]["epsilon"] == pytest.approx(way["epsilon"], rel=1e-9)
    assert trained["rounds"] == way["rounds"]
    # With a cap, those above it are one group of budgets as they are used.
    own = {group["epsilon"] for group in way["groups"]}
    assert [group["epsilon"] for group in trained["certified"]["by_budget"]] == pytest.approx(sorted(own), rel=1e-9)


@pytest.mark.service
def test_for_people_within_80_columns():
    done = run(*ASKED[:-2], "--delta", "1e-5", "--target-epsilon", "50")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for words in (
        "Recommended: ",
        "No cap is needed",
        "apes train --users 1500",
        "What is protected.",
        "Whom one relies",
    ):
        assert any(words in line for line in lines)


class Reader(HTMLParser):
    """What a page loads or leads to, and its text."""

    def __init__(self):
        super().__init__()
        self.outside, self.words, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.outside += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.service
def test_the_page_stands_alone_and_says_the_same(told):
    facts, page = told
    text = page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.outside == []
    assert "url(" not in text
    assert "@import" not in text
    said = " ".join(" ".join(reader.words).split())
    for way in facts["ways"]:
        assert way["command"] in said
        assert figure(way["epsilon"]) in said
    assert facts["unit"] in said
    assert facts["trust"] in said
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert [file.name for file in page.parent.iterdir()] == ["advice.html"]


@pytest.mark.service
def test_a_page_takes_the_place_of_an_earlier_one_and_of_nothing_else(told, tmp_path):
    done = run(*ASKED, "--html", told[1], "--json")
    assert done.exit_code == 0
    thesis = tmp_path / "thesis.html"
    thesis.write_text("years of work")
    for path, said in ((thesis, "a new file or an earlier page"), (tmp_path, "must name a file, got the folder")):
        done = run(*ASKED, "--html", path)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
    assert thesis.read_text() == "years of work"


def test_nothing_but_an_earlier_page_makes_room_for_one(tmp_path):
    page = tmp_path / "page.html"
    check_page(page)
    page.write_text(f"<!doctype html>{MARK}")
    check_page(page)
    page.write_text("<!doctype html>years of work")
    with pytest.raises(ParameterError, match="a new file or an earlier page"):
        check_page(page)


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    done = run(*ASKED[:-2], "--target-epsilon", "50", "--html", tmp_path / "file" / "page.html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "html must be where you may write" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budgets", "0.1:60%,1:30%"], "must add up to 100 %"),
        (["--budgets", "nan:100%"], "budgets must be in (0, inf)"),
        (["--budgets", "file:none.csv"], "cannot read the budgets in none.csv"),
        (["--users", "0"], "users must be in [1, 10000000], got 0"),
        (["--users", "1000000000000"], "users must be in [1, 10000000], got 1000000000000"),
        (["--rounds", "1000000000000"], "rounds must be in [1, 1000000], got 1000000000000"),
        (["--rounds", "0"], "rounds must be in"),
        (["--delta", "0.9"], "delta must be in [1e-100, 0.5], got 0.9"),
        (["--delta", "nan"], "delta must be in"),
        (["--target-epsilon", "nan"], "--target-epsilon must be in (0, inf), got nan"),
        (["--target-epsilon", "-1"], "--target-epsilon must be in"),
        (["--cap", "0"], "cap must be in (0, inf)"),
        (["--dimensions", "0"], "dimensions must be in"),
    ],
)
def test_nonsense_is_one_line(options, said):
    done = run(*ASKED, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.service
def test_a_file_says_how_many_people_there_are(tmp_path):
    people = tmp_path / "people.csv"
    people.write_text("name,wish\n" + "ann,0.1\n" * 900 + "bob,0.5\n" * 600)
    asked = ["advise", "--budgets", f"file:{people}:wish", "--rounds", "2", "--target-epsilon", "50", "--json"]
    facts = json.loads(run(*asked).stdout)
    assert facts["question"]["users"] == 1500
    assert [group["share"] for group in facts["ways"][0]["groups"]] == pytest.approx([0.6, 0.4])
    assert f"--budgets file:{people}:wish" in facts["ways"][0]["command"]
    done = run(*asked, "--users", "7")
    assert done.exit_code == 2
    assert "users must equal the 1500 budgets" in done.stderr


def test_nothing_within_the_target_is_said_and_is_no_success(monkeypatch):
    monkeypatch.setattr("apes.advice.search.MOST_USERS", 100)
    asked = ["--users", "2", "--rounds", "1", "--dimensions", "9", "--delta", "1e-12", "--target-epsilon", "1e-9"]
    done = run("advise", "--budgets", "constant:50", *asked)
    assert done.exit_code == 1
    assert "Nothing keeps within the target." in done.stdout


def test_a_command_in_lines_is_the_same_command():
    command = "apes train --budgets 'file:my people.csv:own wish' " + " ".join(f"--option-{k} {k}" for k in range(30))
    lines = in_lines(command)
    assert max(map(len, lines.splitlines())) <= 80
    assert shlex.split(re.sub(r"\\\n", " ", lines)) == shlex.split(command)
