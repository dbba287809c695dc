"""The shuffler's ledger: what was released, once and for ever; on the disk before anybody hears of it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from apes.errors import DataError
from apes.shuffler.service.store import LedgerConflict, LedgerError, open_store
from apes.shuffler.service.witness import Witness, check_last
from apes.storage.chain import link

_TABLES = """
create table if not exists rounds (
  run text not null, round integer not null, batch_sha256 blob not null, release blob not null,
  primary key (run, round)) without rowid;
create table if not exists participants (
  run text not null, round integer not null, sender blob not null,
  primary key (run, round, sender)) without rowid;
create table if not exists reports (
  run text not null, round integer not null, sender blob not null, digest blob not null,
  primary key (run, round, sender)) without rowid;
create table if not exists announcements (
  run text not null, round integer not null, announcement blob not null,
  primary key (run, round)) without rowid;
create table if not exists rosters (
  run text not null, sender blob not null, budget real not null,
  primary key (run, sender)) without rowid;
create table if not exists chain (
  run text not null, number integer not null, link blob not null,
  primary key (run, number)) without rowid;
create table if not exists named (
  one integer primary key check (one = 1), id text not null);
"""
# What is locked while a ledger gets its name; no run is called that.
_NAMING = "naming"
T = TypeVar("T")


class RoundClosed(LedgerConflict):
    """A round is over already; perhaps another shuffler on the same ledger has closed it."""


class Closed(NamedTuple):
    """A round that is over: the digest of the batch that closed it, and what was handed out."""

    batch_sha256: bytes
    release: bytes


class ShufflerLedger:
    """Rosters, announcements, releases, and who took part; in a file, or at the address of a PostgreSQL server.

    Every method raises LedgerError where the database does not do as it should. With a witness, a ledger is opened only
    if it has the witness' name, or nothing in it and a witness that never saw another; and if it holds all that left.
    """

    def __init__(self, place: Path | str, witness: Witness | None = None) -> None:
        self._witness = witness
        if witness is not None and isinstance(place, Path):
            witness.check_there(place)
        self._store = open_store(place, _TABLES)
        try:
            self._enter()
        except (DataError, LedgerError, OSError) as error:
            self.close()
            where = place if isinstance(place, Path) else "the ledger on PostgreSQL"
            raise DataError(f"{where} cannot be used: {error}") from None

    def _enter(self) -> None:
        """Give the ledger its name if it has none; raise unless the witness knows it."""
        witness = self._witness
        if witness is None:
            return
        with self._store.transaction(_NAMING):
            names = [name for (name,) in self._store.rows("select id from named")]
            tables = ("rounds", "participants", "announcements", "rosters")
            is_empty = not any(self._store.rows(f"select 1 from {table} limit 1") for table in tables)
            witness.check_name(names[0] if names else None, is_empty)
            if not names:
                self._store.put("insert into named values (1, ?)", [(witness.ledger,)])
        for run in {*witness.runs, *(run for (run,) in self._store.rows("select distinct run from chain"))}:
            self._bear_witness(run)
        witness.open()

    def witnessed(self, run: str, act: Callable[[], T]) -> T:
        """What ``act`` finds or does in the ledger of a run, once the witness knows of all that is there."""
        # Before it too: an old copy may have come in its place meanwhile.
        self._bear_witness(run)
        found = act()
        self._bear_witness(run)
        return found

    def _bear_witness(self, run: str) -> None:
        """Check that the ledger has what the witness saw last of a run, and let the witness see what is last now."""
        if self._witness is None:
            return
        last = self._witness.last(run)
        query = "select number, link from chain where run = ? and "
        query += "(number = ? or number = (select max(number) from chain where run = ?)) order by number"
        links = dict(self._store.rows(query, (run, last[0], run)))
        try:
            check_last(last, links.get(last[0]))
            for number in links:
                self._witness.cover(run, number, links[number])
        except (DataError, OSError) as error:
            raise LedgerError(str(error)) from None

    def _append(self, run: str, *pieces: bytes) -> None:
        """Add to a run's chain, in a transaction of it, together with what the pieces stand for."""
        found = self._store.rows("select number, link from chain where run = ? order by number desc limit 1", (run,))
        number, before = found[0] if found else (0, None)
        self._store.put("insert into chain values (?, ?, ?)", [(run, number + 1, link(before, *pieces))])

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
            self._append(run, b"announcement", str(number).encode(), announcement)

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
                self._append(run, b"roster", *(sender + repr(budget).encode() for _, sender, budget in rows))
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
            self._append(run, b"release", str(number).encode(), *closed)

    def keep_reports(self, run: str, number: int, reports: Mapping[bytes, bytes]) -> None:
        """Keep the digests of the sealed reports in a round, by sender; in the transaction that closes the round."""
        rows = [(run, number, sender, reports[sender]) for sender in sorted(reports)]
        self._store.put("insert into reports values (?, ?, ?, ?)", rows)

    def reports(self, run: str, number: int) -> dict[bytes, bytes]:
        """Digests of the sealed reports in a round, by sender; none where an earlier version closed it."""
        return dict(self._store.rows("select sender, digest from reports where run = ? and round = ?", (run, number)))

    def close(self) -> None:
        """Close the database."""
        self._store.close()
