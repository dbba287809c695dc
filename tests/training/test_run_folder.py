"""The folder of a run survives whatever stops it, and does not certify what was cut, exchanged or forged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from few import MODEL, PLAN, folder_of, trained

import apes
from apes.cli.train import _opened
from apes.training.model_file import about_model
from apes.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def reached():
    return trained()


@pytest.fixture(scope="module")
def done(reached, tmp_path_factory):
    """A run that is over, in its folder."""
    run, rounds = reached
    path = tmp_path_factory.mktemp("done") / "run"
    folder = folder_of(path, rounds)
    about = about_model(MODEL, run.guarantee, rounds[0].identity.terms, rounds=3)
    folder.keep_model(run.weights, about)
    folder.finish({"rounds": 3})
    return path


@pytest.fixture
def path(done, tmp_path):
    return shutil.copytree(done, tmp_path / "run")


def test_what_was_saved_is_gone_on_with(path, reached):
    run, rounds = reached
    loaded = RunFolder.open(path).load()
    assert loaded.rounds == 3
    for progress in rounds:
        folder = folder_of(path.with_name(f"after {progress.rounds}"), rounds[: progress.rounds])
        opened = RunFolder.open(folder.path)
        again, _ = trained(resume=opened.load(), keys=opened.keys())
        assert again.model_sha256 == run.model_sha256
        assert again.guarantee == run.guarantee


def test_a_crash_while_the_checkpoint_is_written_leaves_the_one_before(tmp_path, reached, monkeypatch):
    run, rounds = reached
    folder = folder_of(tmp_path / "run", rounds[:2])

    def broken(file, **arrays):
        file.write(b"half of it")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", broken)
        with pytest.raises(OSError, match="disk full"):
            folder.save(rounds[2])
    again = RunFolder.open(folder.path)
    loaded = again.load()
    assert loaded.rounds == 2
    # The log is ahead of the checkpoint, never behind: a round that may be out counts.
    assert len(again.charged()[1]) == 3
    assert again.recertify()[1].epsilon == run.guarantee.epsilon
    # The same round is done again, and the log is as it was.
    assert trained(resume=loaded, keys=again.keys())[0].model_sha256 == run.model_sha256
    folder.save(rounds[2])
    assert RunFolder.open(folder.path).load().rounds == 3


def test_no_other_run_is_saved_there(path, reached):
    _, others = trained(replace(PLAN, seed=2))
    folder, log = RunFolder.open(path), (path / "exposures.jsonl").read_text()
    for progress in (others[0], others[2]):
        with pytest.raises(apes.DataError, match="is of another run than this; start again in a new folder"):
            folder.save(progress)
    # Also where nothing says which people the run is of.
    (path / "private/identity.json").unlink()
    with pytest.raises(apes.DataError, match="is of another run than this; start again in a new folder"):
        folder.save(others[2])
    assert (path / "exposures.jsonl").read_text() == log


def test_rounds_without_their_checkpoint_are_not_released_again(path):
    (path / "private/checkpoint.npz").unlink()
    for name in ("private/metrics.jsonl", "exposures.jsonl"):
        with pytest.raises(apes.DataError, match="its checkpoint is gone"):
            RunFolder.open(path).load()
        (path / name).unlink()
    assert RunFolder.open(path).load() is None


def test_metrics_alone_tell_that_a_round_was_released(path):
    (path / "private/checkpoint.npz").unlink()
    lines = (path / "exposures.jsonl").read_text().splitlines()
    (path / "exposures.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(apes.DataError, match="its checkpoint is gone"):
        RunFolder.open(path).load()
    # One line in the log is what a crash in the first round leaves.
    (path / "private/metrics.jsonl").unlink()
    assert RunFolder.open(path).load() is None


def cut(lines):
    return lines[:1]


def emptied(lines):
    return []


def forged(lines):
    return [line.replace('"charged": 8', '"charged": 1') for line in lines]


def deep(lines):
    return ["[" * 100_000]


def none(lines):
    return ["null"]


def mixed(lines):
    return [lines[0], lines[1].replace('"terms": "', '"terms": "0'), lines[2]]


@pytest.mark.parametrize(
    "gone", [(), ("private/checkpoint.npz",), ("private/checkpoint.npz", "private/metrics.jsonl")], ids=str
)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cut, "not the whole log"),
        (emptied, "has released nothing"),
        (forged, r"charged must be in \[8, 8\] here, got 1"),
        (deep, "is not the log of a run"),
        (none, "is not the log of a run"),
        (mixed, "it has lines of several"),
    ],
)
def test_a_log_that_was_cut_is_not_certified(path, change, said, gone):
    for name in gone:
        (path / name).unlink()
    log = path / "exposures.jsonl"
    log.write_text("".join(line + "\n" for line in change(log.read_text().splitlines())))
    with pytest.raises(apes.DataError, match=said) as caught:
        RunFolder.open(path).recertify()
    assert "\n" not in str(caught.value)


def test_the_log_alone_gives_the_guarantee_again(path, reached):
    run, _ = reached
    for name in ("private/checkpoint.npz", "model.npz", "private/summary.json", "private/metrics.jsonl"):
        (path / name).unlink()
    by_round, guarantee = RunFolder.open(path).recertify()
    assert by_round == [entry.epsilon for entry in run.metrics]
    assert (guarantee.epsilon, guarantee.delta) == (run.guarantee.epsilon, run.guarantee.delta)
    budgets = next((path / "budgets").iterdir())
    np.save(budgets, np.full(40, 0.01))
    with pytest.raises(apes.DataError, match="other budgets than those that were kept"):
        RunFolder.open(path).recertify()
    budgets.unlink()
    with pytest.raises(apes.DataError, match="cannot be read, so what was spent is not known"):
        RunFolder.open(path).recertify()


def test_a_resumed_run_says_what_it_charged_and_not_what_its_checkpoint_claims(reached):
    run, rounds = reached
    claimed = tuple(replace(entry, epsilon=1e-3) for entry in rounds[1].metrics)
    again, _ = trained(resume=replace(rounds[1], metrics=claimed))
    assert [entry.epsilon for entry in again.metrics] == [entry.epsilon for entry in run.metrics]


def test_the_run_of_a_federation_is_not_resumed_as_a_simulation(path):
    """`apes train` would draw reports of its own, for whoever it takes for the people."""
    assert _opened(path).path == path
    for file in (path / "config.json", path / "private/choices.json"):
        config = json.loads(file.read_text())
        config["choices"]["receipts_key"] = "00" * 32
        file.write_text(json.dumps(config))
    with pytest.raises(apes.DataError, match=r"is a federation's run: .*`apes federation up`"):
        _opened(path)


class Mischief:
    """Makes a file as soon as it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_budgets_that_were_kept_run_no_code(path, tmp_path):
    budgets = next((path / "budgets").iterdir())
    np.save(budgets, np.array([Mischief(tmp_path / "made")], dtype=object), allow_pickle=True)
    with pytest.raises(apes.DataError, match="cannot be read, so what was spent is not known"):
        RunFolder.open(path).recertify()
    assert not (tmp_path / "made").exists()
    # It would have: by a reader that unpickles.
    np.load(budgets, allow_pickle=True)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"step": np.array(np.inf)},
        {"step": np.array("x")},
        {"velocity": np.zeros(3)},
        {"weights": np.full(8, np.nan)},
        {"weights": np.full(8, "a")},
        {"header": np.frombuffer(b"[" * 100_000, np.uint8)},
        {"metrics": [None]},
        {"metrics": [{"round": 1, "accuracy": None, "loss": None, "seconds": None}]},
    ],
    ids=str,
)
def test_a_damaged_checkpoint_is_one_line(path, damage):
    """Refused where it is read, or where it is gone on with."""
    file = path / "private/checkpoint.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    if "metrics" in damage:
        header = json.loads(bytes(arrays["header"])) | damage
        damage = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    np.savez(file, **(arrays | damage))
    folder = RunFolder.open(path)
    with pytest.raises((apes.DataError, apes.ParameterError)) as caught:
        trained(resume=folder.load(), keys=folder.keys())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "[]", '{"choices": {}}', '{"choices": 3}'])
def test_a_configuration_that_is_none_is_one_line(path, content):
    (path / "config.json").write_text(content)
    with pytest.raises(apes.DataError, match="is not the configuration of a run") as caught:
        RunFolder.open(path)
    assert "\n" not in str(caught.value)


def test_a_model_belongs_to_the_log_beside_it(path, reached, tmp_path):
    run, _ = reached
    weights, about = RunFolder.open(path).model()
    assert np.array_equal(weights, run.weights)
    assert about["terms_sha256"]
    _, others = trained(replace(PLAN, clip=0.2))
    other = folder_of(tmp_path / "other", others)
    for name in ("model.npz", "certificate.json"):
        shutil.copy(path / name, other.path / name)
    with pytest.raises(apes.DataError, match="is the model of another run than"):
        RunFolder.open(other.path).model()
    (path / "model.npz").unlink()
    with pytest.raises(apes.DataError, match="has no model yet"):
        RunFolder.open(path).model()


def test_a_new_run_takes_no_others_place(path, tmp_path):
    for name in ("config.json", "private/checkpoint.npz"):
        with pytest.raises(apes.ParameterError, match=r"out must be a new folder, got .*, which holds a run"):
            RunFolder.create(path, {}, {}, data="")
        (path / name).unlink()
    with pytest.raises(apes.ParameterError, match="which holds a run"):
        RunFolder.create(path, {}, {}, data="")
    (path / "exposures.jsonl").unlink()
    with pytest.raises(apes.ParameterError, match="would be overwritten"):
        RunFolder.create(path, {}, {}, data="")
