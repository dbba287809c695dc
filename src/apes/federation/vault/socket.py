"""How a courier asks a vault: one request per connection, over a Unix socket.

A request is two frames (`apes.wire.frames`): an announcement (`apes.wire.announcement`), which a courier passes on
unread, and the weights. The answer is the byte 0 and framed sealed reports, or the byte 1 and one word of
`VaultRefusal`. It comes at a public time after the request (`apes.federation.vault.pace`); only what is no request is
refused at once.
"""

import contextlib
import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apes.errors import DataError
from apes.federation.vault.accounts import peer_of
from apes.federation.vault.pace import Pace
from apes.federation.vault.vault import Request, Vault, VaultRefusal, VaultRefused
from apes.storage.json_logs import RareLog, log
from apes.storage.locks import lock
from apes.wire.announcement import ANNOUNCEMENT_BYTES
from apes.wire.frames import LENGTH

# Who asks or takes an answer too slowly is hung up on, so that nobody keeps others from asking.
_SECONDS_TO_ASK = 30.0
_SECONDS_TO_TAKE = 300.0
# A path in a Unix socket's address has at most 107 bytes on Linux.
_LONGEST_PATH = 103


class VaultSocket:
    """Serves a vault on a Unix socket, replacing what an earlier vault left there.

    Only the account ``courier`` (its number) is listened to; if none is named, the vault's own. A request with weights
    of more bytes than the terms foresee is not read.
    """

    def __init__(
        self, path: Path, vault: Vault, largest_weights: int, answer_seconds: float, courier: int | None = None
    ) -> None:
        self._pace, self._worker = Pace(answer_seconds), ThreadPoolExecutor(1)
        self._vault, self._largest, self._refused = vault, largest_weights, RareLog("refused")
        self._courier, self._listener = courier, _listen(path, 0o600 if courier is None else 0o660)

    def serve(self) -> None:
        """Answer one request after another, for ever."""
        while True:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                if self._courier in (None, peer_of(connection)):
                    self._serve_one(connection)
                else:
                    self._refused.count("stranger")

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            request = self._read(connection)
        except VaultRefused as refused:
            # The bytes that came decide this, and nothing that is in here.
            connection.sendall(self._refusal(refused.reason))
            return
        began = time.monotonic()
        answer = self._worker.submit(self._answer, request)
        self._pace.wait(began, answer.done)
        connection.settimeout(_SECONDS_TO_TAKE)
        connection.sendall(answer.result())

    def _answer(self, request: Request) -> bytes:
        """The whole answer, whatever happens: also a refusal goes out in its time."""
        try:
            announced, reports = self._vault.announced(request), self._vault.answer(request)
        except VaultRefused as refused:
            return self._refusal(refused.reason)
        # Whatever else goes wrong inside may depend on the data, so not a word of it leaves.
        except Exception as error:
            log("internal", kind=type(error).__name__)
            return self._refusal(VaultRefusal.INTERNAL)
        log("answered", run=announced.run.hex(), round=announced.round)
        return b"\x00" + reports

    def _refusal(self, reason: VaultRefusal) -> bytes:
        self._refused.count(reason.value)
        return b"\x01" + reason.value.encode()

    def _read(self, connection: socket.socket) -> Request:
        end = time.monotonic() + _SECONDS_TO_ASK
        announcement = _read_frame(connection, ANNOUNCEMENT_BYTES, end)
        return Request(announcement, _read_frame(connection, self._largest, end))


def _listen(path: Path, mode: int) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise DataError(f"the socket's path is longer than {_LONGEST_PATH} bytes, choose a shorter folder: {path}")
    # Until the process ends, lest a second vault takes this one's place.
    lock(path)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise DataError(f"{path} is there already and is not a socket; move it away")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Nobody may connect between bind and chmod.
    before = os.umask(0o777)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    path.chmod(mode)
    listener.listen(16)
    return listener


def _read_frame(connection: socket.socket, largest: int, end: float) -> bytes:
    (length,) = LENGTH.unpack(_read_exactly(connection, LENGTH.size, end))
    if length > largest:
        raise VaultRefused(VaultRefusal.REQUEST)
    return _read_exactly(connection, length, end)


def _read_exactly(connection: socket.socket, size: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(end - time.monotonic(), 1e-3))
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise VaultRefused(VaultRefusal.REQUEST)
        data += piece
    return bytes(data)
