"""A ledger on a PostgreSQL server, which several shufflers may share. Needs the extra ``postgres``."""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from apes.errors import DataError
from apes.shuffler.service.store import LedgerConflict, LedgerError

# SQLite's words in ours.
_WORDS = {" blob": " bytea", " integer": " bigint", " real": " double precision", " without rowid": ""}
_SECONDS_TO_CONNECT = 10
# A server, or another shuffler, that hangs: then this round waits no longer, and nothing of it was written.
_LONGEST = "-c statement_timeout=60s -c lock_timeout=60s -c idle_in_transaction_session_timeout=120s"
_TABLES = "tables"


class _Line:
    """A connection to the server, which is made anew when it was lost; one thread at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.lock = threading.RLock()

    def open(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """The connection; a lost one is replaced, before anything is asked of it."""
        if self._connection is not None:
            try:
                self._connection.execute("select 1")
                return self._connection
            except psycopg.OperationalError:
                self._connection.close()
        self._connection = _connect(self._address)
        return self._connection

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                self._connection.close()


class PostgresStore:
    """A PostgreSQL database; see `apes.shuffler.service.store.Store`.

    One connection reads, another has the transactions: who is not in one sees nothing of it before it ends.
    """

    def __init__(self, address: str, tables: str) -> None:
        self._reading, self._writing = _Line(address), _Line(address)
        self._inside: psycopg.Connection[tuple[Any, ...]] | None = None
        self._owner: int | None = None
        for old, new in _WORDS.items():
            tables = tables.replace(old, new)
        try:
            with self.transaction(_TABLES):
                self._current().execute(tables.encode())
            ((fsync,),) = self.rows("select current_setting('fsync')")
        except LedgerError as error:
            self.close()
            raise DataError(f"the ledger on PostgreSQL cannot be used: {error}") from None
        if fsync != "on":
            self.close()
            raise DataError(f"the ledger's PostgreSQL must keep what it says it keeps: fsync must be on, got {fsync}")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds; in a transaction, also what it changed."""
        if self._owner == threading.get_ident():
            with _as_ours():
                return _rows(self._current(), query, values)
        with self._reading.lock, _as_ours():
            return _rows(self._reading.open(), query, values)

    def put(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of these rows."""
        with _as_ours(), self._current().cursor() as cursor:
            cursor.executemany(_in_theirs(query), rows)

    @contextmanager
    def transaction(self, run: str) -> Iterator[None]:
        """One at a time of a run, whichever process it is in: the others wait for a lock that ends with it."""
        with self._writing.lock:
            if self._owner is not None:
                yield
                return
            try:
                with _as_ours():
                    self._inside = self._writing.open()
                    with self._inside.transaction():
                        self._inside.execute("select pg_advisory_xact_lock(%s)", (_number_of(run),))
                        self._owner = threading.get_ident()
                        yield
            finally:
                self._owner = self._inside = None

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._writing.close()

    def _current(self) -> "psycopg.Connection[tuple[Any, ...]]":
        if self._inside is None:
            raise LedgerError("the ledger is written to outside of a transaction")
        return self._inside


def _connect(address: str) -> "psycopg.Connection[tuple[Any, ...]]":
    seconds = {"connect_timeout": _SECONDS_TO_CONNECT, "tcp_user_timeout": 60_000}
    connection = psycopg.connect(address, autocommit=True, options=_LONGEST, **seconds)
    # Stronger is as good: then replicas have it too.
    if connection.execute("show synchronous_commit").fetchone() != ("remote_apply",):
        connection.execute("set synchronous_commit = on")
    return connection


def _rows(
    connection: "psycopg.Connection[tuple[Any, ...]]", query: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = connection.execute(_in_theirs(query), values, binary=True).fetchall()
    return found


def _in_theirs(query: str) -> bytes:
    return query.replace("?", "%s").encode()


def _number_of(run: str) -> int:
    """The number of a run's lock; two runs that share one wait for each other in vain, and that is all."""
    return int.from_bytes(hashlib.sha256(f"apes shuffler {run}".encode()).digest()[:8], signed=True)


@contextmanager
def _as_ours() -> Iterator[None]:
    try:
        yield
    except psycopg.IntegrityError as error:
        raise LedgerConflict(_first_line(error)) from None
    except psycopg.Error as error:
        raise LedgerError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
