"""How a trial is run and stopped, without its processes: who is waited for, who is missed, who goes first."""

import json
import os
import signal
from types import SimpleNamespace

import psutil
import pytest
from local_federation import few_people, small_federation, without_ports
from parties import apes

from apes import LogisticRegression, Plan
from apes.errors import DataError, ParameterError
from apes.federation.parties import new_folder
from apes.federation.subject import Subject
from apes.federation.trial import setup, trial
from apes.federation.trial.trial import FederationError, Trial


class Running:
    """Stands in for the processes: who runs, and who was told to stop, in order."""

    def __init__(self, folder, names):
        self.names, self.stopped, self.folder = list(names), [], folder

    def all(self):
        return {name: SimpleNamespace(pid=1) for name in self.names}

    def stop(self, names):
        self.stopped.append(sorted(names))
        self.names = [name for name in self.names if name not in names]

    def adopt(self, name, *words):
        pass

    def log(self, name):
        return self.folder / f"{name}.log"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_federation(tmp_path_factory.mktemp("t") / "two", vaults=2)


@pytest.fixture
def two(folder, tmp_path, monkeypatch):
    """A trial of two devices, all of whose parties seem to run."""
    made = Trial(folder)
    made.processes = Running(tmp_path, ["shuffler", "superlink", *made.vaults, *made.nodes])
    made.summary, made._analyzer_pid = tmp_path / "summary.json", tmp_path / "analyzer.pid"
    made._analyzer_pid.write_text(str(os.getpid()))
    looks = iter(range(1000))
    monkeypatch.setattr(trial.time, "sleep", lambda seconds: next(looks, None) is None and pytest.fail("it goes on"))
    monkeypatch.setattr(trial, "_SECONDS_TO_TELL_WHY", 0.0)
    monkeypatch.setattr(made, "flwr", lambda *_: {"runs": []})
    return made


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (["shuffler"], "shuffler is gone"),
        (["superlink"], "superlink is gone"),
        (["vault-0001", "vault-0002"], "all vaults are gone"),
        (["courier-0001", "courier-0002"], "all couriers are gone"),
    ],
)
def test_a_dead_party_is_noticed(two, gone, said):
    two.processes.stop(gone)
    with pytest.raises(FederationError, match=said):
        two.watch("1", lambda entry: None)


def test_one_device_may_go(two):
    two.processes.stop(["vault-0001", "courier-0002"])
    two._check_parties()


def test_a_dead_analyzer_is_noticed(two, monkeypatch):
    monkeypatch.setattr(trial, "is_running", lambda process: False)
    with pytest.raises(FederationError, match="the analyzer is gone; start again to go on"):
        two.watch("1", lambda entry: None)
    status = {"run-id": "1", "status": "finished:failed", "status-details": "no node came"}
    monkeypatch.setattr(two, "flwr", lambda *_: {"runs": [status]})
    with pytest.raises(FederationError, match=r"the analyzer stopped \(no node came\)"):
        two.watch("1", lambda entry: None)
    two.summary.write_text("{}")
    two.watch("1", lambda entry: None)


def test_a_process_that_is_gone_is_no_analyzer(two, monkeypatch):
    monkeypatch.setattr(trial.psutil, "Process", _nobody)
    assert not two._analyzer_runs()
    two._analyzer_pid.unlink()
    # It may still be on its way.
    assert two._analyzer_runs()


def _nobody(pid):
    raise psutil.NoSuchProcess(pid)


def test_down_stops_everybody_and_the_analyzer_first(two):
    """Lest it close a round with the few who are still there; couriers sign off before the SuperLink goes."""
    two.processes.names += ["analyzer-0001", "superexec-0001"]
    everybody = set(two.processes.names)
    assert set(two.down()) == everybody - {"superexec-0001"}
    assert two.processes.names == []
    assert two.processes.stopped[:3] == [["analyzer-0001"], ["courier-0001", "courier-0002"], ["superlink"]]
    assert two.down() == []


def test_one_up_at_a_time(folder, two):
    """A second one is refused, and stops nobody."""
    with two.alone():
        running = two.processes.names = ["shuffler"]
        code, _, errors = apes("federation", "up", folder)
        assert (code, running) == (2, ["shuffler"])
        assert "federation.json is in use by another process" in errors
    assert two.processes.names == []
    with two.alone():
        pass


def test_a_signal_ends_it_by_way_of_what_stops_the_others(two):
    before = signal.getsignal(signal.SIGTERM)
    two.processes.names = []

    def killed():
        with two.alone():
            two.processes.names = ["shuffler", "vault-0001"]
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        killed()
    assert ended.value.code == 128 + signal.SIGTERM
    assert two.processes.names == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_over_is_told_again_without_starting_anybody(folder):
    """Also that there was not even one round."""
    summary = folder / "analyzer" / "run" / "private/summary.json"
    summary.parent.mkdir(parents=True, exist_ok=True)
    summary.write_text(json.dumps({"run": "ab", "rounds": 0, "refused": "not even one round keeps within 1"}))
    try:
        code, output, errors = apes("federation", "up", folder, "--json")
    finally:
        summary.unlink()
    assert (code, output) == (2, "")
    assert "not even one round keeps within 1" in errors
    assert not (folder / "processes.json").exists()


def test_a_folder_that_exists_is_left_as_it_is(folder, tmp_path):
    before = written(folder)
    with pytest.raises(ParameterError, match="folder must not exist yet"):
        small_federation(folder)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in ("empty", "link"):
        with pytest.raises(ParameterError, match="folder must not exist yet"), new_folder(tmp_path / taken):
            pytest.fail("it was filled")
    assert written(folder) == before


def written(folder):
    """When each file of a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def killed():
        with new_folder(tmp_path / "f") as part:
            (part / "key").write_text("secret")
            assert part.stat().st_mode & 0o077 == 0
            assert not (tmp_path / "f").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert list(tmp_path.iterdir()) == []


def test_more_vaults_than_people(tmp_path):
    people = few_people()
    subject = Subject(LogisticRegression(4, 3), people.test, 3)
    with without_ports(), pytest.raises(ParameterError, match=r"vaults must be in \[1, 3\], got 4"):
        setup.set_up(tmp_path / "f", Plan(rounds=1, levels=16), subject, people, 4)


def test_damaged_settings_are_told_in_a_line(folder, tmp_path):
    (tmp_path / "federation.json").write_text('{"run": 5}')
    with pytest.raises(DataError, match=r"federation\.json"):
        Trial(tmp_path)
