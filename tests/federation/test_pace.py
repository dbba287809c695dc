"""When an answer goes out, by a clock that the test moves: at a public time, whatever the work was.

That real vaults keep to it as far as a clock can tell is looked at in test_answer_times.py, by statistics.
"""

import math

import numpy as np
import pytest
from local_vault import LocalVault
from parties import agreed

from apes.errors import ParameterError
from apes.federation.vault import pace
from apes.federation.vault.pace import Pace, patience_for, public_seconds


class Clock:
    """Time that passes only while somebody sleeps; a sleep of nothing takes a millisecond."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 0.001)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def leaves_at(clock, seconds, work):
    """When an answer leaves whose work takes so long, by a pace of so many seconds; the request came at 100."""
    clock.now = began = 100.0
    Pace(seconds).wait(began, lambda: clock.now >= began + work)
    return clock.now - began


@pytest.mark.parametrize("seconds", [0.01, 0.25, 8.1])
def test_whatever_the_work_was_the_answer_leaves_at_one_time(clock, seconds):
    times = {leaves_at(clock, seconds, share * seconds) for share in (0, 0.001, 0.3, 0.9, 0.999)}
    assert len(times) == 1
    assert seconds <= times.pop() < seconds + 0.0015


@pytest.mark.parametrize(
    ("work", "multiple"), [(0.11, 2), (0.15, 2), (0.19, 2), (0.21, 3), (0.29, 3), (0.45, 5), (10.05, 101)]
)
def test_late_answers_leave_at_the_next_multiple(clock, work, multiple, capsys):
    """Whoever sees such an answer learns how many multiples it took, and no more; the owner is told."""
    left = leaves_at(clock, 0.1, work)
    assert multiple * 0.1 <= left < multiple * 0.1 + 0.0015
    assert '"event": "late", "reason": "answer", "count": 1, "answer_seconds": 0.1' in capsys.readouterr().err


def test_answers_in_time_are_not_worth_a_word(clock, capsys):
    leaves_at(clock, 0.1, 0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seconds", [0, -1, 3601, math.nan, math.inf, "1", True])
def test_a_pace_is_a_number_of_seconds(seconds):
    with pytest.raises(ParameterError, match="answer_seconds"):
        Pace(seconds)


def test_every_answer_to_a_request_waits_for_its_time(small, tmp_path):
    """Fresh, repeated and refused ones alike; only what is no request is refused at once."""
    vault = LocalVault(tmp_path / "v", agreed(), small.keys, small.shuffler)
    vault.start()
    waited = []
    keep_time = vault.served._pace.wait

    def wait(began, is_done):
        keep_time(began, is_done)
        waited.append((vault.connection.answer, is_done()))

    vault.served._pace.wait = wait
    nan = np.full(15, np.nan, "<f4").tobytes()
    requests = [vault.request(1), vault.request(1), vault.request(2, nan), vault.request(1, terms="00" * 32)]
    requests += [vault.request(number) for number in (2, 4)]
    for number, request in enumerate(requests, 1):
        assert vault.ask(request)
        # Made by then, and not a byte of it sent.
        assert waited[-1] == (b"", True)
        assert len(waited) == number
    assert vault.ask(b"GET / HTTP/1.1\r\n\r\n") == b"\1request"
    assert len(waited) == len(requests)
    vault.kill()


def test_the_public_time_knows_dimensions_and_users_only():
    assert public_seconds(7850, 1) == public_seconds(7850, 1) > public_seconds(10, 1)
    assert public_seconds(7850, 2) > public_seconds(7850, 1)
    assert public_seconds(2**31, 10**6) == 3600


def test_a_courier_is_more_patient_than_the_longest_answer_takes():
    for dimensions, users in ((10, 1), (7850, 1000), (2**31, 10**6)):
        assert patience_for(dimensions, users) >= 2 * public_seconds(dimensions, users)
