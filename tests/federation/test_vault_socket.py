"""Who may ask a vault: the account at the other end is looked at, and the socket is never open to everybody."""

import contextlib
import json
import os
import socket
import stat
from pathlib import Path
from unittest import mock

import pytest

from apes.errors import DataError
from apes.federation.vault import socket as vault_socket
from apes.federation.vault.socket import VaultSocket


class Over(BaseException):
    """Nobody asks any more."""


class Listener:
    """Hands out one connection, then ends."""

    def __init__(self, connection):
        self._connections = [connection]

    def accept(self):
        if not self._connections:
            raise Over
        return self._connections.pop(), None


def answer_to_this_account(courier):
    """What a vault says to this test's own account, which sends what is no request, if it listens to ``courier``."""
    ours, theirs = socket.socketpair()
    with mock.patch.object(vault_socket, "_listen", return_value=Listener(theirs)):
        served = VaultSocket(Path("unused"), None, 60, 1.0, courier)
    with ours:
        ours.sendall(b"GET / HTTP/1.1\r\n\r\n")
        ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Over):
            served.serve()
        # What was not read is thrown away with a reset.
        with contextlib.suppress(ConnectionResetError):
            return ours.recv(100)
    return b""


def test_only_the_couriers_account_is_answered(capsys):
    assert answer_to_this_account(os.geteuid()) == b"\1request"
    assert answer_to_this_account(None) == b"\1request"
    capsys.readouterr()
    assert answer_to_this_account(os.geteuid() + 1) == b""
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["reason"]) == ("refused", "stranger")


@pytest.mark.service
@pytest.mark.parametrize(("courier", "mode"), [(None, 0o600), (61235, 0o660)])
def test_a_socket_is_closed_before_it_is_open_to_those_who_may_ask(tmp_path, monkeypatch, courier, mode):
    place, seen, change = tmp_path / "vault.sock", [], Path.chmod

    def chmod(path, wanted):
        with socket.socket(socket.AF_UNIX) as early:
            seen.append((stat.S_IMODE(path.lstat().st_mode), early.connect_ex(str(path)) == 0))
        change(path, wanted)

    monkeypatch.setattr(Path, "chmod", chmod)
    before = os.umask(0)
    try:
        served = VaultSocket(place, None, 60, 1.0, courier)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    with served._listener:
        # Nobody's permissions, and nobody listens yet.
        assert seen == [(0, False)]
        assert stat.S_IMODE(place.lstat().st_mode) == mode


def test_a_socket_path_too_long(tmp_path):
    with pytest.raises(DataError, match="longer than 103 bytes"):
        VaultSocket(tmp_path / ("s" * (104 - len(str(tmp_path)))), None, 60, 1.0)


def test_a_file_in_the_sockets_place(tmp_path):
    place = tmp_path / "vault.sock"
    place.write_text("mine")
    with pytest.raises(DataError, match=r"vault\.sock is there already and is not a socket"):
        VaultSocket(place, None, 60, 1.0)
    assert place.read_text() == "mine"
