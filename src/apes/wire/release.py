"""What the shuffler hands to the analyzer for a round, as bytes: counts, budgets, and how many were refused and why."""

import json
import struct
from dataclasses import dataclass, field

import numpy as np

from apes.errors import ProtocolError
from apes.messages import CountedBatch

_VERSION = 1
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class Release:
    """One round's answer of the shuffler.

    Attributes:
        run: The run, in hexadecimal.
        round: Number of the round.
        plan: Fingerprint of the terms, in hexadecimal.
        batch: Counts and budgets of those whose reports counted.
        refused: How many reports were refused, a reason.
    """

    run: str
    round: int
    plan: str
    batch: CountedBatch
    refused: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The release as bytes: a line of JSON behind its length, counts (uint16 or uint32), budgets (float64)."""
        counts, users = self.batch.counts, self.batch.budgets.size
        kind = _kind(users)
        header = {
            "version": _VERSION,
            "run": self.run,
            "round": self.round,
            "plan": self.plan,
            "users": users,
            "shape": list(counts.shape),
            # In order of their names: the order in which they came must not show.
            "refused": dict(sorted(self.refused.items())),
        }
        text = json.dumps(header).encode()
        return b"".join(
            [_LENGTH.pack(len(text)), text, counts.astype(kind).tobytes(), self.batch.budgets.astype("<f8").tobytes()]
        )

    @classmethod
    def decode(cls, data: bytes) -> "Release":
        """Read a release, checking that it is whole and agrees with itself.

        Raises:
            ProtocolError: If it does not.
        """
        try:
            (length,) = _LENGTH.unpack_from(data)
            header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
            if header["version"] != _VERSION:
                raise ProtocolError(f"the shuffler speaks version {header['version']!r} of releases, not {_VERSION}")
            users, (dimensions, levels) = header["users"], header["shape"]
            kind = _kind(users)
            start = _LENGTH.size + length
            counts = np.frombuffer(data, kind, dimensions * levels, start).reshape(dimensions, levels)
            budgets = np.frombuffer(data, "<f8", users, start + counts.nbytes)
            whole = start + counts.nbytes + budgets.nbytes == len(data)
            name = (header["run"], header["round"], header["plan"])
            refused = {str(reason): int(count) for reason, count in header["refused"].items()}
        except (
            struct.error,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise ProtocolError(f"the shuffler's answer is not a release: {error}") from None
        batch = CountedBatch(counts.astype(np.int64), budgets.astype(np.float64))
        if not whole or users < 1 or (batch.counts.sum(axis=1) != users).any():
            raise ProtocolError("the shuffler's answer is damaged: its counts do not add up to its users")
        return cls(*name, batch, refused)


def _kind(users: int) -> str:
    return "<u2" if users < 2**16 else "<u4"
