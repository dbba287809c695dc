"""What a vault knows of its ledger without it, beside its keys: a ledger that is gone, another's or old is noticed.

A ledger says which rounds were answered and what was spent. Without it, or with an old copy, a vault would draw a
second report for an answered round and take what was spent for unspent.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from apes.checks import hex_names, whole
from apes.errors import DataError
from apes.storage.settings import read_settings, write_settings

ID_BYTES = 16
"""Length of the name that a vault has in its ledger."""
_REMEDY = (
    "put the newest copy back, with the files beside it whose names begin alike; if it is lost, so is what was spent: "
    "do not go on here, join again with a new folder, and grant what is left by your own reckoning"
)


@dataclass(frozen=True)
class Seen:
    """What the witness' file holds."""

    answers: int | None = None  # in the ledger when the last answer left; None before the ledger was first opened

    def __post_init__(self) -> None:
        if self.answers is not None:
            whole("answers", self.answers, 0)


def new_witness(path: Path) -> None:
    """Make the file for a vault that never opened a ledger."""
    write_settings(path, Seen())


class Witness:
    """Which ledger a vault has answered by, and how many answers it held.

    Guarantee:
        No answer leaves before its number is here, and the ledger has it before that. So a crash in between leaves a
        ledger that knows more, which is sound; one that knows less is old.
    """

    def __init__(self, path: Path, ledger_id: str) -> None:
        hex_names("ledger_id", (ledger_id,), ID_BYTES)
        self.ledger_id, self._path, self._answers = ledger_id, path, read_settings(path, Seen).answers

    def check_there(self, ledger: Path) -> None:
        """Raise if there is no ledger where one was."""
        if self._answers is not None and not ledger.exists():
            raise DataError(f"the ledger {ledger} is gone, which held {self._answers} answers: {_REMEDY}")

    def check(self, is_known: bool, answers: int) -> None:
        """Raise unless a ledger may be this vault's: it knows the vault, and has all the answers that left."""
        if self._answers is None:
            return
        if not is_known:
            raise DataError(f"it is not the ledger that this vault has answered by: {_REMEDY}")
        if answers < self._answers:
            held = f"it holds {answers} answers, {self._answers} were given"
            raise DataError(f"it is older than this vault's last answer, {held}: {_REMEDY}")

    def cover(self, answers: int) -> None:
        """Have on the disk that the ledger holds so many answers; before one of them leaves."""
        if self._answers is None or answers > self._answers:
            write_settings(self._path, Seen(answers))
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._answers = answers
