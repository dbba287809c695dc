"""How users are put together for torch, so that a user's update is the same bits in whichever company.

Torch's kernels choose their order of summation by shapes, and some by where in memory a user's rows begin. So users
are computed in groups of few fixed sizes, with their rows padded to a number that depends on their own number alone;
and before a size is used it is tried, with public random rows, whether every place in it gives the same bits. Where
none does, users are computed one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch

from apes.errors import ParameterError
from apes.models.torch_users import MOST_ROWS, Users
from apes.torch_modules.bits import are_close, same_bits

Compute: TypeAlias = Callable[[Users], torch.Tensor]
_MOST_USERS = 64
# Numbers of a group's updates: 16 MB.
_MOST_NUMBERS = 2**22
# Where rows begin matters no more from this number of rows on: all begin at multiples of 64 bytes then.
_ALIGNED_ROWS = 16
# Users of a trial whose updates are computed alone, too.
_ALONE = 3


@dataclass(frozen=True)
class Layout:
    """Groups for users with some number of rows.

    Attributes:
        rows: Rows to pad each user to.
        sizes: Users in a group, largest first; all sizes give the same bits.
    """

    rows: int
    sizes: tuple[int, ...]

    def groups(self, users: int) -> Iterator[tuple[int, int]]:
        """Cut so many users into groups: how many of them each takes, and its size; a group may have places left."""
        for size in self.sizes:
            # A group that is more than half full is less work than several smaller ones.
            while users > (size // 2 if size > self.sizes[-1] else 0):
                yield min(size, users), size
                users -= min(size, users)


def padded(rows: int) -> int:
    """Rows to pad a user with so many to: the next power of two, or half-way to it; those computed alone need none."""
    if rows > MOST_ROWS // 2:
        return rows
    power = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if power > 2 and rows <= 3 * power // 4 else power


def find_layout(rows: int, dimensions: int, make: Callable[[int, int], Users], compute: Compute) -> Layout:
    """The fastest layout, for users padded to so many rows, in which every place gives the same bits.

    Args:
        rows: See `padded`.
        dimensions: Of an update.
        make: Makes up so many users with so many rows.
        compute: Their updates.
    """
    once = make(1, rows)
    if not same_bits(compute(once), compute(once)):
        raise ParameterError("module and loss must give the same numbers every time, got others: remove what is random")
    for length in dict.fromkeys((rows, -(-rows // _ALIGNED_ROWS) * _ALIGNED_ROWS)):
        largest = 1 << (max(1, min(_MOST_USERS, MOST_ROWS // length, _MOST_NUMBERS // dimensions)).bit_length() - 1)
        if largest == 1:
            break
        sizes = _steady_sizes(make(largest, length), compute)
        if sizes:
            return Layout(length, sizes)
    return Layout(rows, (1,))


def _steady_sizes(users: Users, compute: Compute) -> tuple[int, ...]:
    """Sizes of groups that all give these users' updates the same bits at every place; empty if the largest does not.

    The users are put in three orders: as they are, each one place further, and mixed.
    """
    largest = len(users.rows)
    expected = compute(users)
    alone = torch.cat([compute(users[at : at + 1]) for at in range(min(largest, _ALONE))])
    if not are_close(alone, expected[:_ALONE]):
        raise ParameterError("module and loss must treat each user by itself, got other updates in other company")
    mixed = torch.randperm(largest, generator=torch.Generator().manual_seed(1))
    for order in (torch.arange(largest).roll(1), mixed):
        if not same_bits(compute(users[order]), expected[order]):
            return ()
    smaller = [size for size in (largest // 4, largest // 16) if size > 1]
    kept = (size for size in smaller if all(_agrees(users, part, compute, expected) for part in mixed.split(size)[:4]))
    return (largest, *kept)


def _agrees(users: Users, part: torch.Tensor, compute: Compute, expected: torch.Tensor) -> bool:
    return same_bits(compute(users[part]), expected[part])
