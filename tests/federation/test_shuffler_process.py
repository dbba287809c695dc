"""The shuffler as a real process: over TLS, killed and started again, on a disk that is full, told to stop."""

import os
import signal
import socket
import subprocess
from dataclasses import replace

import pytest
from parties import (
    APES,
    BUDGETS,
    LEVELS,
    RUNS,
    TOKEN,
    Shuffler,
    batch,
    closes,
    honest,
    is_of,
    is_open,
    long_beginning,
    path,
    until,
)

from apes.federation.trial.layout import HOST
from apes.wire.envelope import envelope_size
from apes.wire.release import Release

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    policy = replace(small.policy, rounds=100_000, runs=RUNS)
    party = Shuffler(tmp_path_factory.mktemp("shuffler"), policy, small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


def test_without_the_token(shuffler, small):
    run = shuffler.next_run()
    with shuffler.client() as caller:
        caller.headers["authorization"] = f"Bearer {TOKEN}x"
        for answer in (caller.get(path(run=run)), caller.post(path(run=run), content=batch(honest(small, run=run)))):
            assert (answer.status_code, answer.json()["refused"]) == (401, "token")
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_a_caller_who_hangs_up(shuffler, small):
    run, before = shuffler.next_run(), shuffler.refused("requests", "cut-short")
    shuffler.begin_upload(run, long_beginning(honest(small, run=run))).close()
    until(lambda: shuffler.refused("requests", "cut-short") == before + 1)
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_killed_before_the_answer_was_read(shuffler, small):
    run = shuffler.next_run()
    body = batch(honest(small, run=run))
    shuffler.announce(run=run)
    connection = shuffler.connect()
    connection.sendall(
        f"POST {path(run=run)} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    ((kept,),) = until(lambda: shuffler.rows("select release from rounds where run = ?", run))
    shuffler.kill()
    connection.close()
    shuffler.start()
    assert shuffler.get(run=run).content == kept
    assert is_of(Release.decode(kept), range(8))
    assert shuffler.http.post(path(run=run), content=body).content == kept
    other = shuffler.post(honest(small, range(5), run=run), run=run)
    assert (other.status_code, other.json()["refused"]) == (409, "round-closed")
    assert shuffler.get(run=run).content == kept


def test_a_disk_that_takes_nothing(shuffler, small):
    """Not even the log can be written meanwhile."""
    closed, run = shuffler.next_run(), shuffler.next_run()
    assert closes(shuffler, small, closed)
    reports, later = honest(small, run=run), shuffler.next_run()
    assert shuffler.announce(run=run).status_code == 204
    shuffler.let_write(False)
    try:
        assert shuffler.announce(run=later).status_code == 503
        answers = [shuffler.post(reports, run=run) for _ in range(3)]
        assert {(each.status_code, each.json()["refused"]) for each in answers} == {(503, "ledger")}
        assert is_open(shuffler, run)
        assert is_of(Release.decode(shuffler.get(run=closed).content), range(8))
    finally:
        shuffler.let_write(True)
    assert shuffler.rows("select count(*) from participants where run = ?", run) == [(0,)]
    assert shuffler.refused("requests", "ledger") == 4
    release = shuffler.post(reports, run=run)
    assert is_of(Release.decode(release.content), range(8))
    assert shuffler.get(run=run).content == release.content


def test_a_second_shuffler_on_the_ledger_is_refused(shuffler, small):
    other = subprocess.run([APES, "shuffler", shuffler.folder / "shuffler.json"], capture_output=True, text=True)
    assert other.returncode == 2
    assert "ledger.sqlite is in use by another process" in other.stderr
    assert closes(shuffler, small, shuffler.next_run())


def rubbish_frames(small, run, noise, count):
    """Random strings; one in twenty is as long as an envelope and begins like one of a registered sender."""
    start = honest(small, [0], run=run)[0][:122]
    likely = [start + os.urandom(envelope_size(15, 16) - 122) for _ in range(count // 20)]
    return [*noise(count - len(likely)), *likely]


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_rubbish(shuffler, small, noise, times):
    """10,000 frames, 50 bodies, 25 strings at the port, or ten times that: it stays healthy, and as large as it was."""
    run, memory = shuffler.next_run(), []
    before = [shuffler.refused("reports", reason) for reason in ("malformed", "signature")]
    for _ in range(times):
        answer = shuffler.post(rubbish_frames(small, run, noise, 10_000), run=run)
        assert (answer.status_code, answer.json()["refused"]) == (422, "cohort")
        assert answer.json()["accepted"] == 0
        for body in noise(50):
            assert shuffler.http.post(path(run=run), content=body).status_code == 422
        for text in noise(20):
            with socket.create_connection((HOST, shuffler.port)) as connection:
                connection.sendall(text)
        for text in noise(5):
            with shuffler.connect() as connection:
                connection.sendall(text + b"\r\n\r\n")
        memory.append(shuffler.memory())
    after = [shuffler.refused("reports", reason) for reason in ("malformed", "signature")]
    assert after[0] - before[0] >= 9_500 * times
    assert after[1] - before[1] == 500 * times
    assert memory[-1] - memory[0] < 20e6, memory
    assert shuffler.is_ready()
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_logs_tell_no_values(shuffler, small):
    """After everything that was done above."""
    assert closes(shuffler, small, shuffler.next_run())
    names = {event["event"] for event in shuffler.events()}
    assert {"serving", "refused", "released"} <= names <= {"serving", "refused", "released", "ledger-failed", "library"}
    text = shuffler.log.read_text()
    assert not [sender for sender in small.policy.senders if sender in text]
    assert not [budget for budget in BUDGETS if str(budget)[2:] in text]
    assert not [row for row in LEVELS if str(row.tolist())[1:-1] in text or row.tobytes().hex() in text]
    assert TOKEN not in text
    assert small.shuffler.private_bytes_raw().hex() not in text


def test_it_stops_when_told(shuffler, small):
    """What was released is there after an orderly end as well."""
    run = shuffler.next_run()
    assert closes(shuffler, small, run)
    release = shuffler.get(run=run).content
    shuffler.http.close()
    shuffler.http = shuffler.client()
    shuffler._process.send_signal(signal.SIGTERM)
    shuffler._process.wait()
    shuffler.start()
    assert shuffler.get(run=run).content == release
