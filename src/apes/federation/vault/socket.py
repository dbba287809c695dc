"""How a courier asks a vault: one request per connection, over a Unix socket.

A request is two frames (`apes.wire.frames`): a JSON object with exactly ``version``, ``run``, ``round`` and ``terms``,
and the weights. The answer is the byte 0 and framed sealed reports, or the byte 1 and one word of `VaultRefusal`. It
comes at a public time after the request (`apes.federation.vault.pace`); only what is no request is refused at once.
"""

import contextlib
import json
import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apes.errors import DataError
from apes.federation.vault.pace import Pace
from apes.federation.vault.vault import Request, Vault, VaultRefusal, VaultRefused
from apes.storage.json_logs import RareLog, log
from apes.storage.locks import lock
from apes.wire.frames import LENGTH

VERSION = 2
_HEADER = {"version": int, "run": str, "round": int, "terms": str}
_LARGEST_HEADER = 1024
# Who asks or takes an answer too slowly is hung up on, so that nobody keeps others from asking.
_SECONDS_TO_ASK = 30.0
_SECONDS_TO_TAKE = 300.0
# A path in a Unix socket's address has at most 107 bytes on Linux.
_LONGEST_PATH = 103


class VaultSocket:
    """Serves a vault on a Unix socket with these permissions, replacing what an earlier vault left there.

    A request with weights of more bytes than the terms foresee is not read.
    """

    def __init__(
        self, path: Path, vault: Vault, largest_weights: int, answer_seconds: float, mode: int = 0o600
    ) -> None:
        self._pace, self._worker = Pace(answer_seconds), ThreadPoolExecutor(1)
        self._vault, self._largest, self._refused = vault, largest_weights, RareLog("refused")
        self._listener = _listen(path, mode)

    def serve(self) -> None:
        """Answer one request after another, for ever."""
        while True:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                self._serve_one(connection)

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
            reports = self._vault.answer(request)
        except VaultRefused as refused:
            return self._refusal(refused.reason)
        # Whatever else goes wrong inside may depend on the data, so not a word of it leaves.
        except Exception as error:
            log("internal", kind=type(error).__name__)
            return self._refusal(VaultRefusal.INTERNAL)
        log("answered", run=request.run, round=request.round)
        return b"\x00" + reports

    def _refusal(self, reason: VaultRefusal) -> bytes:
        self._refused.count(reason.value)
        return b"\x01" + reason.value.encode()

    def _read(self, connection: socket.socket) -> Request:
        end = time.monotonic() + _SECONDS_TO_ASK
        header = _read_frame(connection, _LARGEST_HEADER, end)
        weights = _read_frame(connection, self._largest, end)
        try:
            asked = json.loads(header)
            kinds = {name: type(value) for name, value in asked.items()}
        except (ValueError, AttributeError, RecursionError):
            raise VaultRefused(VaultRefusal.REQUEST) from None
        if kinds != _HEADER or asked["version"] != VERSION:
            raise VaultRefused(VaultRefusal.REQUEST)
        return Request(asked["run"], asked["round"], asked["terms"], weights)


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
