"""Values in files, for processes of this machine: written once, and mapped into the memory of whoever reads them.

Arrays are not copied: all processes share the pages of the file, and one that writes gets a page of its own.
"""

import mmap
import os
import pickle
import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from apes.errors import ApesError, WorkersError
from apes.training.crews.kept import cannot_travel

# Where arrays begin: what vector instructions like best, and the same whoever reads.
_STEP = 64
_SIZE = struct.Struct("<Q")


class Files:
    """One file per slot; they have no names where the system allows it, so that nothing stays behind, whatever happens.

    What is in them is raw data: nobody but this user may read them.
    """

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}
        self._has_no_names = os.path.exists("/proc/self/fd")

    def write(self, slot: str, value: object) -> "FromFile":
        """Write a value, and let go of the slot's earlier one."""
        file = tempfile.TemporaryFile() if self._has_no_names else tempfile.NamedTemporaryFile()
        try:
            _write(file, value)
        except OSError as error:
            file.close()
            said = f"what worker processes need cannot be written to {tempfile.gettempdir()}: {error.strerror}"
            raise WorkersError(f"{said}; TMPDIR names a folder with more room") from None
        except ApesError:
            file.close()
            raise
        self._let_go(slot)
        self._files[slot] = file
        return FromFile(f"/proc/{os.getpid()}/fd/{file.fileno()}" if self._has_no_names else file.name)

    def close(self) -> None:
        """Let go of all of them."""
        for slot in list(self._files):
            self._let_go(slot)

    def _let_go(self, slot: str) -> None:
        if slot in self._files:
            with suppress(OSError):
                self._files.pop(slot).close()


@dataclass(frozen=True)
class FromFile:
    """Reads a value from its file."""

    path: str

    def __call__(self) -> Any:
        """The value; its arrays lie in the file."""
        with open(self.path, "rb") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        count = _SIZE.unpack_from(memory)[0]
        sizes = [_SIZE.unpack_from(memory, _SIZE.size * (place + 1))[0] for place in range(count)]
        pieces, place = [], _rounded(_SIZE.size * (count + 1))
        for size in sizes:
            pieces.append(memory[place : place + size])
            place = _rounded(place + size)
        return pickle.loads(pieces[0], buffers=pieces[1:])


def _write(file: IO[bytes], value: object) -> None:
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        raise cannot_travel(value, error) from None
    pieces = [memoryview(body), *(buffer.raw() for buffer in buffers)]
    file.write(_SIZE.pack(len(pieces)) + b"".join(_SIZE.pack(piece.nbytes) for piece in pieces))
    for piece in pieces:
        file.seek(_rounded(file.tell()))
        file.write(piece)
    file.flush()


def _rounded(place: int) -> int:
    """The next place where an array may begin."""
    return -(-place // _STEP) * _STEP
