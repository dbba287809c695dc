"""A chain of digests over what a ledger holds: a copy with one link has everything before it, and nothing else."""

import hashlib

LINK_BYTES = 32
"""Length of a link."""


def link(before: bytes | None, *pieces: bytes) -> bytes:
    """Return the link that follows on ``before``, None for the first, and stands for these pieces.

    Each piece is digested by itself, so where one ends and the next begins is part of the link.
    """
    whole = hashlib.sha256(bytes(LINK_BYTES) if before is None else before)
    for piece in pieces:
        whole.update(hashlib.sha256(piece).digest())
    return whole.digest()
