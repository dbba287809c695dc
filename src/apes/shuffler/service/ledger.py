"""The shuffler's ledger: what was released, once and for ever; on the disk before anybody hears of it."""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from apes.storage.database import open_database


class Closed(NamedTuple):
    """A round that is over: the digest of the batch that closed it, and what was handed out."""

    batch_sha256: bytes
    release: bytes


class ShufflerLedger:
    """Rosters, announcements, releases, and who took part; in a database that only one process may use at a time."""

    def __init__(self, path: Path) -> None:
        self._database = open_database(
            path,
            """
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
            """,
        )
        self._lock = threading.Lock()

    def find(self, run: str, number: int) -> Closed | None:
        """Return a round that is over, or None if it is open."""
        query = "select batch_sha256, release from rounds where run = ? and round = ?"
        with self._lock:
            row = self._database.execute(query, (run, number)).fetchone()
        return None if row is None else Closed(*row)

    def releases(self, run: str) -> list[bytes]:
        """Everything that was released of a run, in order of the rounds."""
        query = "select release from rounds where run = ? order by round"
        with self._lock:
            return [row[0] for row in self._database.execute(query, (run,))]

    def last(self, run: str) -> bytes | None:
        """The last release of a run, or None."""
        query = "select release from rounds where run = ? order by round desc limit 1"
        with self._lock:
            row = self._database.execute(query, (run,)).fetchone()
        return None if row is None else row[0]

    def announcement(self, run: str, number: int) -> bytes | None:
        """What was announced of a round, or None."""
        query = "select announcement from announcements where run = ? and round = ?"
        with self._lock:
            row = self._database.execute(query, (run, number)).fetchone()
        return None if row is None else row[0]

    def announce(self, run: str, number: int, announcement: bytes) -> None:
        """Keep a round's announcement, once and for ever; a second one is a sqlite3.IntegrityError."""
        with self._lock, self._database:
            self._database.execute("insert into announcements values (?, ?, ?)", (run, number, announcement))

    def roster(self, run: str, members: Mapping[bytes, float]) -> dict[bytes, float]:
        """A run's roster: these members and their budgets when it is asked for first, and the same ever after."""
        query = "select sender, budget from rosters where run = ?"
        with self._lock, self._database:
            kept = dict(self._database.execute(query, (run,)).fetchall())
            if not kept:
                rows = [(run, sender, budget) for sender, budget in sorted(members.items())]
                self._database.executemany("insert into rosters values (?, ?, ?)", rows)
            return kept or dict(members)

    def close_round(self, run: str, number: int, closed: Closed, senders: Iterable[bytes]) -> None:
        """Close a round; when this returns, it is on the disk; a sqlite3.Error changes nothing."""
        participants = [(run, number, sender) for sender in sorted(senders)]
        with self._lock, self._database:
            self._database.execute("insert into rounds values (?, ?, ?, ?)", (run, number, *closed))
            self._database.executemany("insert into participants values (?, ?, ?)", participants)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
