"""Crowds at the shuffler's door: connections that want nothing keep nobody out who wants something.

Every crowd is a process of its own, on the loopback address, over real sockets. Time is what these tests are about: the
analyzer's request has 20 seconds, where an idle crowd without a door would keep it out for as long as it stays.
"""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from parties import ANALYZER, RUN, RUNS, Shuffler, announced, honest, is_of, path

from apes.federation.trial.layout import HOST
from apes.wire.frames import LENGTH
from apes.wire.release import Release

pytestmark = pytest.mark.process
# What a service gets where nobody has chosen otherwise.
USUAL_FILES = (1024, 1024)
SECONDS_TO_BE_SERVED = 20.0
needs_files = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1500, reason="a crowd needs 1,500 open files"
)


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    party = Shuffler(tmp_path_factory.mktemp("door"), replace(small.policy, runs=RUNS), small.shuffler)
    party.open_files = USUAL_FILES
    with running(party):
        yield party


@contextlib.contextmanager
def running(shuffler):
    """A shuffler of one test's own."""
    shuffler.start()
    try:
        yield shuffler
    finally:
        shuffler.kill()
        shuffler.http.close()


@contextlib.contextmanager
def crowd(port, count, kind, sources=1):
    """So many connections, held until the block ends; a function that ends them and says how many were closed."""
    script = Path(__file__).with_name("crowd.py")
    arguments = [sys.executable, script, str(port), str(count), kind, str(sources)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            opened = int(process.stdout.readline())
            yield opened, lambda: int(process.communicate()[0])
        finally:
            process.kill()


def is_served(shuffler, small):
    """Whether an analyzer that comes now gets a round released in time."""
    run = shuffler.next_run()
    with shuffler.client() as analyzer:
        analyzer.timeout = SECONDS_TO_BE_SERVED
        body = b"".join(LENGTH.pack(len(report)) + report for report in honest(small, run=run))
        try:
            signed = announced(shuffler.terms, run=run).signed(ANALYZER)
            analyzer.put(f"{path(run=run)}/announcement", content=signed)
            answer = analyzer.post(path(run=run), content=body)
        except httpx.TransportError:
            return False
    return is_of(Release.decode(answer.content), range(8))


@needs_files
@pytest.mark.parametrize(
    ("count", "kind", "sources"),
    [(1100, "idle", 1), (1100, "idle", 50), (1005, "half", 1), (1005, "half", 50)],
    ids=["idle", "idle, many addresses", "half a header", "half a header, many addresses"],
)
def test_a_crowd_does_not_shut_the_door(shuffler, small, count, kind, sources):
    """The issue's two attacks, from one address and from fifty; without a door the request is not served in time."""
    with crowd(shuffler.port, count, kind, sources):
        assert is_served(shuffler, small)
        assert is_served(shuffler, small)


@pytest.mark.parametrize("kind", ["idle", "half", "again"])
def test_who_says_nothing_is_sent_away(shuffler, kind):
    """Within the 10 seconds that the settings give, and some for a busy machine; without them, nobody ever was."""
    with crowd(shuffler.port, 20, kind) as (opened, closed):
        assert opened == 20
        time.sleep(15)
        assert closed() == 20


def test_a_batch_that_takes_longer_than_a_header_may_is_taken(small, tmp_path):
    """With the token there is time, also while a crowd fills the address and everything."""
    choices = {"header_seconds": 2.0, "connections": 20, "connections_per_address": 10}
    with running(Shuffler(tmp_path, small.policy, small.shuffler, **choices)) as shuffler:
        body = b"".join(LENGTH.pack(len(report)) + report for report in honest(small))
        slow = shuffler.begin_upload(RUN, body)
        with slow, crowd(shuffler.port, 60, "half"), crowd(shuffler.port, 60, "half", 30):
            time.sleep(5)
            # A frame that is no report, as long as was announced.
            slow.sendall(LENGTH.pack(996) + bytes(996))
            slow.settimeout(SECONDS_TO_BE_SERVED)
            assert slow.recv(4096).startswith(b"HTTP/1.1 200 OK")
        release = Release.decode(shuffler.get().content)
        assert is_of(release, range(8))
        assert release.receipt.refused == {"malformed": 1}
        assert shuffler.metrics()['apes_connections_closed_total{reason="crowded"}'] > 50


def test_a_header_without_end(shuffler):
    """It ends at 16 KiB."""
    with shuffler.connect() as connection:
        connection.settimeout(SECONDS_TO_BE_SERVED)
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * (1 << 20))
        with contextlib.suppress(OSError):
            assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    assert shuffler.is_ready()


def test_what_a_caller_says_of_itself_does_not_change_whose_connection_it_is(shuffler, small):
    answer = shuffler.http.get("/health", headers={"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "http"})
    assert answer.status_code == 200
    assert is_served(shuffler, small)


def test_open_files_are_raised_to_what_the_system_allows(small, tmp_path):
    shuffler = Shuffler(tmp_path, small.policy, small.shuffler)
    shuffler.open_files = (256, 1024)
    with running(shuffler):
        assert resource.prlimit(shuffler._process.pid, resource.RLIMIT_NOFILE) == (1024, 1024)
        # The thousand that the settings want do not fit; it says so and goes on.
        (event,) = [event for event in shuffler.events() if event["event"] == "few-files"]
        assert (event["connections"], event["wanted"]) == (924, 1000)


def test_empty_frames_are_refused_early(shuffler, small):
    """4,194,304 of them in 16 MB: the first 20,016 are looked at, which takes less than the 30 seconds of before."""
    run, began = shuffler.next_run(), time.monotonic()
    shuffler.announce(run=run)
    with shuffler.client() as analyzer:
        answer = analyzer.post(path(run=run), content=bytes(16 << 20))
    assert (answer.status_code, answer.json()["refused"]) == (413, "frames")
    assert time.monotonic() - began < 10
    assert shuffler.refused("requests", "frames") == 1
    assert shuffler.post(honest(small, run=run), run=run).status_code == 200


def test_a_port_that_is_taken(small, tmp_path):
    shuffler = Shuffler(tmp_path, small.policy, small.shuffler)
    with socket.create_server((HOST, shuffler.port)):
        other = subprocess.run([*shuffler._arguments], capture_output=True, text=True)
    shuffler.http.close()
    assert other.returncode == 2
    assert f"{HOST}:{shuffler.port} cannot be listened on" in other.stderr
