"""The shuffler's ledger: what was released, once and for ever; on the disk before anybody hears of it."""

from collections.abc import Iterable, Mapping
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
create table if not exists announcements (
  run text not null, round integer not null, announcement blob not null,
  primary key (run, round)) without rowid;
create table if not exists rosters (
  run text not null, sender blob not null, budget real not null,
  primary key (run, sender)) without rowid;
"""


class RoundClosed(LedgerConflict):
    """A round is over already; perhaps another shuffler on the same ledger has closed it."""


class Closed(NamedTuple):
    """A round that is over: the digest of the batch that closed it, and what was handed out."""

    batch_sha256: bytes
    release: bytes


class ShufflerLedger:
    """Rosters, announcements, releases, and who took part; in a file, or at the address of a PostgreSQL server.

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

    def last(self, run: str) -> bytes | None:
        """The last release of a run, or None."""
        found = self._store.rows("select release from rounds where run = ? order by round desc limit 1", (run,))
        return found[0][0] if found else None

    def announcement(self, run: str, number: int) -> bytes | None:
        """What was announced of a round, or None."""
        query = "select announcement from announcements where run = ? and round = ?"
        found = self._store.rows(query, (run, number))
        return found[0][0] if found else None

    def announce(self, run: str, number: int, announcement: bytes) -> None:
        """Keep a round's announcement, once and for ever; a second one is a LedgerConflict."""
        with self._store.transaction(run):
            self._store.put("insert into announcements values (?, ?, ?)", [(run, number, announcement)])

    def roster(self, run: str, members: Mapping[bytes, float]) -> dict[bytes, float]:
        """A run's roster: these members and their budgets when it is asked for first, and the same ever after."""
        kept = self._kept_roster(run)
        if kept:
            return kept
        with self._store.transaction(run):
            # Another shuffler on the same ledger may have been faster.
            if not self._kept_roster(run):
                rows = [(run, sender, budget) for sender, budget in sorted(members.items())]
                self._store.put("insert into rosters values (?, ?, ?)", rows)
            return self._kept_roster(run)

    def _kept_roster(self, run: str) -> dict[bytes, float]:
        query = "select sender, budget from rosters where run = ? order by sender"
        return {sender: budget for sender, budget in self._store.rows(query, (run,))}

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
