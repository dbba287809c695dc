"""The shuffler's ledger: what was released, once and for ever; on the disk before anybody hears of it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from apes.shuffler.service.store import LedgerConflict, open_store

_TABLES = """
create table if not exists rounds (
  run text not null, round integer not null, batch_sha256 blob not null, release blob not null,
  primary key (run, round)) without rowid;
create table if not exists participants (
  run text not null, round integer not null, sender blob not null,
  primary key (run, round, sender)) without rowid;
"""


class RoundClosed(LedgerConflict):
    """A round is over already; perhaps another shuffler on the same ledger has closed it."""


class Closed(NamedTuple):
    """A round that is over: the digest of the batch that closed it, and what was handed out."""

    batch_sha256: bytes
    release: bytes


class ShufflerLedger:
    """Rounds, their releases, and who took part in them; in a file, or at the address of a PostgreSQL server.

    Every method raises LedgerError where the database does not do as it should.
    """

    def __init__(self, place: Path | str) -> None:
        self._store = open_store(place, _TABLES)

    def transaction(self, run: str) -> AbstractContextManager[None]:
        """All or nothing; until it ends, nobody else, in whatever process, closes a round of this run."""
        return self._store.transaction(run)

    def find(self, run: str, number: int) -> Closed | None:
        """Return a round that is over, or None if it is open."""
        found = self._store.rows("select batch_sha256, release from rounds where run = ? and round = ?", (run, number))
        return Closed(*found[0]) if found else None

    def numbers(self, run: str) -> list[int]:
        """Rounds of a run that are over."""
        return [number for (number,) in self._store.rows("select round from rounds where run = ? order by 1", (run,))]

    def releases(self, run: str) -> list[bytes]:
        """Everything that was released of a run, in order of the rounds."""
        query = "select release from rounds where run = ? order by round"
        return [release for (release,) in self._store.rows(query, (run,))]

    def close_round(self, run: str, number: int, closed: Closed, senders: Iterable[bytes]) -> None:
        """Close a round; when this returns, or else the transaction that it is in ends, it is on the disk.

        Raises:
            RoundClosed: If it is over already; then nothing changes.
        """
        participants = [(run, number, sender) for sender in sorted(senders)]
        with self._store.transaction(run):
            if self._store.rows("select 1 from rounds where run = ? and round = ?", (run, number)):
                raise RoundClosed(f"round {number} is over already")
            self._store.put("insert into rounds values (?, ?, ?, ?)", [(run, number, *closed)])
            self._store.put("insert into participants values (?, ?, ?)", participants)

    def close(self) -> None:
        """Close the database."""
        self._store.close()
