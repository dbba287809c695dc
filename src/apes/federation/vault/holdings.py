"""What a vault guards: users' rows, budgets, keys, and what they grant."""

from collections.abc import Iterator
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.population import Population, UserBlock

_USERS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Holdings:
    """One user's, or many users' (a silo)."""

    population: Population  # with budgets as they are applied
    keys: list[Ed25519PrivateKey]  # that the users sign with
    allowances: F64  # local epsilon that each grants, over all coordinates, rounds and runs, in nats

    def __post_init__(self) -> None:
        users = self.population.budgets.size
        if len(self.keys) != users or self.allowances.shape != (users,) or not (self.allowances > 0).all():
            raise DataError(f"a vault of {users} users needs {users} signing keys and positive allowances")

    def blocks(self) -> Iterator[UserBlock]:
        """All users, always in the same blocks: what is kept per block is computed once."""
        users = self.population.budgets.size
        for start in range(0, users, _USERS_AT_ONCE):
            yield self.population.block(start, min(start + _USERS_AT_ONCE, users))
