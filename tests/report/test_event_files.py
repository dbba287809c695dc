"""Event files, read back by TensorBoard's own reader."""

import json
import sys

import pytest
from typer.testing import CliRunner

from apes.cli.main import app
from apes.training.run import RoundMetrics

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from apes.report.event_files import EventFiles


def read(folder):
    """Steps and values by tag, as TensorBoard shows them."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    tags = reader.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}


def metrics(number, accuracy=0.5, epsilon=0.25):
    return RoundMetrics(number, accuracy, 2.0 / number, 0.125, epsilon)


def test_rounds_are_read_back(tmp_path):
    with EventFiles(tmp_path) as events:
        for number in (1, 2, 3):
            events.add(metrics(number))
    found = read(tmp_path)
    assert set(found) == {"test/accuracy", "test/loss", "privacy/epsilon", "time/seconds"}
    assert found["test/loss"] == [(1, 2.0), (2, 1.0), (3, pytest.approx(2 / 3))]
    assert found["privacy/epsilon"] == [(1, 0.25), (2, 0.25), (3, 0.25)]


def test_what_there_is_not_is_not_written(tmp_path):
    with EventFiles(tmp_path) as events:
        events.add(metrics(1, accuracy=None, epsilon=None))
    assert set(read(tmp_path)) == {"test/loss", "time/seconds"}


def test_a_run_that_is_gone_on_with_has_every_round_once(tmp_path):
    """Round 3 was written before a crash, but did not count: it is done again."""
    with EventFiles(tmp_path) as events:
        for number in (1, 2, 3):
            events.add(metrics(number))
    with EventFiles(tmp_path, [metrics(1), metrics(2)]) as events:
        for number in (3, 4):
            events.add(metrics(number))
    assert [step for step, _ in read(tmp_path)["test/loss"]] == [1, 2, 3, 4]


def test_earlier_rounds_are_written_where_there_was_no_log(tmp_path):
    with EventFiles(tmp_path / "new", [metrics(1), metrics(2)]) as events:
        events.add(metrics(3))
    assert [step for step, _ in read(tmp_path / "new")["test/loss"]] == [1, 2, 3]


def cli(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.service
def test_train_writes_them_if_asked(tmp_path, monkeypatch):
    options = ["train", "--preset", "paper", "--users", "60", "--rounds", "2", "--budgets", "constant:0.1"]
    refused = cli(*options, "--log", "tensorboard")
    assert (refused.exit_code, "log must be left out: event files lie" in refused.stderr) == (2, True)
    refused = cli(*options, "--log", "wandb", "--out", tmp_path / "run")
    assert (refused.exit_code, "log must be one of tensorboard" in refused.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
    done = cli(*options, "--target-epsilon", "9", "--out", tmp_path / "run", "--log", "tensorboard", "--json")
    assert done.exit_code == 0, done.output
    summary, found = json.loads(done.stdout), read(tmp_path / "run" / "private/tensorboard")
    assert [value for _, value in found["test/accuracy"]] == pytest.approx(summary["accuracy_by_round"])
    assert [value for _, value in found["privacy/epsilon"]] == pytest.approx(summary["certified"]["epsilon_by_round"])
    done = cli("train", "--resume", tmp_path / "run", "--rounds", "3", "--log", "tensorboard")
    assert done.exit_code == 0, done.output
    assert [step for step, _ in read(tmp_path / "run" / "private/tensorboard")["test/loss"]] == [1, 2, 3]


def test_without_the_library_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = cli("train", "--users", "60", "--out", tmp_path / "run", "--log", "tensorboard")
    assert (done.exit_code, "pip install 'apes-fl[tensorboard]'" in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
