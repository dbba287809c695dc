"""The shuffler's ledger: what was released, once and for ever; on the disk before anybody hears of it."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from apes.storage.database import open_database


class Closed(NamedTuple):
    """A round that is over: the digest of the batch that closed it, and what was handed out."""

    batch_sha256: bytes
    release: bytes


class ShufflerLedger:
    """Rounds, their releases, and who took part in them; in a database that only one process may use at a time."""

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
        """Everything that was released of a run."""
        with self._lock:
            return [row[0] for row in self._database.execute("select release from rounds where run = ?", (run,))]

    def close_round(self, run: str, number: int, closed: Closed, senders: Iterable[bytes]) -> None:
        """Close a round; when this returns, it is on the disk; a sqlite3.Error changes nothing."""
        participants = [(run, number, sender) for sender in sorted(senders)]
        with self._lock, self._database:
            self._database.execute("insert into rounds values (?, ?, ?, ?)", (run, number, *closed))
            self._database.executemany("insert into participants values (?, ?, ?)", participants)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
