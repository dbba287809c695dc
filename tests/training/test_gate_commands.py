"""The gate of a run, from the command line: what is refused is one line, and leaves everything as it was."""

import csv
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli.main import app
from apes.training.run_folder import RunFolder

pytestmark = pytest.mark.service
TABLE = (
    "--data",
    "people.csv",
    "--user-column",
    "who",
    "--label-column",
    "is",
    "--budget-column",
    "budget",
    "--bounds",
    "0:1",
)
TRAIN = ("train", *TABLE, "--clip", "0.1", "--delta", "1e-3", "--seed", "3")


def write_table(folder, budget=3.0, users=60):
    rng = np.random.default_rng(1)
    with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ([f"p{user}", f"{rng.random():.3f}", f"{rng.random():.3f}", budget, user % 2] for user in range(users))
        csv.writer(file).writerows([["who", "x", "y", "budget", "is"], *rows])


def command(*arguments):
    """Run a command in this process: a start takes seconds."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table of people."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_table(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of two rounds that is over."""
    folder = tmp_path_factory.mktemp("done")
    write_table(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert command(*TRAIN, "--rounds", 2, "--out", "run").exit_code == 0
    return folder / "run"


@pytest.fixture
def run(done, here):
    return shutil.copytree(done, here / "run")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(*arguments):
    """What a command that is refused says, in one line."""
    failed = command(*arguments)
    assert (failed.exit_code, failed.stdout) == (2, ""), failed.output
    line = failed.stderr.splitlines()[-1]
    assert line.startswith("apes: ")
    assert "Traceback" not in failed.stderr
    return line


def test_a_resumed_run_refuses_budgets_that_changed_meanwhile(here, monkeypatch):
    """People at 3.0, stopped, their budgets rewritten to 0.1: once that was certified at 0.63."""
    whole = json.loads(command(*TRAIN, "--rounds", 4, "--json").stdout)
    kept = RunFolder.save

    def save(folder, progress):
        kept(folder, progress)
        if progress.rounds == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        assert command(*TRAIN, "--rounds", 4, "--out", "run").exit_code == 130
    before = contents(here / "run")
    write_table(here, budget=0.1)
    assert "resume must be of the same people (data or budgets)" in refused("train", "--resume", "run")
    assert contents(here / "run") == before
    write_table(here)
    resumed = json.loads(command("train", "--resume", "run", "--json").stdout)
    assert resumed["certified"]["epsilon_by_round"] == whole["certified"]["epsilon_by_round"]
    assert resumed["model_sha256"] == whole["model_sha256"]


def test_a_log_that_was_cut_is_refused(run):
    log = run / "exposures.jsonl"
    lines = log.read_text().splitlines()
    before = contents(run)
    log.write_text(lines[0] + "\n")
    assert "not the whole log" in refused("account", "--run", "run")
    log.write_text("")
    assert "has released nothing" in refused("account", "--run", "run")
    log.write_text("\n".join(lines) + "\n")
    assert contents(run) == before
    (run / "config.json").unlink()
    assert "out must be a new folder" in refused(*TRAIN, "--rounds", 2, "--out", "run")
    assert "users must be left out: a run has its own" in refused("account", "--run", "run", "--users", 5)


def test_rounds_without_their_checkpoint_are_not_released_again(run):
    (run / "private/checkpoint.npz").unlink()
    choices, log = (run / "private/choices.json").read_text(), (run / "exposures.jsonl").read_text()
    assert '"seed": 3' in choices
    (run / "private/choices.json").write_text(choices.replace('"seed": 3', '"seed": 2'))
    for name in ("private/metrics.jsonl", "model.npz", "private/summary.json"):
        assert "its checkpoint is gone" in refused("train", "--resume", "run")
        (run / name).unlink()
    assert (run / "exposures.jsonl").read_text() == log
    # One round too many is what a crash leaves: it is done again by the same run, and by no other.
    (run / "exposures.jsonl").write_text(log.splitlines()[0] + "\n")
    assert "is of another run than this" in refused("train", "--resume", "run")
    (run / "private/choices.json").write_text(choices)
    assert command("train", "--resume", "run").exit_code == 0
    assert (run / "exposures.jsonl").read_text() == log


@pytest.mark.parametrize(
    "damage", [{"velocity": np.zeros(3)}, {"header": np.frombuffer(b"[" * 100_000, np.uint8)}], ids=str
)
def test_a_damaged_checkpoint_is_one_line(run, damage):
    file = run / "private/checkpoint.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    np.savez(file, **(arrays | damage))
    refused("train", "--resume", "run")


def test_a_configuration_that_is_too_deep_is_one_line(here):
    (here / "config.json").write_text("[" * 100_000)
    for words in (("account", "--run", "."), ("train", "--resume", ".")):
        assert "is not the configuration of a run" in refused(*words)


def test_a_target_out_of_reach_leaves_no_folder(here):
    assert "not even one round" in refused(*TRAIN, "--rounds", 2, "--target-epsilon", 0.01, "--out", "run")
    assert not (here / "run").exists()


def test_the_log_alone_gives_the_guarantee_again(here):
    options = ("--rounds", 2, "--framework", "s-apes-first", "--keep", 0.2, "--out", "run")
    trained = json.loads(command(*TRAIN, *options, "--json").stdout)
    for file in ("private/checkpoint.npz", "model.npz", "private/summary.json", "private/metrics.jsonl"):
        (here / "run" / file).unlink()
    again = json.loads(command("account", "--run", "run", "--json").stdout)
    for name in ("epsilon", "delta", "epsilon_by_round"):
        assert again["certified"][name] == trained["certified"][name]
    budgets = next((here / "run" / "budgets").iterdir())
    np.save(budgets, np.full(np.load(budgets).size, 0.01))
    assert "other budgets than those that were kept" in refused("account", "--run", "run")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budgets", "zzz"], "budgets must be one of"),
        (["--budgets", "file:none.csv"], "cannot read the budgets"),
        (["--split", "zzz"], "split must be"),
        (["--data", "zzz"], "data must be one of"),
        (["--normalise", "zzz"], "normalise must be"),
        (["--threads", "0"], "threads must be"),
        (["--users", "70000"], "users"),
    ],
)
def test_a_failed_start_leaves_nothing(here, options, said):
    assert said in refused("train", "--clip", 0.1, *options, "--rounds", 1, "--out", "run")
    assert not (here / "run").exists()


def test_after_a_failed_start_there_is_room_for_a_run(here):
    refused(*TRAIN, "--threads", 0, "--rounds", 1, "--out", "run")
    assert command(*TRAIN, "--rounds", 1, "--out", "run").exit_code == 0
