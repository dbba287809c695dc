"""A vault's ledger: what was answered in which round, and what it cost each user; on the disk before it leaves."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.storage.database import open_database, read_database

# Answers are kept for the round that runs and the one before it; older ones are over everywhere.
_ROUNDS_KEPT = 2

_SPENT = "select user, epsilon, rounds from spent"

Spending = list[Counter[float]]
"""For each user, how many rounds were answered at which local epsilon."""


def local_epsilon(rounds: Mapping[float, int]) -> float:
    """Local epsilon of so many rounds at each cost, in nats.

    Rounds are counted, not added up, so an allowance of exactly so many rounds is met exactly.
    """
    return math.fsum(epsilon * count for epsilon, count in rounds.items())


def read_spending(path: Path, users: int) -> Spending:
    """What a ledger's users have spent, read beside whoever keeps it; nothing, if there is none yet."""
    return _by_user(read_database(path, _SPENT) if path.exists() else [], users)


class VaultLedger:
    """Answers and spending of a vault with so many users, in a database that is made if need be."""

    def __init__(self, path: Path, users: int) -> None:
        self._users = users
        self._database = open_database(
            path,
            """
            create table if not exists answers (
              run text not null, round integer not null, answer blob, primary key (run, round)) without rowid;
            create table if not exists spent (
              user integer not null, epsilon real not null, rounds integer not null,
              primary key (user, epsilon)) without rowid;
            """,
        )
        try:
            self.spent()
        except DataError:
            self.close()
            raise

    def find(self, run: str, number: int) -> bytes | None:
        """What was answered in a round, or None."""
        query = "select answer from answers where run = ? and round = ?"
        row = self._database.execute(query, (run, number)).fetchone()
        return None if row is None else row[0]

    def last_round(self, run: str) -> int:
        """The last round of a run that was answered; 0 if none was."""
        query = "select max(round) from answers where run = ?"
        return int(self._database.execute(query, (run,)).fetchone()[0] or 0)

    def spent(self, further: F64 | None = None) -> F64:
        """Local epsilon that each user has spent, over all coordinates, rounds and runs, in nats.

        What one further round would cost each is counted in if it is given.
        """
        spending = _by_user(self._database.execute(_SPENT), self._users)
        if further is not None:
            for rounds, epsilon in zip(spending, further.tolist(), strict=True):
                rounds[epsilon] += 1
        return np.array([local_epsilon(rounds) for rounds in spending])

    def record(self, run: str, number: int, answer: bytes, costs: dict[int, float]) -> None:
        """Record an answer and what it costs each user in it, on the disk on return; an error changes nothing."""
        charge = "insert into spent values (?, ?, 1) on conflict (user, epsilon) do update set rounds = rounds + 1"
        with self._database:
            self._database.execute("insert into answers values (?, ?, ?)", (run, number, answer))
            self._database.executemany(charge, costs.items())
            old = "update answers set answer = null where run = ? and round <= ?"
            self._database.execute(old, (run, number - _ROUNDS_KEPT))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _by_user(rows: Iterable[tuple[int, float, int]], users: int) -> Spending:
    spending: Spending = [Counter() for _ in range(users)]
    for user, epsilon, rounds in rows:
        if not 0 <= user < users:
            raise DataError(f"the ledger charges user {user}, the vault holds {users}: they do not belong together")
        spending[user][epsilon] += rounds
    return spending
