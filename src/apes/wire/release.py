"""What the shuffler hands to the analyzer for a round, as bytes: counts, budgets, and how many were refused and why."""

import json
from dataclasses import dataclass, field

import numpy as np

from apes.errors import ProtocolError
from apes.messages import CountedBatch
from apes.wire.frames import first_frame, framed

ROUND = "/v1/runs/{run}/rounds/{number}"
"""Where a round is, by HTTP: a batch of framed reports is sent there, and the release is to be had."""
_VERSION = 2


@dataclass(frozen=True, eq=False)
class Release:
    """One round's answer of the shuffler: run and digest of the terms in hexadecimal, refused reports by reason."""

    run: str
    round: int
    terms: str
    batch: CountedBatch  # of those whose reports counted
    refused: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The release as bytes: a frame of JSON, counts (uint16 or uint32), budgets (float64)."""
        counts, budgets = self.batch.counts, self.batch.budgets
        header = {
            "version": _VERSION,
            "run": self.run,
            "round": self.round,
            "terms": self.terms,
            "users": budgets.size,
            "shape": list(counts.shape),
            # In order of their names: the order in which they came must not show.
            "refused": dict(sorted(self.refused.items())),
        }
        numbers = [counts.astype(_kind(budgets.size)).tobytes(), budgets.astype("<f8").tobytes()]
        return b"".join([*framed([json.dumps(header).encode()]), *numbers])

    @classmethod
    def decode(cls, data: bytes) -> "Release":
        """Read a release, checking that it is whole and agrees with itself."""
        text, numbers = first_frame(data)
        try:
            header = json.loads(text)
            if header["version"] != _VERSION:
                raise ProtocolError(f"the shuffler speaks version {header['version']!r} of releases, not {_VERSION}")
            users, (dimensions, levels) = header["users"], header["shape"]
            counts = np.frombuffer(numbers, _kind(users), dimensions * levels).reshape(dimensions, levels)
            budgets = np.frombuffer(numbers, "<f8", users, counts.nbytes)
            name = (header["run"], header["round"], header["terms"])
            refused = {str(reason): int(count) for reason, count in header["refused"].items()}
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"the shuffler's answer is not a release: {error}") from None
        batch = CountedBatch(counts.astype(np.int64), budgets.astype(np.float64))
        is_whole = counts.nbytes + budgets.nbytes == numbers.nbytes
        if not is_whole or users < 1 or (batch.counts.sum(axis=1) != users).any():
            raise ProtocolError("the shuffler's answer is damaged: its counts do not add up to its users")
        return cls(*name, batch, refused)


def _kind(users: int) -> str:
    return "<u2" if users < 2**16 else "<u4"
