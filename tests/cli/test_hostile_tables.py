"""Own tables against somebody who tries to break them: from outside, by commands and files."""

import csv
import json
import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli.main import app

CHOICES = ["--user-column", "who", "--label-column", "y", "--bounds", "0:10", "--delta", "1e-3"]
FIXED = ["--norm", "0.5", "--clip", "0.2", "--rounds", "2"]
COLUMN = ["--budget-column", "wish"]
HEADER = ["who", "x", "wish", "y"]


def write(path, rows, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def crowd(users=60, wish=lambda user: 0.5):
    rng = np.random.default_rng(1)
    return [[f"p{user}", f"{rng.uniform(0, 10):.3f}", str(wish(user)), "ab"[user % 2]] for user in range(users)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", crowd())
    return tmp_path


def apes(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def train(*more, data="t.csv"):
    return apes("train", "--data", data, *CHOICES, *more, "--json")


def said(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def refused(done, *words):
    """One line, after whatever was said on the way, exit code 2, nothing on the standard output."""
    assert (done.exit_code, done.stdout) == (2, ""), done
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("apes: "))
    assert done.stderr.strip().endswith(line)
    for word in words:
        assert word in line
    return line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is over, of which tests take copies."""
    folder = tmp_path_factory.mktemp("finished")
    write(folder / "t.csv", crowd())
    said(train(*COLUMN, *FIXED, "--out", folder / "run", data=folder / "t.csv"))
    return folder / "run"


@pytest.fixture
def run(finished, here):
    return shutil.copytree(finished, here / "run")


def test_targets_in_a_file_are_not_given_to_others(here):
    rows = [[*row, "0.001" if row[0] == "p2" else "50"] for row in crowd()]
    write(here / "t.csv", rows, [*HEADER, "limit"])
    more = [*COLUMN, "--ignore", "limit", "--clip", "0.2", "--rounds", "2", "--test-share", "0", "--out", "run"]
    refused(
        train(*more, "--target-epsilon", "file:t.csv:limit"),
        "--target-epsilon must be a number or own:FACTOR for people of a table",
        "t.csv:limit'",
    )
    assert not (here / "run").exists()


@pytest.mark.service
def test_levels_that_nobody_has_are_not_certified(here):
    write(here / "t.csv", crowd(wish=lambda user: "low"))
    levels = ["--budget-levels", "low=0.1,medium=0.5,high=1"]
    result = said(train(*COLUMN, *levels, *FIXED))
    assert [group["levels"] for group in result["certified"]["by_budget"]] == [["low"]]
    # Whoever was lowered by a cap is among the last, and only then.
    write(here / "t.csv", crowd(wish=lambda user: ["low", "high"][user % 2]))
    result = said(train(*COLUMN, *levels, *FIXED, "--cap", "0.3"))
    assert [group["levels"] for group in result["certified"]["by_budget"]] == [["low"], ["high"]]


@pytest.mark.service
def test_every_level_that_somebody_has_is_named(here):
    write(here / "t.csv", crowd(100, wish=lambda user: f"L{user % 10}"))
    levels = [f"L{at}={0.1 * (at + 1):.1f}" for at in range(10)]
    result = said(train(*COLUMN, "--budget-levels", ",".join(levels), *FIXED, "--test-share", "0"))
    groups = result["certified"]["by_budget"]
    assert len(groups) <= 8
    assert [name for group in groups for name in group["levels"]] == [f"L{at}" for at in range(10)]
    for group in groups:
        assert all(0.1 * (int(name[1:]) + 1) <= group["budget"] + 1e-9 for name in group["levels"])


@pytest.mark.service
def test_a_plan_makes_up_no_budgets(here):
    choices = {"users": 500, "budgets": "uniform2", "split": "iid", "norm": 0.5, "clip": 0.2, "rounds": 2}
    (here / "plan.json").write_text(json.dumps({"choices": choices, "found_on": "digits", "found": {}}))
    refused(train("--plan", "plan.json", "--ignore", "wish"), "--budget-column or --budgets must be given")
    assert said(train("--plan", "plan.json", *COLUMN))["budgets"] == "column wish"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"levels": [2]}, "levels must be a whole number or a text, got [2]"),
        ({"target_epsilon": [2]}, "--target-epsilon must be a number or a text, got [2]"),
        ({"target_epsilon": True}, "--target-epsilon must be a number or a text, got True"),
        ({"features": 5}, "features must be a text, got 5"),
        ({"split": {}}, "split must be a text, got {}"),
        ({"rounds": "many"}, "rounds must be a whole number, got 'many'"),
    ],
)
def test_bad_plan_files_are_one_line(choice, words, here):
    (here / "plan.json").write_text(json.dumps({"choices": choice, "found_on": "mnist", "found": {}}))
    refused(apes("train", "--users", "50", "--plan", "plan.json", "--json"), words)


@pytest.mark.service
def test_numbers_and_null_in_a_plan_file(here):
    choices = {"levels": 2, "target_epsilon": None, "norm": 0.5, "clip": 0.2, "rounds": 2}
    (here / "plan.json").write_text(json.dumps({"choices": choices, "found_on": "digits", "found": {}}))
    result = said(train("--plan", "plan.json", *COLUMN, "--seed", 1))
    fixed = said(train(*COLUMN, *FIXED, "--seed", 1))
    assert (result["levels"], result["model_sha256"]) == (2, fixed["model_sha256"])


@pytest.mark.service
def test_another_test_part_is_not_gone_on_with(here):
    run = here / "run"
    said(train(*COLUMN, *FIXED, "--out", run))
    told = json.loads((run / "private/summary.json").read_text())["table"]
    assert told["test_users"] > 0
    assert said(apes("train", "--resume", "run", "--json"))["table"] == told
    seen = set()
    for at in range(60):
        rows = crowd()
        rows[at][1] = "5.0"
        write(here / "t.csv", rows)
        words = refused(apes("train", "--resume", "run", "--json"), "resume must be of the same ")
        seen.add(words.split("same ")[1].split(" as")[0])
        if len(seen) == 2:
            break
    assert seen == {"people (data or budgets)", "test part"}


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["classes"].reverse(),
        lambda schema: schema["columns"]["numbers"][0].update(high=20.0),
        lambda schema: schema["columns"].update(row_norm=1.0),
    ],
)
@pytest.mark.service
def test_an_edited_schema_predicts_nothing(change, run, here):
    said(apes("predict", "run", "t.csv", "--out", "p.csv", "--json"))
    config = json.loads((run / "config.json").read_text())
    change(config["schema"])
    (run / "config.json").write_text(json.dumps(config))
    refused(apes("predict", "run", "t.csv", "--out", "q.csv"), "config.json is not that of its log")
    (run / "config.json").write_text(json.dumps(config | {"schema": None}))
    refused(apes("predict", "run", "t.csv", "--out", "q.csv"), "config.json is not that of its log")
    assert not (here / "q.csv").exists()


@pytest.mark.service
def test_predictions_replace_nothing_of_the_run(run, here):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert len(before) >= 8
    for path in before:
        refused(apes("predict", "run", "t.csv", "--out", path), "out must not be a file of the run")
    refused(apes("predict", "run", "t.csv", "--out", "run/../run/model.npz"), "out must not be a file of the run")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said(apes("predict", "run", "t.csv", "--out", "run/predictions.csv", "--json"))
    said(apes("predict", "run", "t.csv", "--out", "run/predictions.csv", "--json"))
    os.mkfifo(here / "pipe")
    refused(apes("predict", "run", "t.csv", "--out", "pipe"), "out must be a file of its own, got 'pipe'")
    refused(apes("predict", "run", "t.csv", "--out", "/dev/null"), "out must be a file of its own, got '/dev/null'")
    assert (here / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["model.npz", "certificate.json", "private", "account.png"])
def test_a_run_replaces_nothing(name, here):
    (here / "mine").mkdir()
    (here / "mine" / name).write_text("mine")
    refused(train(*COLUMN, *FIXED, "--out", "mine"), f"got 'mine', where {name} would be overwritten")
    assert [path.name for path in (here / "mine").iterdir()] == [name]
    assert (here / "mine" / name).read_text() == "mine"


@pytest.mark.service
def test_a_prediction_for_every_row_of_one_column(run, here):
    (here / "one.csv").write_text("x\n1\n\n3\n")
    refused(apes("predict", "run", "one.csv", "--out", "p.csv"), "one.csv, row 2, column 'x': is missing")
    (here / "one.csv").write_text("\nx\n1\n2\n3\n")
    assert said(apes("predict", "run", "one.csv", "--out", "p.csv", "--json"))["rows"] == 3


@pytest.mark.service
def test_labels_of_thousands_of_digits(here):
    write(here / "t.csv", [[*row[:3], "7" * 5000 if row[3] == "a" else "8"] for row in crowd()])
    said(train(*COLUMN, *FIXED, "--out", "run"))
    assert said(apes("predict", "run", "t.csv", "--out", "p.csv", "--json"))["rows"] == 60


def test_the_row_of_a_quote_that_is_never_closed(here):
    lines = (here / "t.csv").read_text().splitlines()
    lines[17] = lines[17].replace("p16,", 'p16,"')
    (here / "t.csv").write_text("\n".join(lines))
    refused(train(*COLUMN, *FIXED), "t.csv, row 17: is not CSV: unexpected end of data")


def test_budgets_too_small_to_learn_from(here):
    write(here / "t.csv", crowd(wish=lambda user: 5e-324))
    refused(train(*COLUMN, *FIXED, "--out", "run"), "budgets must be larger")
    assert not (here / "run").exists()


@pytest.mark.parametrize("boldest", ["700", "1e300"])
@pytest.mark.service
def test_budgets_beyond_any_cap(boldest, here):
    more = [*COLUMN, "--rounds", "2", "--target-epsilon", "2"]
    write(here / "t.csv", crowd(wish=lambda user: 100 if user == 7 else 0.5))
    usual = said(train(*more))
    write(here / "t.csv", crowd(wish=lambda user: boldest if user == 7 else 0.5))
    result = said(train(*more))
    assert (result["cap"], result["certified"]["epsilon"]) == (usual["cap"], usual["certified"]["epsilon"])
    refused(train(*more, "--cap", "1e299"), "cap must be smaller")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.update(choices=[1]), "config.json is not the configuration of a run"),
        (lambda config: config.update(data=5), "config.json is not the configuration of a run"),
        (lambda config: config.update(basis=None), "config.json is not the configuration of a run"),
        (lambda config: config["choices"].update(bounds=3), "bounds must be a text, got 3"),
        (lambda config: config["choices"].update(data=5), "data must be a text, got 5"),
        (lambda config: config["choices"].update(rounds=True), "rounds must be a whole number, got True"),
        (lambda config: config["choices"].update(user_column=["who"]), "--user-column must be a text, got ['who']"),
    ],
)
@pytest.mark.service
def test_an_edited_configuration_is_one_line(change, words, run):
    config = json.loads((run / "config.json").read_text())
    change(config)
    (run / "config.json").write_text(json.dumps(config))
    # The owner's copy of what was chosen says the same.
    owners = run / "private" / "choices.json"
    own = json.loads(owners.read_text())
    change(own | {"choices": own["choices"]})
    owners.write_text(json.dumps(own))
    refused(apes("train", "--resume", "run"), words)


@pytest.mark.service
def test_paths_are_said_as_texts(run):
    refused(apes("train", "--resume", "run", "--plan", "n.json"), "plan must be left out", "got 'n.json'")
    refused(train(*COLUMN, "--data-dir", "."), "--data-dir must be left out: data is a file; got '.'")


@pytest.mark.process
@pytest.mark.parametrize("size", [0, 4000])
def test_a_full_disk_is_said_with_the_file(size, here):
    """A limit on the size of files stands for a full disk: writing fails in the same place."""
    command = [sys.executable, "-m", "apes", "train", "--data", "t.csv", *CHOICES, *COLUMN, *FIXED, "--out", "run"]

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, env=os.environ | NO_CACHE)
    assert done.returncode == 2, done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("apes: ")
    assert "run/" in line
    assert "File too large" in line


NO_CACHE = {"NUMBA_DISABLE_PERFORMANCE_WARNINGS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def test_bounds_too_close_to_divide_by(here):
    refused(train(*COLUMN, *FIXED, "--bounds", "x=0:5e-324"), "bounds of column 'x' must be at least 1e-300 apart")


class TestParquet:
    @pytest.fixture
    def table(self, here):
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        rows = crowd()
        plain = {"who": [row[0] for row in rows], "x": [float(row[1]) for row in rows], "y": [row[3] for row in rows]}

        def make(**change):
            parquet.write_table(pa.table({**plain, **change}), here / "t.parquet")

        return pa, make

    def refuse(self, *words):
        refused(train("--budgets", "constant:0.5", *FIXED, data="t.parquet"), *words)

    @pytest.mark.parametrize("column", ["who", "x", "y"])
    def test_texts_that_are_no_utf8(self, column, table):
        pa, make = table
        raw = pa.array([b"1"] * 5 + [b"\xff\xfe"] * 55, pa.binary())
        make(**{column: pa.Array.from_buffers(pa.string(), 60, raw.buffers())})
        self.refuse(f"t.parquet, row 6, column '{column}': cannot be read")

    def test_times_that_python_does_not_know(self, table):
        pa, make = table
        make(who=pa.array([2**52 + at for at in range(60)], pa.timestamp("s")))
        self.refuse("t.parquet, row 1, column 'who': cannot be read")

    def test_complex_numbers_lose_nothing(self, here):
        rows = crowd()
        arrays = {"who": [row[0] for row in rows], "y": [row[3] for row in rows]}
        np.savez(here / "t.npz", x=np.ones(60) * (1 + 2j), **arrays)
        words = "row 1, column 'x': must be a real number, got (1+2j)"
        refused(train("--budgets", "constant:0.5", *FIXED, data="t.npz"), words)
