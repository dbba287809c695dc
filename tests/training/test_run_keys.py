"""The keys of a run on disk: needed to go on, read by nobody else, gone when the run ends."""

import json
import stat
from dataclasses import replace

import numpy as np
import pytest
from few import LABELS, MODEL, PLAN, ROWS, folder_of, people_of, trained

import apes
from apes.training.key_files import destroy_run_key
from apes.training.keys import RunKeys
from apes.training.model_file import about_model
from apes.training.run_folder import RunFolder

# More rounds than were planned need a target that covers them.
TARGETED = replace(PLAN, target_epsilon=1e3)


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped after two of three rounds, and what it would have come to."""
    whole, reached = trained()
    return folder_of(tmp_path / "run", reached[:2]).path, whole


def ended(path, run, reached):
    folder = folder_of(path, reached)
    about = about_model(MODEL, run.guarantee, reached[0].identity.terms, rounds=len(reached))
    folder.keep_model(run.weights, about)
    folder.finish({"rounds": len(reached)})
    return folder


def gone_on_with(folder, **options):
    return trained(resume=folder.load(), keys=folder.keys(), **options)


def test_a_run_goes_on_bit_for_bit_under_its_key(stopped):
    path, whole = stopped
    assert gone_on_with(RunFolder.open(path))[0].model_sha256 == whole.model_sha256


def test_nobody_else_reads_them(stopped):
    path, _ = stopped
    assert stat.S_IMODE((path / "private").stat().st_mode) == 0o700
    for file in (path / "private").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_no_file_but_its_own_has_a_key(stopped):
    path, _ = stopped
    keys = RunFolder.open(path).keys()
    for name, secret in (("run.key", keys.noise.material), ("digest.key", keys.digests)):
        for file in path.rglob("*"):
            if file.is_file() and file.name != name:
                held = file.read_bytes()
                assert secret not in held
                assert secret.hex().encode() not in held


def test_without_its_key_a_run_does_not_go_on_and_is_certified_all_the_same(stopped):
    path, whole = stopped
    (path / "private/run.key").unlink()
    folder = RunFolder.open(path)
    with pytest.raises(apes.DataError, match=r"run\.key is missing, and the run cannot go on without it; what was rel"):
        folder.keys()
    assert folder.load().rounds == 2
    assert folder.recertify()[1].epsilon == whole.guarantee.epsilon


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda key: key[:-1] + bytes([key[-1] ^ 1]), "is not the key that the run was drawn under"),
     (lambda key: key[:-1], "is damaged: a key has 32 bytes, it has 31"),
     (lambda key: b"", "is damaged: a key has 32 bytes, it has 0")],
    ids=["one bit", "cut", "empty"],
)  # fmt: skip
def test_an_altered_key_is_refused(stopped, change, said):
    path, _ = stopped
    file = path / "private/run.key"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(apes.DataError, match=said):
        RunFolder.open(path).keys()


def test_without_the_key_of_digests_a_run_does_not_go_on(stopped):
    path, _ = stopped
    (path / "private/digest.key").unlink()
    with pytest.raises(apes.DataError, match=r"digest\.key is missing: whether the people are those of the run"):
        RunFolder.open(path).keys()


def test_the_key_is_destroyed_when_the_run_ends(tmp_path, monkeypatch):
    """It is overwritten before it is removed, so that what was written last is no key."""
    from apes.training import key_files

    written = []
    write = key_files.os.write
    monkeypatch.setattr(key_files.os, "write", lambda number, data: written.append(data) or write(number, data))
    folder = ended(tmp_path / "run", *trained())
    assert not (folder.path / "private/run.key").exists()
    assert written == [bytes(32)]
    assert folder.keys().noise is None
    destroy_run_key(folder.path)


def test_a_run_that_is_over_still_refuses_other_data(tmp_path):
    folder = ended(tmp_path / "run", *trained(TARGETED))
    others = people_of(rows=ROWS[::-1])
    with pytest.raises(apes.ParameterError, match="resume must be of the same people"):
        gone_on_with(folder, plan=TARGETED, people=others, rounds=5)


def test_added_rounds_have_a_key_of_their_own(tmp_path):
    run, reached = trained(TARGETED)
    folder = ended(tmp_path / "run", run, reached)
    more, after = gone_on_with(folder, plan=TARGETED, rounds=5)
    assert after[0].keys.noise != reached[0].keys.noise
    folder.save(after[0])
    # From here on it is this key that is needed.
    again = RunFolder.open(folder.path)
    assert again.keys().noise == after[0].keys.noise
    assert gone_on_with(again, plan=TARGETED, rounds=5)[0].model_sha256 == more.model_sha256
    (folder.path / "private/run.key").unlink()
    with pytest.raises(apes.DataError, match=r"run\.key is missing"):
        RunFolder.open(folder.path).keys()


def test_a_crash_before_the_first_added_round_counts_loses_nothing(tmp_path, monkeypatch):
    folder = ended(tmp_path / "run", *trained(TARGETED))
    _, after = gone_on_with(folder, plan=TARGETED, rounds=5)

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_keep_identity", full)
        with pytest.raises(OSError, match="disk full"):
            folder.save(after[0])
    # The key was drawn already, and is taken again.
    assert RunFolder.open(folder.path).keys().noise == after[0].keys.noise


def test_under_a_seed_there_is_no_key_file(tmp_path):
    plan = replace(PLAN, seed=7)
    run, reached = trained(plan)
    first = reached[0]
    choices, basis = {"seed": 7}, json.loads(first.identity.basis)
    folder = RunFolder.create(tmp_path / "run", choices, basis, data="", keys=first.keys, shown={"choices": {}})
    for progress in reached[:2]:
        folder.save(progress)
    assert not (folder.path / "private/run.key").exists()
    assert gone_on_with(folder, plan=plan)[0].model_sha256 == run.model_sha256
    assert folder.recertify()[1].is_seeded
    # What may be shown does not tell it, and the log says that there was one.
    assert '"seed": 7' not in "".join(file.read_text() for file in folder.path.glob("*.json*"))


def test_that_a_run_was_seeded_is_bound_to_its_log(tmp_path):
    reached = trained(replace(PLAN, seed=7))[1]
    folder = folder_of(tmp_path / "run", reached)
    config = json.loads((folder.path / "config.json").read_text())
    config["basis"]["seeded"] = False
    (folder.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(apes.DataError, match="seeded is false here, but true was laid down"):
        RunFolder.open(folder.path).recertify()


def test_a_crash_in_the_first_round_is_gone_on_with_by_the_same_people_alone(tmp_path, monkeypatch):
    whole, reached = trained()
    folder = folder_of(tmp_path / "run", reached[:1])
    for name in ("private/checkpoint.npz", "private/metrics.jsonl"):
        (folder.path / name).unlink()
    again = RunFolder.open(folder.path)
    assert again.load() is None
    same, rounds = trained(keys=again.keys())
    assert same.model_sha256 == whole.model_sha256
    _, others = trained(people=people_of(rows=ROWS[::-1]), keys=again.keys())
    with pytest.raises(apes.DataError, match="is of another run than this"):
        again.save(others[0])
    again.save(rounds[0])


def test_digests_of_people_are_keyed():
    keys = RunKeys.draw()
    test = apes.Examples(ROWS, LABELS.astype(np.uint8))
    reached = trained(keys=keys, test=test)[1][0].identity
    people = people_of()
    assert (reached.people, reached.test) == (keys.digest(people.digest), keys.digest(test.digest))
    assert people.digest not in repr(reached)
    assert test.digest not in repr(reached)
