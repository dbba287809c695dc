"""Frames: byte strings one after another in a stream, each behind its length (4 bytes, little-endian).

A frame that is cut short or blown up spoils itself only; a reader never holds more than one frame.
"""

import struct
from collections.abc import Iterable, Iterator

from apes.errors import ParameterError, ProtocolError

LENGTH = struct.Struct("<I")


def framed(items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield every item behind its length."""
    for item in items:
        yield LENGTH.pack(len(item)) + item


def first_frame(data: bytes) -> tuple[bytes, memoryview]:
    """Return the frame that ``data`` begins with, and all that follows it."""
    start = LENGTH.size
    stop = start + LENGTH.unpack_from(data)[0] if len(data) >= start else start
    if len(data) < stop:
        raise ProtocolError(f"a frame is cut short: it ends at byte {stop}, got {len(data)} bytes")
    return data[start:stop], memoryview(data)[stop:]


class FrameReader:
    """Takes a stream in pieces of any size and gives its frames back; those that are too large come out empty."""

    def __init__(self, largest: int) -> None:
        if largest < 1:
            raise ParameterError(f"largest must be at least 1, got {largest!r}")
        self._largest = largest
        self._held = bytearray()
        self._to_skip = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the frames that ``piece`` completes."""
        skipped = min(self._to_skip, len(piece))
        self._to_skip -= skipped
        self._held += memoryview(piece)[skipped:]
        start = 0
        while len(self._held) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._held, start)
            stop = start + LENGTH.size + length
            if length > self._largest:
                yield b""
                self._to_skip = max(stop - len(self._held), 0)
            elif stop > len(self._held):
                break
            else:
                yield bytes(memoryview(self._held)[start + LENGTH.size : stop])
            start = min(stop, len(self._held))
        del self._held[:start]

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here: nothing of a frame is missing."""
        return not self._held and not self._to_skip
