"""Where a ledger is kept: SQLite on this machine, or a PostgreSQL server that several shufflers may share."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from apes.errors import ApesError, DataError

_POSTGRESQL = ("postgresql://", "postgres://")


class LedgerError(ApesError):
    """The ledger cannot be read or written; of what was being written, nothing is there."""


class LedgerConflict(LedgerError):  # noqa: N818 - the name says what happened
    """What was to be written is there already, once and for ever."""


class Store(Protocol):
    """A database. In queries ``?`` stands for a value; all of it may be used from several threads.

    Every method raises LedgerError where the database does not do as it should.
    """

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds."""

    def put(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of these rows; only inside a transaction."""

    def transaction(self, run: str) -> AbstractContextManager[None]:
        """All or nothing, on the disk when it ends; nobody else is in one of the same run meanwhile.

        One inside another is part of it.
        """

    def close(self) -> None:
        """Close the database."""


def open_store(place: Path | str, tables: str) -> Store:
    """Open what the settings name: a path, or the address of a PostgreSQL server; ``tables`` makes what is missing."""
    if isinstance(place, str) and place.startswith(_POSTGRESQL):
        try:
            from apes.shuffler.service.postgres_store import PostgresStore
        except ImportError as error:
            raise DataError(f"a ledger on PostgreSQL needs pip install 'apes-fl[postgres]': {error}") from None
        return PostgresStore(place, tables)
    from apes.shuffler.service.sqlite_store import SqliteStore

    return SqliteStore(Path(place), tables)


def ledger_place(folder: Path, setting: str) -> Path | str:
    """What a ``ledger`` of the settings means: paths are relative to the settings' folder."""
    return setting if setting.startswith(_POSTGRESQL) else folder / setting
