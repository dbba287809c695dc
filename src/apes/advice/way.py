"""A way of training, with what is certified about it, what it costs whom, and how to do it."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from apes.accounting.guarantee import Guarantee
from apes.mathematics.arrays import F64

MOST_GROUPS = 8
"""Groups of people by their budgets that are told apart."""


@dataclass(frozen=True)
class Group:
    """People with own budgets up to one that some of them have, and what is certified for each of them."""

    budget: float  # the largest own one of the group
    share: float  # of all people, in (0, 1]
    users: int
    epsilon: float  # over all rounds, at the way's delta


@dataclass(frozen=True)
class Way:
    """A certified way of training.

    Attributes:
        name: What distinguishes it, in words.
        kind: How people report: ``bits``, ``top-b-first`` or ``levels``.
        framework: As for `apes.Plan`.
        change: What is asked for beside: ``none``, ``cap``, ``rounds`` (fewer) or ``users`` (more).
        choices: What an `apes.Plan` of it is made of.
        command: The `apes train` command that does just this; words in capitals stand for what only you know.
        users, rounds: How many.
        cap: The largest local budget that is used; None where everybody's whole one is.
        epsilon: Certified for everybody, over all rounds, at ``delta``.
        groups: What is certified by own budgets, ascending.
        noise: Standard error of the mean update, per coordinate and round, in the unit of updates.
        noise_of_weight: Standard deviation that the noise of all rounds leaves in a weight of the model.
        accuracy: Expected on the public digits, in [0, 1]; None where nothing was measured (`apes.advice.accuracy`).
        meets_target: Whether epsilon is at most the target.
        reason: Why it is where it stands, in a sentence.
        guarantee: All that is certified; `Guarantee.of` for any budget.
    """

    name: str
    kind: str
    framework: str
    change: str
    choices: dict[str, Any]
    command: str
    users: int
    rounds: int
    cap: float | None
    epsilon: float
    delta: float
    groups: tuple[Group, ...]
    noise: float
    noise_of_weight: float
    accuracy: float | None
    meets_target: bool
    reason: str = ""
    guarantee: Guarantee | None = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        first = ("name", "kind", "framework", "change", "command", "choices", "users", "rounds", "cap", "reason")
        figures = ("epsilon", "delta", "noise", "noise_of_weight", "accuracy", "meets_target")
        groups = [asdict(group) for group in self.groups]
        return {name: getattr(self, name) for name in (*first, *figures)} | {"groups": groups}


def groups_of(guarantee: Guarantee, own: F64) -> tuple[Group, ...]:
    """What is certified for people by their own budgets, in at most eight groups; each figure covers its whole group.

    Whoever has more than the guarantee's cap uses the cap.
    """
    values, counts = np.unique(own, return_counts=True)
    ends = np.cumsum(counts)
    # The last of each share of the people; where few budgets differ, each of them.
    share = np.searchsorted(ends, own.size * np.arange(1, MOST_GROUPS + 1) / MOST_GROUPS)
    last = np.arange(values.size) if values.size <= MOST_GROUPS else np.unique(np.append(share, values.size - 1))
    sizes, first = np.diff(ends[last], prepend=0), np.append(0, last[:-1] + 1)
    found = []
    for high, low, users in zip(values[last].tolist(), values[first].tolist(), sizes.tolist(), strict=True):
        found.append(Group(high, users / own.size, users, guarantee.of(high, low).epsilon))
    return tuple(found)
