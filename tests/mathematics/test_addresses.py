"""No two draws share a word: where every use of the stream takes its words, enumerated for all purposes and stages.

What a use takes is said here by the same functions with which the tests of the draws follow them bit for bit; what
separates uses (`Purpose`, `SimulationSource.stream`, `TIE`) is the program's own.
"""

from collections import Counter
from itertools import product

import cipher_words
import numpy as np
import pytest

from apes.client.draws import bits, coded
from apes.mathematics.randomness import Purpose, SimulationSource, StreamKey

TIE = int(coded.TIE)
ATTEMPTS = 15
WORDS_OF_A_BLOCK = range(16)
# In units of a byte: what two coordinates take of one word must not overlap.
WHOLE, LOWER, UPPER = range(4), range(2), range(2, 4)


def row_word(stage, number, part=WHOLE):
    """Bytes of a word of a row."""
    index, place = cipher_words.place_of(number)
    return [(stage, index, place, byte) for byte in part]


def half(stage, number):
    return row_word(stage, number // 2, UPPER if number % 2 else LOWER)


def pair(stage, number):
    """A number of 64 bits."""
    return row_word(stage, 2 * number) + row_word(stage, 2 * number + 1)


def tie_words(stage, c, places):
    return [(stage, c, place, byte) for place in places for byte in WHOLE]


def of_coded(c):
    """Attempts 0 to 14, their further bits, and those of the rounding."""
    taken = row_word(0, c) + tie_words(TIE, c, (14, 15))
    for a in range(ATTEMPTS):
        if a:
            taken += half(a, c)
        taken += tie_words(TIE + a // 7, c, (2 * (a % 7), 2 * (a % 7) + 1))
    return taken


def of_bits(c):
    return half(0, c) + tie_words(int(bits.TIE), c, (0, 1, 2))


USES = {
    "coded": of_coded,
    "bits": of_bits,
    "one word": lambda c: row_word(0, c),  # padding, choice
    "number": lambda c: pair(0, c),  # continuous, permutations
    "numbers of stages": lambda c: [taken for stage in (0, 1, 2, 2**32 - 1) for taken in pair(stage, c)],  # foreign
}
# From the first ones, across groups, and up to the last that have an address.
COORDINATES = [*range(1100), *range(2**31 - 40, 2**31 + 40), *range(2**32 - 600, 2**32)]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_two_coordinates_and_stages_share_a_byte(use):
    taken = Counter(byte for c in COORDINATES for byte in use(c))
    assert max(taken.values()) == 1
    stages, indices, places, _ = (max(column) for column in zip(*taken, strict=True))
    assert stages < 2**32
    assert indices < 2**32
    assert places == 15


def test_the_enumeration_sees_an_overlap():
    """Ties where the attempts are, halves that are whole words, numbers a word apart."""
    wrong = [
        lambda c: of_coded(c) + tie_words(3, c, (0, 1)),
        lambda c: row_word(0, c // 2),
        lambda c: row_word(0, c) + row_word(0, c + 1),
    ]
    for use in wrong:
        assert max(Counter(byte for c in COORDINATES for byte in use(c)).values()) > 1


def test_no_two_uses_share_a_block():
    """Blocks have stage, user and stream in their address: rounds, purposes, users and keys differ in one of them."""
    source = SimulationSource(1)
    rounds, users = (0, 1, 2, 255, 256, 2**24 - 2, 2**24 - 1), (0, 1, 2, 2**31, 2**32 - 1)
    addresses = [
        (int(SimulationSource(source.run_key, round).stream(purpose)), user)
        for round, purpose, user in product(rounds, Purpose, users)
    ]
    assert len(set(addresses)) == len(rounds) * len(Purpose) * len(users)
    assert max(stream for stream, _ in addresses) < 2**32


def test_blocks_of_other_addresses_are_other_blocks():
    """The same walk through the cipher: 36,000 blocks of neighbouring addresses, all different."""
    key, seen = StreamKey(bytes(range(32))), set()
    streams = [int(SimulationSource(key, round).stream(purpose)) for round in (0, 1, 2) for purpose in Purpose]
    stages, users = (0, 1, 2, TIE, TIE + 1), range(4)
    for stream, stage, user in product(streams, stages, users):
        words = cipher_words.blocks(key.material, 0, 90, stage, user, stream)
        seen |= {row.tobytes() for row in np.ascontiguousarray(words)}
    assert len(seen) == len(streams) * len(stages) * len(users) * 90
