"""The keys of a run: what its noise is drawn under, and what digests of its people are made with."""

import hashlib
import hmac
import os
from dataclasses import dataclass, field

from apes.checks import exactly
from apes.errors import ParameterError
from apes.mathematics.randomness import StreamKey

KEY_BYTES = 32
_CHECK = b"apes: the key of a run's noise"


@dataclass(frozen=True)
class RunKeys:
    """The secrets of a run. Printing them does not show them.

    Attributes:
        noise: What the noise of its reports is drawn under; None once it was destroyed, and none is needed yet.
        digests: What digests of its people are keyed with, 32 bytes: a digest without a key would tell whoever knows
            everybody else's data which of two rows is somebody's.
    """

    noise: StreamKey | None
    digests: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.noise is not None:
            exactly("noise", self.noise, StreamKey)
        if not isinstance(self.digests, bytes) or len(self.digests) != KEY_BYTES:
            raise ParameterError(f"digests must be {KEY_BYTES} bytes")

    @classmethod
    def draw(cls, seed: int | StreamKey | None = None) -> "RunKeys":
        """Keys of a new run: secret ones from the operating system, but for noise that follows from a seed."""
        return cls(noise_key(seed), os.urandom(KEY_BYTES))

    @property
    def is_seeded(self) -> bool:
        """Whether the noise follows from a seed."""
        return self.noise is not None and self.noise.is_seeded

    @property
    def check(self) -> str | None:
        """What a secret key of the noise is known again by; None of a seed, which could be guessed from it."""
        if self.noise is None or self.is_seeded:
            return None
        return hmac.new(self.noise.material, _CHECK, hashlib.sha256).hexdigest()

    @property
    def name(self) -> str:
        """A name for the run, which may be shown: it follows from nothing but the key."""
        return self.digest("apes: the name of a run")[:32]

    def digest(self, text: str) -> str:
        """The keyed digest (HMAC-SHA-256) of a text that depends on data: it tells nothing without the key."""
        return hmac.new(self.digests, text.encode(), hashlib.sha256).hexdigest()


def noise_key(seed: int | StreamKey | None) -> StreamKey:
    """The key of a seed; a key as it is; without either a secret one from the operating system."""
    if isinstance(seed, StreamKey):
        return seed
    return StreamKey.from_system() if seed is None else StreamKey.from_seed(seed)
