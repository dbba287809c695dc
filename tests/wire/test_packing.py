"""Reports as bytes, of one byte or of one bit per coordinate."""

import numpy as np
import pytest

from apes.errors import ParameterError, ProtocolError
from apes.wire.envelope import envelope_size
from apes.wire.packing import packed, packed_size, unpacked


@pytest.mark.parametrize("levels", [2, 3, 256])
@pytest.mark.parametrize("dimensions", [1, 7, 8, 9, 7850])
def test_what_was_packed_is_unpacked(dimensions, levels):
    report = np.random.default_rng(1).integers(0, levels, dimensions, dtype=np.uint8)
    data = packed(report, levels)
    assert len(data) == packed_size(dimensions, levels)
    assert (unpacked(data, dimensions, levels) == report).all()


def test_the_first_coordinate_is_the_lowest_bit():
    assert packed(np.array([1, 0, 0, 0, 0, 0, 0, 0, 0, 1], dtype=np.uint8), 2) == b"\1\2"


def test_two_levels_take_an_eighth():
    assert envelope_size(7850, 2) - 242 == 982
    assert envelope_size(7850, 3) - 242 == envelope_size(7850, 256) - 242 == 7850
    assert envelope_size(1, 2) == envelope_size(8, 2) == envelope_size(9, 2) - 1 == 243


@pytest.mark.parametrize("bit", [3, 5, 7])
def test_the_last_byte_is_filled_with_zeros(bit):
    """Else one report would have several forms, and a sender could hide something in them."""
    data = bytearray(packed(np.ones(11, dtype=np.uint8), 2))
    data[1] |= 1 << bit
    with pytest.raises(ProtocolError, match="filled with zeros"):
        unpacked(bytes(data), 11, 2)


@pytest.mark.parametrize("report", [np.zeros(3), np.zeros((1, 3), np.uint8), np.zeros(0, np.uint8)])
def test_reports_are_rows_of_bytes(report):
    with pytest.raises(ParameterError, match="report must be a row of bytes"):
        packed(report, 2)
