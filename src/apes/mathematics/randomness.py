"""Random sources: a counter-based one for simulation, the operating system's for devices.

Simulation uses Philox4x32-10 (Salmon et al., SC 2011), a keyed bijection of 128-bit counters that passes
BigCrush; the key is the seed, the counter is (index, stage, user, round and purpose). Every draw has an
address, so no result depends on the order of work, on block sizes or on threads. It is *not*
cryptographic: a device draws from `SystemSource` instead, which cannot be seeded.
"""

import math
import os
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from apes.checks import whole
from apes.errors import ParameterError
from apes.mathematics.arrays import U8, U64, Word
from apes.mathematics.compiled import inlined

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEP_0, _KEY_STEP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10
_PURPOSE_SHIFT = 24
_KEY_BYTES = 32

Key = tuple[Word, Word]
# First user and first coordinate of a block of draws, and their stream.
Address = tuple[int, int, Word]


class Purpose(IntEnum):
    """What a stream of random numbers is for; streams of different purposes never meet."""

    REPORT = 0
    PADDING = 1
    CHOICE = 2
    SHUFFLE = 3
    BUDGETS = 4
    FOREIGN = 5
    FOREIGN_PADDING = 6


@inlined
# parameters: the counter's four words and the key's two.
def philox(c0: Word, c1: Word, c2: Word, c3: Word, k0: Word, k1: Word) -> tuple[Word, Word, Word, Word]:
    """Philox4x32-10: four 32-bit words, held in 64-bit ones, from a 128-bit counter and a 64-bit key.

    Six parameters, since compiled code keeps words apart in registers.
    """
    for _ in range(_ROUNDS):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _KEY_STEP_0) & _LOW
        k1 = (k1 + _KEY_STEP_1) & _LOW
    return c0, c1, c2, c3


@dataclass(frozen=True)
class StreamKey:
    """The key of a run's simulated randomness: 256 bits, secret unless they follow from a seed.

    Whoever has the key can draw the same noise and subtract it. Printing a key does not show it.

    Attributes:
        material: The 32 bytes.
        is_seeded: Whether they follow from a seed, which others may know or guess.
    """

    material: bytes = field(repr=False)
    is_seeded: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.material, bytes) or len(self.material) != _KEY_BYTES:
            raise ParameterError(f"material must be {_KEY_BYTES} bytes")

    @classmethod
    def from_system(cls) -> "StreamKey":
        """Draw a secret key from the operating system."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> "StreamKey":
        """Derive the key of a seed in [0, 2^64): for reproduction and tests, not secret."""
        whole("seed", seed, 0, 2**64 - 1)
        return cls(seed.to_bytes(_KEY_BYTES, "little"), is_seeded=True)


@dataclass(frozen=True)
class SimulationSource:
    """Randomness of one round of a simulation: every draw has an address under the run's key.

    Args:
        seed: Key of the run, or a seed in [0, 2^64) that a key follows from (`StreamKey.from_seed`).
        round: Which round of training, in [0, 2^24).
    """

    run_key: StreamKey
    round: int = 0

    def __init__(self, seed: StreamKey | int, round: int = 0) -> None:
        """Derive the key of a seed."""
        object.__setattr__(self, "run_key", seed if isinstance(seed, StreamKey) else StreamKey.from_seed(seed))
        object.__setattr__(self, "round", whole("round", round, 0, 2**_PURPOSE_SHIFT - 1))

    @property
    def key(self) -> Key:
        """The two 32-bit words of Philox's key."""
        words = np.frombuffer(self.run_key.material, dtype="<u4").astype(np.uint64)
        return words[0], words[1]

    def stream(self, purpose: Purpose) -> np.uint64:
        """The fourth word of the counter: the round, and what the numbers are for."""
        return np.uint64(self.round | (int(purpose) << _PURPOSE_SHIFT))

    def generator(self, purpose: Purpose, index: int = 0) -> np.random.Generator:
        """A NumPy generator of its own for (seed, round, purpose, index)."""
        number = int.from_bytes(self.run_key.material, "little")
        words = np.random.SeedSequence([number, self.round, int(purpose), index])
        return np.random.Generator(np.random.Philox(words))


@dataclass(frozen=True)
class SystemSource:
    """The operating system's cryptographic randomness, for devices. There is nothing to seed.

    Every array is AES-256 in counter mode under a key that the operating system draws for it alone and that is
    forgotten at once: as hard to foresee as the key, and several times faster than asking the system for every byte.
    """

    def words(self, *shape: int) -> U64:
        """Return an array of independent uniform 64-bit words."""
        return np.frombuffer(_fresh_bytes(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)

    def bytes(self, *shape: int) -> U8:
        """Return an array of independent uniform bytes."""
        return np.frombuffer(_fresh_bytes(math.prod(shape)), dtype=np.uint8).reshape(shape)


def _fresh_bytes(size: int) -> bytes:
    # The key is used once, so the counter may start at 0; 2^128 blocks are not reached.
    return Cipher(AES(os.urandom(_KEY_BYTES)), CTR(bytes(16))).encryptor().update(bytes(size))
