"""Random sources: one with addresses for simulation, the operating system's for devices.

A simulation's randomness is the stream of the cipher ChaCha20 (`apes.mathematics.chacha`) under a key of 256 bits. The
key is secret where it comes from the operating system, and known to everybody who knows or guesses the seed where it
follows from one. Every draw has an address (index, stage, user, round and purpose), so no result depends on the order
of work, on block sizes or on threads, and without the key no draw tells anything about another. A device draws from
`SystemSource`, which cannot be seeded.
"""

import hashlib
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
from apes.mathematics.arrays import U8, U32, U64, Word

_PURPOSE_SHIFT = 24
_KEY_BYTES = 32
_SEED_BYTES = 8
_SEED_DOMAIN = b"apes.StreamKey.from_seed, version 1: "
MOST_ADDRESSES = 2**32
"""Users of a simulation, and coordinates of a report: each has a word of 32 bits of a block's address."""

# The eight words of a key of 256 bits.
Key = U32
# First user and first coordinate of a block of draws, and their stream.
Address = tuple[int, int, Word]


class Purpose(IntEnum):
    """What a stream of random numbers is for; streams of different purposes never meet."""

    REPORT = 0
    PADDING = 1
    CHOICE = 2
    SHUFFLE = 3
    BUDGET_ORDER = 4
    FOREIGN = 5
    FOREIGN_PADDING = 6


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
        material = hashlib.sha256(_SEED_DOMAIN + seed.to_bytes(_SEED_BYTES, "little")).digest()
        return cls(material, is_seeded=True)


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
        """The eight words of the cipher's key."""
        return np.frombuffer(self.run_key.material, dtype="<u4").astype(np.uint32)

    def stream(self, purpose: Purpose) -> np.uint64:
        """The fourth word of an address: the round, and what the numbers are for."""
        return np.uint64(self.round | (int(purpose) << _PURPOSE_SHIFT))


def check_addresses(name: str, first: int, count: int) -> None:
    """Refuse a range of users or coordinates, ``first`` to ``first + count - 1``, whose numbers need over 32 bits."""
    if not 0 <= first <= first + count <= MOST_ADDRESSES:
        raise ParameterError(f"{name} must be numbered within [0, {MOST_ADDRESSES}), got {first}..{first + count - 1}")


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
