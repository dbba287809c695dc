"""A trial as it is run: one `up` per folder, signals, parties that die. One federation goes through all of it.

With the code of before, a second `up` stopped the first, a signal left everything training, and a dead analyzer was
noticed after 75 seconds.
"""

import signal
import time

import psutil
import pytest
from trials import begin_up, end_up, told

from apes.federation.trial.trial import Trial

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("operation")]
DEVICES, ROUNDS = 2, 2000
# By the issue; a busy machine gets as much again for the command's own last steps.
SECONDS_TO_NOTICE = 15.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("o") / "two"
    told("federation", "init", folder, "--devices", DEVICES, "--rounds", ROUNDS, "--colluding", 0)
    return folder


@pytest.fixture
def up(folder):
    """A run that has just ended a round; and what it left is stopped."""
    trial = Trial(folder)
    before, process = len(trial.metrics()), begin_up(folder)
    try:
        wait_for(lambda: len(trial.metrics()) > before or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        yield trial, process
    finally:
        # It would go on for all its rounds; a test that is about stopping has stopped it by now.
        process.terminate()
        end_up(process, folder)


def wait_for(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def analyzer(trial):
    return psutil.Process(int((trial.layout.analyzer / "run" / "analyzer.pid").read_text()))


def test_a_second_up_is_refused_and_the_first_goes_on(up, folder):
    trial, process = up
    before = trial.processes.all()
    second = begin_up(folder)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 2
    assert "federation.json is in use by another process" in errors
    rounds = len(trial.metrics())
    wait_for(lambda: len(trial.metrics()) > rounds)
    assert process.poll() is None
    assert {name: trial.processes.all()[name] for name in before} == before


def test_a_signal_stops_what_was_started(up):
    trial, process = up
    family = {member for each in trial.processes.all().values() for member in (each, *each.children(recursive=True))}
    assert len(family) > 2 * DEVICES + 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGTERM
    assert not [member for member in family if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
    assert trial.processes.all() == {}


def test_a_dead_analyzer_is_noticed(up):
    """The test is about time: Flower itself says so after a minute."""
    trial, process = up
    analyzer(trial).kill()
    began = time.monotonic()
    # It says so when all is stopped; that it stops the others is the sign that it knows.
    wait_for(lambda: "shuffler" not in trial.processes.all() or process.poll() is not None)
    noticed = time.monotonic() - began
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the analyzer" in errors
    assert noticed < 2 * SECONDS_TO_NOTICE


@pytest.mark.parametrize("kind", ["shuffler", "courier"])
def test_a_dead_party_is_noticed(up, kind):
    trial, process = up
    for name, party in trial.processes.all().items():
        if name.startswith(kind):
            party.kill()
    began = time.monotonic()
    wait_for(lambda: "superlink" not in trial.processes.all() or process.poll() is not None)
    assert time.monotonic() - began < 2 * SECONDS_TO_NOTICE
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert {"shuffler": "shuffler is gone", "courier": "all couriers are gone"}[kind] in errors
