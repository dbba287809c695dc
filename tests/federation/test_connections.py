"""Crowds at the shuffler's door: connections that want nothing keep nobody out who wants something.

Every crowd is a process of its own, on the loopback address, over real sockets. An idle crowd without a door would keep
the analyzer out for as long as it stays. What the door does is looked at one by one in test_connection_limit.py.
"""

import contextlib
import resource
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from parties import ANALYZER, RUN, RUNS, Shuffler, announced, honest, is_of, path

from apes.federation.trial.layout import HOST
from apes.wire.frames import LENGTH
from apes.wire.release import Release

pytestmark = pytest.mark.process
# What a service gets where nobody has chosen otherwise; and so few that a small crowd takes them all.
USUAL_FILES, FEW_FILES = (1024, 1024), (256, 256)
NEVER = 1e5
needs_files = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1500, reason="a crowd needs 1,500 open files"
)


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    """Nobody is sent away for being slow: what lets the analyzer in is that others make room."""
    folder = tmp_path_factory.mktemp("door")
    party = Shuffler(folder, replace(small.policy, runs=RUNS), small.shuffler, header_seconds=NEVER)
    party.open_files = FEW_FILES
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
    """So many connections, held until the block ends; a function that waits until all of them were closed."""
    script = Path(__file__).with_name("crowd.py")
    arguments = [sys.executable, script, str(port), str(count), kind, str(sources)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            opened = int(process.stdout.readline())
            yield opened, lambda: int(process.stdout.readline())
        finally:
            process.kill()


def is_served(shuffler, small):
    """Whether an analyzer that comes now gets a round released."""
    run = shuffler.next_run()
    with shuffler.client() as analyzer:
        body = b"".join(LENGTH.pack(len(report)) + report for report in honest(small, run=run))
        try:
            signed = announced(shuffler.terms, run=run).signed(ANALYZER)
            analyzer.put(f"{path(run=run)}/announcement", content=signed)
            answer = analyzer.post(path(run=run), content=body)
        except httpx.TransportError:
            return False
    return is_of(Release.decode(answer.content), range(8))


@pytest.mark.parametrize(("kind", "sources"), [("idle", 1), ("half", 50)])
def test_a_crowd_does_not_shut_the_door(shuffler, small, kind, sources):
    """The issue's two attacks, from one address and from fifty; without a door the request is not served."""
    with crowd(shuffler.port, 300, kind, sources):
        assert is_served(shuffler, small)
        assert is_served(shuffler, small)


@pytest.mark.exhaustive
@needs_files
@pytest.mark.parametrize(("count", "kind"), [(1100, "idle"), (1005, "half")])
@pytest.mark.parametrize("sources", [1, 50])
def test_a_large_crowd_does_not_shut_the_door(small, tmp_path, count, kind, sources):
    """With as many files as a service gets by itself."""
    shuffler = Shuffler(tmp_path, replace(small.policy, runs=RUNS), small.shuffler, header_seconds=NEVER)
    shuffler.open_files = USUAL_FILES
    with running(shuffler), crowd(shuffler.port, count, kind, sources):
        assert is_served(shuffler, small)
        assert is_served(shuffler, small)


def test_who_says_nothing_is_sent_away(small, tmp_path):
    """The crowds come after the batch has begun and are sent away while it still comes in; the token gives it time."""
    choices = {"header_seconds": 5.0, "connections": 50, "connections_per_address": 40}
    with running(Shuffler(tmp_path, small.policy, small.shuffler, **choices)) as shuffler:
        body = b"".join(LENGTH.pack(len(report)) + report for report in honest(small))
        slow, port = shuffler.begin_upload(RUN, body), shuffler.port
        with slow, crowd(port, 10, "idle") as idle, crowd(port, 10, "half") as half, crowd(port, 10, "again") as again:
            for opened, all_closed in (idle, half, again):
                assert opened == all_closed() == 10
            with crowd(port, 60, "half"), crowd(port, 60, "half", 30):
                # A frame that is no report, as long as was announced.
                slow.sendall(LENGTH.pack(996) + bytes(996))
                assert slow.recv(4096).startswith(b"HTTP/1.1 200 OK")
        release = Release.decode(shuffler.get().content)
        assert is_of(release, range(8))
        assert release.receipt.refused == {"malformed": 1}
        assert shuffler.metrics()['apes_connections_closed_total{reason="crowded"}'] > 50
        assert shuffler.metrics()['apes_connections_closed_total{reason="slow"}'] >= 30


@pytest.mark.parametrize("size", [17_000, 20_000, 65_000, 1 << 20])
def test_a_header_beyond_16_kib_is_refused(shuffler, size):
    """However it arrives: in one read, or in so many that it is never complete."""
    with shuffler.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * size + b"\r\n\r\n")
        with contextlib.suppress(OSError):
            assert connection.recv(4096).startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
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


def test_a_port_that_is_taken(small, tmp_path):
    shuffler = Shuffler(tmp_path, small.policy, small.shuffler)
    with socket.create_server((HOST, shuffler.port)):
        other = subprocess.run([*shuffler._arguments], capture_output=True, text=True)
    shuffler.http.close()
    assert other.returncode == 2
    assert f"{HOST}:{shuffler.port} cannot be listened on" in other.stderr
