"""Tables are kept within a number of bytes, and those used last stay."""

import numpy as np
import pytest

from apes.client.kept_tables import KeptTables


def table(at):
    return np.full(1 << 15, at, dtype=np.uint64)  # a quarter of a MB


def test_what_is_kept_is_not_made_again():
    kept = KeptTables(megabytes=1)
    one = kept.get((b"a", 2), lambda: table(1))
    assert kept.get((b"a", 2), pytest.fail) is one
    assert kept.get((b"a", 3), lambda: table(2))[0] == 2
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 0


def test_it_holds_no_more_than_it_may_and_the_last_used():
    kept = KeptTables(megabytes=1)
    for at in range(3):
        kept.get((b"%d" % at, 0), lambda at=at: table(at))
    kept.get((b"0", 0), pytest.fail)
    kept.get((b"3", 0), lambda: table(3))  # a fourth, with its key, is one too many
    kept.get((b"0", 0), pytest.fail)
    assert kept._bytes <= 1 << 20
    assert kept.get((b"1", 0), lambda: table(7))[0] == 7


def test_one_that_is_too_large_is_made_every_time():
    kept = KeptTables(megabytes=0)
    assert [kept.get((b"a", 0), lambda at=at: table(at))[0] for at in range(3)] == [0, 1, 2]
    assert kept._bytes == 0
