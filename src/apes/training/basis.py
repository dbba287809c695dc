"""The basis of a run's guarantee: what was laid down before its first round, as plain values.

It is part of the run's identity, and so of its checkpoint and of every line of its log. Whoever certifies a run again
takes it from there: a figure that was laid down cannot be another one afterwards.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apes.accounting.accountant import Accountant
from apes.checks import whole
from apes.errors import DataError

Basis = Mapping[str, Any]
# What the accountant is not made of.
_OF_RUN = ("rounds", "cohorts", "seeded")


def basis_of(accountant: Accountant, rounds: int, cohorts: Sequence[str] | None, *, is_seeded: bool) -> Basis:
    """What an accountant that has charged nothing yet was made of, with the rounds and cohorts that are planned.

    Args:
        accountant: The gate of the run.
        rounds: How many rounds there may be.
        cohorts: Names of the budgets of those who take part (`Exposure.budgets_sha256`), round after round, where that
            is settled; None where it is chosen on the way.
        is_seeded: Whether the noise follows from a seed: the guarantee then holds only as long as that stays secret.
    """
    named = None if cohorts is None else digest_of(cohorts)
    return {**accountant.as_dict(), "rounds": rounds, "cohorts": named, "seeded": is_seeded}


def digest_of(cohorts: Sequence[str]) -> str:
    """SHA-256 of the cohorts' names, in order."""
    return hashlib.sha256("\n".join(cohorts).encode()).hexdigest()


def accountant_of(basis: Basis) -> Accountant:
    """The accountant, before it charged anything."""
    whole("rounds", basis["rounds"], 1)
    return Accountant.from_dict({name: value for name, value in basis.items() if name not in _OF_RUN})


def as_text(basis: Basis) -> str:
    """One text for one basis."""
    return json.dumps(basis, sort_keys=True)


class UnfinishedError(DataError):
    """A run was stopped at a point at which nothing can be certified yet."""


def check_planned(basis: Basis, names: Sequence[str], run: Path) -> None:
    """Raise unless those took part in a run who were to, and who was still to take part is known."""
    rounds = basis["rounds"]
    if digest_of(names[:1] * rounds) == basis["cohorts"] and {*names} == {names[0]} and len(names) <= rounds:
        return
    if len(names) < rounds:
        raise UnfinishedError(f"{run} was stopped while people were leaving: finish it first, with --resume")
    if digest_of(names) != basis["cohorts"]:
        raise DataError(f"{run}: the log is of other cohorts than were settled beforehand")


def check_same(said: Basis, bound: Basis, where: str) -> None:
    """Raise unless what is said ``where`` is what the log is bound to; say what is not."""
    for name in sorted({*said, *bound}):
        mine, logged = (json.dumps(basis.get(name), sort_keys=True) for basis in (said, bound))
        if mine != logged:
            raise DataError(f"{where} is not that of its log: {name} is {mine} here, but {logged} was laid down")
