"""A ledger in a file, which only one process may use at a time."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apes.shuffler.service.store import LedgerConflict, LedgerError
from apes.storage.database import open_database


class SqliteStore:
    """A SQLite database; see `apes.shuffler.service.store.Store`."""

    def __init__(self, path: Path, tables: str) -> None:
        self._database = open_database(path, tables)
        self._turn, self._is_taken = threading.RLock(), False
        # Held for a moment; but by a transaction from its first change to its end, which nobody may see before.
        self._lock, self._has_changed = threading.RLock(), False

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with self._lock, _as_ours():
            return self._database.execute(query, values).fetchall()

    def put(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of these rows."""
        if not self._has_changed:
            self._lock.acquire()
            self._has_changed = True
        with _as_ours():
            self._database.executemany(query, rows)

    @contextmanager
    def transaction(self, run: str) -> Iterator[None]:
        """One at a time, whatever the run; others may read until it changes something."""
        with self._turn:
            if self._is_taken:
                yield
                return
            self._is_taken = True
            try:
                with _as_ours(), self._database:
                    yield
            finally:
                self._is_taken = False
                if self._has_changed:
                    self._has_changed = False
                    self._lock.release()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


@contextmanager
def _as_ours() -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise LedgerConflict(str(error)) from None
    except sqlite3.Error as error:
        raise LedgerError(str(error)) from None
