"""ChaCha20's stream (Bernstein 2008; RFC 8439, section 2.3) in compiled loops, and how draws number its words.

The key has 256 bits. A block has 16 words of 32 bits and an address of four words, which are the RFC's counter and
nonce: index, stage, user, stream. The blocks of one stage, user and stream make a row, and the words of a row are
numbered in groups of 256: word w is word (w // 16) % 16 of the block with index 16 (w // 256) + w % 16. No two numbers
share a word of a block. The sixteen blocks of a group are computed at once, and what a vector instruction makes, the
same word of all of them, is written to adjacent memory.

A vector instruction needs a loop over blocks without a loop inside, so the ten double rounds are written out.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.mathematics.arrays import U32, Word
from apes.mathematics.compiled import compiled, unfolded

GROUP_WORDS = 256
"""Words of a group, which is computed as a whole."""
BLOCK_WORDS = 16
GROUP_BLOCKS = 16

_C0, _C1, _C2, _C3 = np.frombuffer(b"expand 32-byte k", dtype="<u4").astype(np.uint32)
_WORD_BITS = np.uint32(32)
_BY_16, _BY_12, _BY_8, _BY_7 = np.uint32(16), np.uint32(12), np.uint32(8), np.uint32(7)

_Three = tuple[np.uint32, np.uint32, np.uint32]
_Four = tuple[np.uint32, np.uint32, np.uint32, np.uint32]
_Eight = tuple[np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32]
# The 16 words of a block while it is computed.
State = tuple[
    np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32,
    np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint32,
]  # fmt: skip


@compiled
def room_for(first: int, count: int, group: int) -> U32:
    """Room for the words that hold numbers ``first`` to ``first + count - 1``, where a group has ``group`` numbers."""
    return np.empty(GROUP_WORDS * ((first % group + count + group - 1) // group), dtype=np.uint32)


@compiled
def fill_words(first_group: Word, stage: Word, user: Word, stream: Word, key: U32, words: U32) -> None:
    """Fill ``words``, whole groups, with the words of a row from number 256 ``first_group`` on."""
    key_words = _key_words(key)
    nonce = np.uint32(stage), np.uint32(user), np.uint32(stream)
    groups = words.reshape((words.size // GROUP_WORDS, BLOCK_WORDS, GROUP_BLOCKS))
    for g in range(groups.shape[0]):
        group = groups[g]
        index = np.uint32(np.uint32(np.uint32(first_group) + np.uint32(g)) * np.uint32(GROUP_BLOCKS))
        for i in range(GROUP_BLOCKS):
            block = _block(key_words, np.uint32(index + np.uint32(i)), nonce)
            _put_block(block, group, i)


@compiled
def fill_blocks(stage: Word, user: Word, stream: Word, key: U32, words: U32) -> None:
    """Replace indices in ``words[0]`` (16 x blocks) by the words of the blocks they name: a column is a block.

    The indices are in the array that is written to, since the compiler cannot know that two arrays do not overlap.
    """
    key_words = _key_words(key)
    nonce = np.uint32(stage), np.uint32(user), np.uint32(stream)
    for i in range(words.shape[1]):
        block = _block(key_words, words[0, i], nonce)
        _put_block(block, words, i)


@compiled
def block_at(index: Word, stage: Word, user: Word, stream: Word, key: U32) -> State:
    """The 16 words of one block."""
    return _block(_key_words(key), np.uint32(index), (np.uint32(stage), np.uint32(user), np.uint32(stream)))


@unfolded
def _key_words(key: U32) -> _Eight:
    return key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]


@unfolded
def _block(key: _Eight, index: np.uint32, nonce: _Three) -> State:
    """RFC 8439, section 2.3: twenty rounds, and what they began with added."""
    first = (_C0, _C1, _C2, _C3, *key, index, *nonce)
    s = _double_round(first)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    s = _double_round(s)
    return (
        np.uint32(s[0] + first[0]),
        np.uint32(s[1] + first[1]),
        np.uint32(s[2] + first[2]),
        np.uint32(s[3] + first[3]),
        np.uint32(s[4] + first[4]),
        np.uint32(s[5] + first[5]),
        np.uint32(s[6] + first[6]),
        np.uint32(s[7] + first[7]),
        np.uint32(s[8] + first[8]),
        np.uint32(s[9] + first[9]),
        np.uint32(s[10] + first[10]),
        np.uint32(s[11] + first[11]),
        np.uint32(s[12] + first[12]),
        np.uint32(s[13] + first[13]),
        np.uint32(s[14] + first[14]),
        np.uint32(s[15] + first[15]),
    )


@unfolded
def _double_round(state: State) -> State:
    """The four columns of the state, then its four diagonals."""
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = state
    x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@unfolded
def _quarter_round(a: np.uint32, b: np.uint32, c: np.uint32, d: np.uint32) -> _Four:
    """RFC 8439, section 2.1; sums are brought back to 32 bits, since numba's go on in 64."""
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), _BY_16)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), _BY_12)
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), _BY_8)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), _BY_7)
    return a, b, c, d


@unfolded
def _rotated(word: np.uint32, bits: np.uint32) -> np.uint32:
    return np.uint32(np.uint32(word << bits) | np.uint32(word >> np.uint32(_WORD_BITS - bits)))


@unfolded
def _put_block(block: State, words: U32, i: int) -> None:
    words[0, i] = block[0]
    words[1, i] = block[1]
    words[2, i] = block[2]
    words[3, i] = block[3]
    words[4, i] = block[4]
    words[5, i] = block[5]
    words[6, i] = block[6]
    words[7, i] = block[7]
    words[8, i] = block[8]
    words[9, i] = block[9]
    words[10, i] = block[10]
    words[11, i] = block[11]
    words[12, i] = block[12]
    words[13, i] = block[13]
    words[14, i] = block[14]
    words[15, i] = block[15]
