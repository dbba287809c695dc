"""A vault's ledger: what was answered in which round, and what it cost each user; on the disk before it leaves.

One ledger may serve several vaults of the same people, at the same time: one for each federation that they are in.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from apes.errors import DataError
from apes.federation.vault.charges import Charge
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.witness import Witness
from apes.storage.chain import link
from apes.storage.database import open_database, read_database
from apes.wire.envelope import SENDER_BYTES, written_sender
from apes.wire.frames import FrameReader
from apes.wire.inclusion import report_digest

# Answers are kept for the round that runs and the one before it; older ones are over everywhere.
_ROUNDS_KEPT = 2

_SPENT = "select user, epsilon, mu_squared, delta, rounds from spent"
_OWNER = "select users, epsilon, delta from owner"
# How many answers there are, and the link of one of them: by its number, or of the last.
_LINK = "select link from chain where number = coalesce(?, (select count(*) from answers))"
_HELD = f"select count(*), ({_LINK}) from answers"
_VAULTS = "select id from vaults"
_RUNS = "select distinct run from answers"


class Answer(NamedTuple):
    """What was answered in a round, and to what."""

    announcement: bytes  # digest
    answer: bytes | None  # framed sealed reports; None once they are past


class SentReport(NamedTuple):
    """A sealed report that was handed over: what is asked about when its sender wants to know whether it counted."""

    run: str  # in hexadecimal
    round: int
    announcement: bytes  # digest of what it answers
    sender: bytes
    report: bytes  # SHA-256 of all its bytes


Spending = list[Counter[Charge]]
"""For each user, how many rounds were answered at which charge."""


def read_ledger(path: Path, users: int, own: Lifetime, witness: Witness | None = None) -> tuple[Spending, Lifetime]:
    """What a ledger's users have spent and grant, read beside whoever keeps it; as new if there is none yet."""
    if witness is not None:
        witness.check_there(path)
    if not path.exists():
        return _by_user([], users), own
    if witness is not None:
        vaults, (held,) = read_database(path, _VAULTS), read_database(path, _HELD, (witness.answers,))
        try:
            witness.check((witness.ledger_id,) in vaults, *held)
        except DataError as error:
            raise DataError(f"{path} cannot be used: {error}") from None
    lifetime = _agreed(read_database(path, _OWNER), users, own)
    return _by_user(read_database(path, _SPENT), users), lifetime


def read_sent(path: Path) -> list[SentReport]:
    """Every sealed report that was handed over, read while a vault may use the ledger; none if there is no ledger."""
    if not path.exists():
        return []
    query = "select run, round, announced.digest, sender, sent.digest from sent join announced using (run, round)"
    return [SentReport(*row) for row in read_database(path, f"{query} order by run, round, sender")]


def read_previous(path: Path, run: str) -> dict[int, bytes]:
    """Digest of the release before each round of a run that was answered, as the analyzer's announcement names it."""
    return dict(read_database(path, "select round, digest from previous where run = ?", (run,)))


def read_runs(path: Path) -> frozenset[str]:
    """The runs that a ledger has answered, read beside whoever keeps it; none if there is no ledger yet."""
    return frozenset(str(run) for (run,) in read_database(path, _RUNS)) if path.exists() else frozenset()


class VaultLedger:
    """Answers and spending of so many users, in a database that is made if need be.

    Whichever vault brings a lifetime's limit first sets it for all; one that brings another is refused. A vault that
    never had a ledger enters its name; from then on its witness, if it has one, knows the ledger by it.
    """

    def __init__(self, path: Path, users: int, lifetime: Lifetime, witness: Witness | None = None) -> None:
        self._users, self._own, self._witness = users, lifetime, witness
        if witness is not None:
            witness.check_there(path)
        self._database = open_database(
            path,
            """
            create table if not exists answers (
              run text not null, round integer not null, answer blob, primary key (run, round)) without rowid;
            create table if not exists announced (
              run text not null, round integer not null, digest blob not null, primary key (run, round)) without rowid;
            create table if not exists sent (
              run text not null, round integer not null, sender blob not null, digest blob not null,
              primary key (run, round, sender)) without rowid;
            create table if not exists previous (
              run text not null, round integer not null, digest blob not null, primary key (run, round)) without rowid;
            create table if not exists spent (
              user integer not null, epsilon real not null, mu_squared real not null, delta real not null,
              rounds integer not null, primary key (user, epsilon, mu_squared, delta)) without rowid;
            create table if not exists owner (
              one integer primary key check (one = 1), users integer not null, epsilon real, delta real not null);
            create table if not exists vaults (id text primary key) without rowid;
            create table if not exists chain (number integer primary key, link blob not null);
            """,
            shared=True,
        )
        try:
            with self.transaction():
                self._enter()
                agreed = self.lifetime
                owner = "insert or replace into owner values (1, ?, ?, ?)"
                self._database.execute(owner, (users, agreed.epsilon, agreed.delta))
                self.spending()
        except (DataError, OSError, sqlite3.Error) as error:
            self.close()
            raise DataError(f"{path} cannot be used: {error}") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let nobody else write until the block ends; what it did is on the disk then, or none of it if it fails."""
        with self._database:
            self._database.execute("begin immediate")
            # Before anything is drawn: what is not in here may have been answered.
            self._check()
            yield
        self._witnessed()

    def _enter(self) -> None:
        """Enter the vault's name."""
        if self._witness is not None:
            self._database.execute("insert or ignore into vaults values (?)", (self._witness.ledger_id,))

    def _held(self, number: int | None = None) -> tuple[int, bytes | None]:
        """How many answers there are, and the link of the one with this number, or of the last."""
        answers, found = self._database.execute(_HELD, (number,)).fetchone()
        return int(answers), found

    def _check(self) -> None:
        """Raise unless this is the ledger that the witness knows, with everything that it has seen in there."""
        if self._witness is not None:
            is_known = (self._witness.ledger_id,) in self._database.execute(_VAULTS).fetchall()
            self._witness.check(is_known, *self._held(self._witness.answers))

    def _witnessed(self) -> None:
        self._check()
        if self._witness is not None:
            self._witness.cover(*self._held())

    @property
    def lifetime(self) -> Lifetime:
        """What its users grant centrally."""
        return _agreed(self._database.execute(_OWNER).fetchall(), self._users, self._own)

    def find(self, run: str, number: int) -> Answer | None:
        """What was answered in a round, or None."""
        query = "select digest, answer from announced join answers using (run, round) where run = ? and round = ?"
        row = self._database.execute(query, (run, number)).fetchone()
        # One that was recorded and not yet witnessed, since the disk was full, say, may not leave either.
        self._witnessed()
        return None if row is None else Answer(*row)

    def last_round(self, run: str) -> int:
        """The last round of a run that was answered; 0 if none was."""
        query = "select max(round) from answers where run = ?"
        return int(self._database.execute(query, (run,)).fetchone()[0] or 0)

    def spending(self) -> Spending:
        """What each user has spent, over all runs."""
        return _by_user(self._database.execute(_SPENT), self._users)

    def keep_previous(self, run: str, number: int, previous: bytes) -> None:
        """Keep what a round's announcement says of the release before it, inside a `transaction`."""
        self._database.execute("insert into previous values (?, ?, ?)", (run, number, previous))

    def record(self, run: str, number: int, answer: Answer, charges: dict[int, Charge]) -> None:
        """Record an answer and what it costs each user in it, inside a `transaction`."""
        answers, before = self._held()
        # With everything that vaults before this one, or others, answered: no copy has this link and not all of that.
        new = link(before, run.encode(), str(number).encode(), answer.announcement, answer.answer or b"")
        self._database.execute("insert into chain values (?, ?)", (answers + 1, new))
        self._database.execute("insert into announced values (?, ?, ?)", (run, number, answer.announcement))
        self._database.execute("insert into answers values (?, ?, ?)", (run, number, answer.answer))
        sent = [(run, number, written_sender(report), report_digest(report)) for report in _sealed(answer.answer)]
        self._database.executemany("insert into sent values (?, ?, ?, ?)", sent)
        charge = "insert into spent values (?, ?, ?, ?, 1) on conflict (user, epsilon, mu_squared, delta) do "
        charge += "update set rounds = rounds + 1"
        self._database.executemany(charge, [(user, *cost) for user, cost in charges.items()])
        old = "update answers set answer = null where run = ? and round <= ?"
        self._database.execute(old, (run, number - _ROUNDS_KEPT))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _sealed(answer: bytes | None) -> Iterator[bytes]:
    """The sealed reports of an answer, which are framed."""
    data = answer or b""
    for report in FrameReader(max(len(data), 1)).feed(data):
        if len(written_sender(report)) == SENDER_BYTES:
            yield report


def _by_user(rows: Iterable[tuple[int, float, float, float, int]], users: int) -> Spending:
    spending: Spending = [Counter() for _ in range(users)]
    for user, epsilon, mu_squared, delta, rounds in rows:
        spending[user][Charge(epsilon, mu_squared, delta)] += rounds
    return spending


def _agreed(rows: list[tuple[int, float | None, float]], users: int, own: Lifetime) -> Lifetime:
    """The limit that holds: the ledger's if it has one, else the vault's own."""
    for count, epsilon, delta in rows:
        if count != users:
            raise DataError(f"the ledger is of {count} users, the vault holds {users}: they do not belong together")
        if epsilon is not None:
            kept = Lifetime(epsilon, delta)
            if own.epsilon is not None and own != kept:
                asked = f"the vault's is {own.epsilon:g} at {own.delta:g}"
                raise DataError(f"the ledger's lifetime epsilon is {epsilon:g} at delta {delta:g} for ever, {asked}")
            return kept
    return own
