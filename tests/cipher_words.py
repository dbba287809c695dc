"""The words of a simulation's stream, from `cryptography`'s ChaCha20: what the compiled loops are checked against.

Where a word is in its row is written down here once more, from the text of `apes.mathematics.chacha`.
"""

from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20


@lru_cache(maxsize=1 << 16)
def block(material, index, stage, user, stream):
    """The 16 words of a block: RFC 8439 takes the counter and the nonce as four little-endian words."""
    return tuple(blocks(material, index, 1, stage, user, stream)[0].tolist())


def blocks(material, index, count, stage, user, stream):
    """The words of ``count`` blocks with indices from ``index`` on: array (count, 16)."""
    address = b"".join(int(word).to_bytes(4, "little") for word in (index, stage, user, stream))
    bits = Cipher(ChaCha20(material, address), None).encryptor().update(bytes(64 * count))
    return np.frombuffer(bits, dtype="<u4").reshape(count, 16)


def place_of(number):
    """Where word ``number`` of a row is: the index of its block, and its place there."""
    group, place = divmod(number, 256)
    return 16 * group + place % 16, place // 16


def word(material, number, stage, user, stream):
    """Word ``number`` of the row of a stage, a user and a stream."""
    index, place = place_of(number)
    return block(material, index, stage, user, stream)[place]


def words(material, first, count, stage, user, stream):
    """Words ``first`` to ``first + count - 1`` of a row."""
    group, start = divmod(first, 256)
    groups = (start + count + 255) // 256
    rows = blocks(material, 16 * group, 16 * groups, stage, user, stream).reshape(groups, 16, 16)
    return rows.transpose(0, 2, 1).ravel()[start : start + count]


def numbers(material, first, count, stage, user, stream):
    """Numbers of 64 bits: number n has words 2 n and 2 n + 1 of a row, the lower half first."""
    pairs = words(material, 2 * first, 2 * count, stage, user, stream).reshape(count, 2).astype(np.uint64)
    return pairs[:, 1] << np.uint64(32) | pairs[:, 0]
