"""Levels as bytes: one byte per coordinate, or one bit where there are two levels."""

import numpy as np

from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import U8


def packed_size(dimensions: int, levels: int) -> int:
    """Bytes of a report on ``dimensions`` coordinates, of ``levels`` levels each."""
    return -(-dimensions // 8) if levels == 2 else dimensions


def packed(report: U8, levels: int) -> bytes:
    """A report as bytes. Of two levels, coordinate c is bit c % 8 of byte c // 8; zeros fill the last byte."""
    if report.dtype != np.uint8 or report.ndim != 1 or report.size == 0:
        raise ParameterError(f"report must be a row of bytes, got {report.dtype} of shape {report.shape}")
    return (np.packbits(report, bitorder="little") if levels == 2 else report).tobytes()


def unpacked(data: bytes, dimensions: int, levels: int) -> U8:
    """The report back from `packed_size` bytes; what is in it is not checked yet.

    Raises:
        ProtocolError: If the last byte is not filled with zeros: one report would have several forms.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    if levels != 2:
        return raw
    bits = np.unpackbits(raw, bitorder="little")
    if bits[dimensions:].any():
        raise ProtocolError("the last byte of a report is not filled with zeros")
    return bits[:dimensions]
