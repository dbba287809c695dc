"""Processes that are known by number and start time: found again by another command, and by nobody's mistake."""

import json

import psutil
import pytest
from parties import until

from apes.errors import DataError
from apes.federation.trial.processes import Processes, is_running

pytestmark = pytest.mark.process


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make scripts; what they started is stopped."""
    monkeypatch.setattr("apes.federation.trial.processes._SECONDS_TO_STOP", 0.5)
    processes = Processes(tmp_path / "processes.json", tmp_path / "logs")

    def make(name, body):
        script = tmp_path / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        processes.start(name, script)

    make.processes, make.again = processes, lambda: Processes(tmp_path / "processes.json", tmp_path / "logs")
    yield make
    processes.stop(list(processes.all()))


def test_another_command_finds_and_stops_it_with_what_it_started(make):
    make("one", "echo begun; sleep 600 & sleep 600; wait")
    make("two", "exec sleep 600")
    (one,) = [make.processes.all()["one"]]
    family = until(lambda: len(found := one.children()) == 2 and [one, *found])
    again = make.again()
    assert again.all() == make.processes.all()
    assert again.log("one").read_text() == "begun\n"
    again.stop(["one", "never-heard-of"])
    assert not [process for process in family if is_running(process)]
    assert list(make.processes.all()) == list(again.all()) == ["two"]


def test_what_does_not_go_is_killed(make):
    make("deaf", "trap '' TERM; echo deaf; while true; do sleep 0.1; done")
    until(lambda: make.processes.log("deaf").read_text())
    deaf = make.processes.all()["deaf"]
    make.processes.stop(["deaf"])
    assert not is_running(deaf)
    assert make.processes.all() == {}


def test_one_that_ended_leaves_nothing(make):
    make("short", "exit 3")
    pid = make.processes._children[0].pid
    until(lambda: "short" not in make.processes.all())
    assert not psutil.pid_exists(pid)


def test_another_with_its_number_is_left_alone(make, tmp_path):
    make("one", "exec sleep 600")
    process, file = make.processes.all()["one"], tmp_path / "processes.json"
    file.write_text(json.dumps({"one": (process.pid, process.create_time() - 60)}))
    assert make.processes.all() == {}
    make.processes.stop(["one"])
    assert is_running(process)
    file.write_text(json.dumps({"one": (process.pid, process.create_time())}))
    assert make.processes.all() == {"one": process}


def test_adopted_by_its_command_line(make, tmp_path):
    make("parent", f"sh -c 'sleep 600; : {tmp_path}/mark' & wait")
    parent = make.processes.all()["parent"]
    (child,) = until(parent.children)
    until(lambda: f"{tmp_path}/mark" in " ".join(child.cmdline()))
    make.processes.adopt("child", "sleep 600", f"{tmp_path}/mark")
    make.processes.adopt("nobody", "sleep 600", f"{tmp_path}/another")
    assert make.processes.all() == {"parent": parent, "child-0001": child}
    make.processes.stop(["child-0001"])
    assert not is_running(child)


@pytest.mark.unit
@pytest.mark.parametrize("text", ["", "{", "[]", '{"one": 5}', '{"one": {"pid": 1, "t": 2}}', '{"one": [-5, 1.0]}'])
def test_a_damaged_file(tmp_path, text):
    (tmp_path / "processes.json").write_text(text)
    with pytest.raises(DataError, match=r"processes\.json is damaged"):
        Processes(tmp_path / "processes.json", tmp_path).all()
