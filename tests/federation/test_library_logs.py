"""Warnings of libraries in the log: strangers cause them, so they are counted, and told when the count doubles."""

import contextlib
import json
import logging
import socket
import ssl
from dataclasses import replace

import pytest
from parties import RUNS, Shuffler, until

from apes.federation.trial.layout import HOST
from apes.storage.json_logs import _Lines

UPGRADE = f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()


@pytest.fixture
def logger():
    """A library's, whose lines are ours."""
    found = logging.getLogger("a.library.of.the.tests")
    found.handlers, found.propagate = [_Lines()], False
    return found


def events(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_warning_is_told_when_its_count_doubles(logger, capsys):
    for number in range(1000):
        # Messages that all differ are one warning: they come from one place.
        logger.warning(f"caller {number} said %s", "a secret")
    found = events(capsys)
    assert [event["count"] for event in found] == [2**power for power in range(10)]
    assert {event["event"] for event in found} == {"library"}
    assert found[0]["message"] == "caller 0 said %s"
    logger.warning("another")
    assert [event["message"] for event in events(capsys)] == ["another"]


def test_errors_of_two_kinds_are_told_apart_and_their_words_are_not_told(logger, capsys):
    for number in range(8):
        try:
            raise (ValueError if number % 2 else KeyError)("a secret")
        except (ValueError, KeyError):
            logger.exception("it failed")
    found = events(capsys)
    assert [event["count"] for event in found] == [1, 1, 2, 2, 4, 4]
    assert ["ValueError" in event["reason"] for event in found] == 3 * [False, True]
    assert __file__ in found[0]["reason"]
    assert "secret" not in json.dumps(found)


def hello(name=b"somebody.example", written=b"\xff\x1b]0;title\x07.exam"):
    """How a connection by TLS begins, for a server whose name is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name.decode()).do_handshake()
    said = outgoing.read()
    assert (said.count(name), len(name)) == (1, len(written))
    return said.replace(name, written)


@pytest.mark.process
def test_strangers_do_not_fill_the_shufflers_log(small, tmp_path):
    """300 bad requests were 300 lines, and so was every upgrade that was asked for; bad names of servers were five."""
    shuffler = Shuffler(tmp_path, replace(small.policy, runs=RUNS), small.shuffler)
    shuffler.start()
    try:
        before = len(shuffler.events())
        for _ in range(50):
            with shuffler.connect() as connection:
                connection.sendall(b"X\r\n\r\n")
                with contextlib.suppress(OSError):
                    connection.recv(100)
        for _ in range(50):
            with socket.create_connection((HOST, shuffler.port)) as connection:
                connection.sendall(hello())
                with contextlib.suppress(OSError):
                    connection.recv(100)
        with shuffler.connect() as connection:
            for _ in range(200):
                connection.sendall(UPGRADE)
                # The head of an answer, and then its body.
                while not (answer := connection.recv(1000)).endswith(b'"ok"}'):
                    assert answer
        until(lambda: told(shuffler, before, "") == 128 and told(shuffler, before, "UnicodeDecodeError") == 32)
        added = shuffler.events()[before:]
    finally:
        shuffler.kill()
        shuffler.http.close()
    # All are told of, and how often they were: a line for every power of two.
    assert {event["event"] for event in added} == {"library"}
    for reason in {event["reason"] for event in added}:
        counts = [event["count"] for event in added if event["reason"] == reason]
        assert counts == [2**power for power in range(len(counts))]
    assert len({event["reason"] for event in added}) < 6
    assert "title" not in shuffler.log.read_text()


def told(shuffler, before, reason):
    """The largest count of a reason that was told since."""
    counts = [event["count"] for event in shuffler.events()[before:] if reason in event["reason"]]
    return max(counts, default=0)
