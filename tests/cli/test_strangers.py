"""What strangers met who only called commands: Ctrl-C in compiled code, wrong names of options, runs that went on."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli import shared
from apes.cli.main import app
from apes.training.run_folder import RunFolder

SMALL = ("train", "--preset", "paper", "--users", "200", "--seed", "3")


def cli(*arguments, code=0):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def stopped_in_compiled_code(*_):
    """Ctrl-C while arguments of a compiled function are read: it comes as the cause of a SystemError."""
    raise SystemError("returned a result with an exception set") from KeyboardInterrupt()


def test_stopped_in_compiled_code_before_a_round_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("apes.cli.train.task_of", stopped_in_compiled_code)
    done = cli(*SMALL, "--out", "run", code=130)
    assert (done.stdout, done.stderr) == ("", "apes: stopped\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.service
def test_stopped_in_compiled_code_within_a_run_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = RunFolder.save

    def save(folder, progress):
        kept(folder, progress)
        stopped_in_compiled_code()

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        done = cli(*SMALL, "--rounds", 2, "--out", "a run", code=130)
    assert "go on with: apes train --resume 'a run'" in done.stderr
    assert json.loads(cli("train", "--resume", "a run", "--json").stdout)["rounds"] == 2


def test_other_errors_of_the_interpreter_are_not_hidden():
    with pytest.raises(SystemError, match="a bug"), shared.in_one_line():
        raise SystemError("a bug")


# Advises without end, and says when it has begun.
ADVISING = """
import sys
from apes.cli import advise
from apes.cli.main import main

found = advise._found

def without_end(question):
    print("begun", file=sys.stderr, flush=True)
    while True:
        found(question)

advise._found = without_end
sys.argv = ["apes", *sys.argv[1:]]
main()
"""


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="signals are sent as on Unix")
def test_ctrl_c_while_it_is_accounted_ends_quietly():
    """The real thing, wherever in the work it comes."""
    words = ["advise", "--users", "300", "--target-epsilon", "0.5", "--json"]
    # Whoever runs the tests in the background has SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", ADVISING, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stderr.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (child.returncode, out) == (130, "")
    assert err.endswith("apes: stopped\n")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "0"], "apes: --workers must be in [1, inf), got 0"),
        pytest.param(
            ["--workers", "1000000"],
            "apes: --workers must be fewer: they take about 6.25e+04 GB to start",
            marks=pytest.mark.service,
        ),
        pytest.param(
            ["--threads", "1000000000000"],
            "apes: --threads must be fewer: counts of 256 levels on 7,850 coordinates take",
            marks=pytest.mark.service,
        ),
    ],
)
def test_a_wrong_number_of_workers_is_said_of_the_option(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(*SMALL, "--rounds", 1, "--out", "run", *options, code=2)
    assert done.stderr.startswith(said)
    assert "levels must" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.service
def test_a_run_that_went_on_to_its_target_speaks_of_the_rounds_that_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--budgets", "constant:0.5", "--delta", "1e-4")
    cost = json.loads(cli(*SMALL, *options, "--rounds", 3, "--json").stdout)["certified"]["epsilon"]
    cli(*SMALL, *options, "--rounds", 1, "--target-epsilon", cost, "--out", "run")
    summary = json.loads(cli("train", "--resume", "run", "--rounds", 9, "--json").stdout)
    more = summary["more_rounds"]
    assert summary["stopped"] == "target"
    assert 1 < summary["rounds"] < 9
    assert more["rounds"] == 9
    # What is said beyond the target is beyond it, and what is proposed has all the rounds.
    assert more["epsilon_after_next"] > cost
    assert more["epsilon_of_all"] > cost
    assert "--rounds 9" in more["command"]
    again = json.loads(cli(*more["command"].split()[1:], "--json").stdout)
    assert (again["stopped"], again["rounds"]) == ("rounds", 9)
    assert again["certified"]["epsilon"] <= cost
    said = " ".join(cli("show", "run").stdout.split())
    assert f"finished: {summary['rounds']} rounds, 1 of them planned beforehand" in said


@pytest.mark.service
def test_levels_have_their_names_where_a_run_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ages = np.random.default_rng(1).integers(18, 90, 300)
    rows = [f"{i},{age},{'old' if age > 50 else 'young'},{'[b]low' if i % 2 else 'high'}" for i, age in enumerate(ages)]
    (tmp_path / "people.csv").write_text("id,age,y,wish\n" + "\n".join(rows) + "\n")
    columns = ("--user-column", "id", "--label-column", "y", "--budget-column", "wish", "--bounds", "age=0:120")
    cli(
        "train", "--data", "people.csv", *columns, "--budget-levels", "[b]low=0.1,high=1", "--rounds", 2, "--out", "run"
    )
    shown = cli("show", "run").stdout
    assert "[b]low 0.1" in shown
    assert "high 1" in shown


@pytest.mark.process
@pytest.mark.skipif(shutil.which("head") is None, reason="it is head that stops reading")
def test_whoever_has_read_enough_of_the_help_is_told_nothing_more():
    words = [sys.executable, "-m", "apes", "federation", "init", "-h"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    head = subprocess.Popen(["head", "-n", "60"], stdin=child.stdout, stdout=subprocess.PIPE, text=True)
    # Nobody but head holds it.
    child.stdout.close()
    assert len(head.communicate()[0].splitlines()) == 60
    with child.stderr:
        assert child.stderr.read() == ""
    child.wait()


@pytest.mark.service
def test_one_round_is_no_rounds():
    people = ("--users", 30, "--budgets", "constant:0.5", "--dimensions", 9)
    done = cli("advise", *people, "--rounds", 1, "--target-epsilon", 50, "--json")
    reasons = {way["reason"] for way in json.loads(done.stdout)["ways"]}
    assert all("the one round fits: epsilon" in reason for reason in reasons)
