"""The report of a run and `apes show`: whole pages that load nothing, of strangers' texts, edited files, full disks."""

import errno
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli import display
from apes.cli.main import app
from apes.cli.show import _rows
from apes.report.facts import Certified, facts_of
from apes.report.report import page_of
from apes.report.words import citation, guaranteed
from apes.storage import files
from apes.storage.documents import escaped
from apes.training.run_folder import RunFolder

EVIL = "<script>alert(1)</script>\"&'"
VOID = {"meta", "line", "circle", "path"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; every tag that is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.cells, self.text, self._open = [], [], [], "", []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attr) for attr in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self._open and self._open[-1] == "td":
            self.cells.append(data)


def check(text):
    """A page that loads nothing from anywhere and runs nothing."""
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "form", "img"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src"):
            assert value.startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    policy = [value for tag, name, value in page.attributes if tag == "meta" and name == "content"]
    assert any("default-src 'none'" in value for value in policy)
    links = {value for tag, name, value in page.attributes if tag == "a" and name == "href"}
    assert links == {f"#{value}" for tag, name, value in page.attributes if tag == "h2" and name == "id"}
    return page


def cli(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout) if code == 0 and "--json" in arguments else done


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A run on a table whose names are a stranger's."""
    folder = tmp_path_factory.mktemp("strangers")
    rng, column = np.random.default_rng(1), EVIL.replace('"', "").replace(",", "")
    rows = [f'who,"{column}",plain,label,wish']
    for user in range(120):
        x, y = rng.random(2)
        kind = "<b>yes</b>" if x > 0.5 else "[red]no[/]"
        rows.append(f"u{user},{x:.4f},{y:.4f},{kind},{'<i>bold' if user % 2 else '<u>shy'}")
    (folder / "<img src=x>.csv").write_text("\n".join(rows) + "\n")
    options = [
        "--user-column",
        "who",
        "--label-column",
        "label",
        "--budget-column",
        "wish",
        "--bounds",
        "0:1",
        "--rounds",
        "3",
    ]
    options += ["--budget-levels", "<i>bold=1,<u>shy=0.2", "--classes", "<b>yes</b>,[red]no[/]"]
    cli("train", "--data", folder / "<img src=x>.csv", *options, "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(table, tmp_path):
    return shutil.copytree(table, tmp_path / "run")


def test_the_page_of_a_strangers_table(table):
    page = check((table / "private/report.html").read_text())
    for words in ("<script>alert(1)</script>", "<b>yes</b>", "[red]no[/]", "<i>bold", "<img src=x>.csv"):
        assert words in page.text
    for words in ("How it went", "Privacy", "Who took part", "Settings", "The model", "What can be done next"):
        assert words in page.text
    # Also where it names the budget of a group.
    assert "(<u>shy)" in page.text
    people = json.loads((table / "private/summary.json").read_text())["users"]
    assert f"{people} people in every round." in page.text
    assert f"apes predict {table} TABLE" in page.text
    assert "Echo of Neighbors" in page.text
    assert page.tags.count("svg") == 3


def test_figures_are_those_of_the_log_and_not_of_a_summary(run):
    summary = json.loads((run / "private/summary.json").read_text())
    true = summary["certified"]["epsilon"]
    summary["certified"]["epsilon"] = 0.001
    summary["accuracy"] = 1.0
    (run / "private/summary.json").write_text(json.dumps(summary))
    shown = cli("show", run, "--html", "--json")
    assert shown["certified"]["epsilon"] == true
    assert shown["accuracy"] == summary["accuracy_by_round"][-1]
    page = check((run / "private/report.html").read_text())
    assert f"{true:.4g}" in page.text
    assert "0.001 at" not in page.text


def test_what_is_guaranteed_is_said_and_not_what_was_spent(table):
    """Rounds were added after looking at the first ones: the limit is what is guaranteed."""
    facts = cli("show", table, "--json")
    facts["certified"] |= {"epsilon": 12.34123, "road": "adaptive", "epsilon_by_round": [0.12341, 0.2, 0.30001]}
    page = check(page_of(facts))
    assert re.findall(r"epsilon ([\d.]+) ?at delta", page.text) == ["12.35", "12.35"]
    assert "factor of e^12.35 at most" in page.text
    assert "That is this protects nobody" in page.text
    assert not re.search("(strong|good|weak) protection", page.text)
    # From above too: what was spent after every round, in the table and beside the curve.
    assert {"0.1235", "0.3001"} <= set(page.cells)
    assert "0.3001 after round 3" in "".join(value for _, name, value in page.attributes if name == "aria-label")


def test_what_show_says(table):
    text = cli("show", table).stdout
    for words in ("finished: 3 of 3 planned rounds", "LogisticRegression: weights (2, 3)", "apes account --run"):
        assert words in " ".join(text.split())
    facts = cli("show", table, "--json")
    assert facts["table"]["classes"] == ["<b>yes</b>", "[red]no[/]"]
    assert facts["model"]["features"] == facts["table"]["features"]
    assert facts["model"]["classes"] == facts["table"]["classes"]
    assert facts["model"]["schema_sha256"] == facts["table"]["schema_sha256"]
    assert {"private/report.html", "model.npz", "config.json"} <= set(facts["files"])
    assert facts["stopped"] == "rounds"


def test_show_rounds_what_is_proved_up(table):
    facts = cli("show", table, "--json")
    certified = facts["certified"] | {"epsilon": 1.23401, "delta": 1.001e-5}
    assert "epsilon 1.235[/] at delta 1.01e-05" in _rows(facts | {"certified": certified})["central privacy"]


def test_a_model_of_an_earlier_round_is_no_finished_run(run):
    """A run that was made longer, and stopped: its model stands after fewer rounds than are out."""
    folder = RunFolder.open(run)
    assert facts_of(folder, Certified(None))["state"] == "finished"
    weights, about = folder.model()
    folder.keep_model(weights, about | {"rounds": about["rounds"] - 1})
    assert facts_of(folder, Certified(None))["state"] == "unfinished"


def test_a_name_that_would_move_the_cursor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A narrow terminal would break a long path.
    monkeypatch.setattr(display.answers, "_width", 400)
    # In the name of its folder: of its own, a picture's title would have it too.
    (tmp_path / "\x1b[31mred\x1b[2J[bold]").mkdir()
    name = "\x1b[31mred\x1b[2J[bold]/x.csv"
    rows = [f"p{number},{number % 7},{'yes' if number % 7 > 3 else 'no'}" for number in range(40)]
    (tmp_path / name).write_text("who,x,sick\n" + "\n".join(rows) + "\n")
    columns = ("--user-column", "who", "--label-column", "sick", "--bounds", "x=0:7", "--budgets", "constant:1")
    cli("train", "--data", name, *columns, "--rounds", 1, "--out", "run")
    text = cli("show", "run").stdout
    assert "\x1b" not in text
    assert "[31mred" in text


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGE = {
    "configuration gone": lambda run: (run / "config.json").unlink(),
    "configuration of another": lambda run: edit_json(run / "config.json", basis={"rounds": 1}),
    "schema of another": lambda run: edit_json(run / "config.json", schema=None),
    "log cut": lambda run: (run / "exposures.jsonl").write_text(""),
    "log of nonsense": lambda run: (run / "exposures.jsonl").write_text("\x00\n"),
    "model of nonsense": lambda run: (run / "model.npz").write_bytes(b"PK"),
    "model of another": lambda run: np.savez(
        run / "model.npz", weights=np.ones(6), about=np.array('{"format": 1, "layout": [{"shape": [6]}]}')
    ),
    "checkpoint of nonsense": lambda run: (run / "private/checkpoint.npz").write_bytes(b"PK"),
    "summary of nonsense": lambda run: (run / "private/summary.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_runs_are_one_line_and_keep_their_report(run, damage):
    damage(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = cli("show", run, "--html", code=2)
    assert (done.stdout, len(done.stderr.strip().splitlines())) == ("", 1), done.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_full_disk_leaves_the_report_that_was_there(run, monkeypatch):
    before = (run / "private/report.html").read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    done = cli("show", run, "--html", code=2)
    assert "No space left on device" in done.stderr
    assert "private/report.html" in done.stderr
    assert (run / "private/report.html").read_bytes() == before
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


SMALL = ("train", "--preset", "paper", "--users", "60", "--budgets", "constant:0.1", "--seed", "2")


@pytest.mark.service
def test_a_run_that_was_stopped(tmp_path, monkeypatch):
    run, kept = tmp_path / "run", RunFolder.save

    def save(folder, progress):
        kept(folder, progress)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        done = cli(*SMALL, "--rounds", 3, "--out", run, code=130)
    assert done.stderr.strip().splitlines()[-1] == f"apes: stopped; go on with: apes train --resume {run}"
    facts = cli("show", run, "--html", "--json")
    assert (facts["state"], facts["rounds"], facts["model"]) == ("unfinished", 1, None)
    assert facts["next"][0]["command"] == f"apes train --resume {run}"
    # All rounds that were planned count.
    assert facts["certified"]["epsilon"] > facts["certified"]["epsilon_by_round"][-1]
    assert "1 round of 3 planned, unfinished" in check((run / "private/report.html").read_text()).text
    cli("train", "--resume", run)
    assert "3 rounds; test accuracy" in check((run / "private/report.html").read_text()).text


@pytest.mark.service
def test_nothing_was_released_yet(tmp_path, monkeypatch):
    run = tmp_path / "run"

    def save(folder, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        cli(*SMALL, "--rounds", 2, "--out", run, code=130)
    facts = cli("show", run, "--html", "--json")
    assert (facts["state"], facts["certified"]["epsilon"]) == ("not begun", None)
    assert "Nothing was released yet." in check((run / "private/report.html").read_text()).text


@pytest.mark.service
def test_where_nothing_is_certified(tmp_path):
    cli(*SMALL, "--rounds", 2, "--framework", "pldp", "--out", tmp_path / "run")
    page = check((tmp_path / "run" / "private/report.html").read_text())
    assert "Nothing is guaranteed about what was released: " in page.text
    assert "certified epsilon" not in page.text


@pytest.mark.parametrize(
    ("epsilon", "words"), [(1.0, "factor of 2.72 at most"), (0.0, "factor of 1 at"), (402.1, "factor of e^402.1 at")]
)
def test_factors_are_rounded_against_us(epsilon, words):
    facts = {"certified": {"epsilon": epsilon, "delta": 1e-6}}
    assert words in guaranteed(facts)


@pytest.mark.parametrize("text", [EVIL, "\x1b[31m", "\u202egnp", "a\nb", "\x00", "\ud800"])
def test_texts_are_shown_as_what_they_are(text):
    shown = escaped(text)
    assert not re.search("[<>\"'\x00-\x1f\u202e]", shown)
    shown.encode()


def test_the_citation_is_the_papers_own():
    text = citation("1.2.3")
    assert "title = {{Echo of Neighbors: Privacy Amplification" in text
    assert "version = {1.2.3}" in text
