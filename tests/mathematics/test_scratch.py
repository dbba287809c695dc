"""Scratch memory: nobody has it twice, and it is there again."""

import numpy as np

from apes.mathematics.scratch import _NUMBERS, borrowed
from apes.models.model import _Checked


def test_what_is_lent_is_lent_once():
    with borrowed(1000) as one, borrowed(1000) as other:
        assert one.size == other.size == 1000
        assert not np.shares_memory(one, other)


def test_what_was_given_back_is_used_again():
    with borrowed(5000) as one:
        one[:] = 7
        address = one.ctypes.data
    with borrowed(50) as again:
        assert again.ctypes.data == address
        assert again.size == 50


def test_it_grows_and_what_is_too_large_is_not_kept():
    with borrowed(10) as small:
        assert small.size == 10
    with borrowed(_NUMBERS + 1) as large:
        address = large.ctypes.data
        assert large.size == _NUMBERS + 1
    with borrowed(10) as small:
        assert small.ctypes.data != address


def test_it_comes_back_from_what_fails():
    try:
        with borrowed(6000) as one:
            address = one.ctypes.data
            raise ValueError
    except ValueError:
        pass
    with borrowed(6000) as again:
        assert again.ctypes.data == address


def test_what_a_model_wrote_there_is_not_copied_again():
    class Prepared:
        def coordinates(self, start, stop, scratch):
            self.written = scratch[: 2 * (stop - start)].reshape(2, -1)
            return self.written

    own = Prepared()
    with borrowed(8) as scratch:
        assert _Checked(own, "own", 2).coordinates(0, 3, scratch) is own.written
        assert _Checked(own, "own", 2).coordinates(0, 4, np.zeros(8, dtype=np.float32)) is own.written
