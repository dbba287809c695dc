"""What a vault knows of its ledger without it, beside its keys: a ledger that is gone, another's or old is noticed.

A ledger says which rounds were answered and what was spent. Without it, or with an old copy, a vault would draw a
second report for an answered round and take what was spent for unspent.
"""

from dataclasses import dataclass
from pathlib import Path

from apes.checks import hex_names, whole
from apes.errors import DataError
from apes.storage.chain import LINK_BYTES
from apes.storage.files import sync_folder
from apes.storage.settings import read_settings, write_settings

ID_BYTES = 16
"""Length of the name that a vault has in its ledger."""
_REMEDY = (
    "put the newest copy back, with the files beside it whose names begin alike; if it is lost, so is what was spent: "
    "do not go on here, join again with a new folder, and grant what is left by your own reckoning"
)


class LedgerLost(DataError):  # noqa: N818 - the name says what happened
    """The ledger is gone, another's, or knows less than left."""


@dataclass(frozen=True)
class Seen:
    """What the witness' file holds."""

    answers: int | None = None  # in the ledger when the last answer left; None before the ledger was first opened
    last: str | None = None  # link of the last of them in the ledger's chain, 64 hexadecimal digits; None if none was

    def __post_init__(self) -> None:
        if self.answers is not None:
            whole("answers", self.answers, 0)
        if self.last is not None:
            hex_names("last", (self.last,), LINK_BYTES)


def new_witness(path: Path) -> None:
    """Make the file for a vault that never opened a ledger."""
    write_settings(path, Seen())


class Witness:
    """Which ledger a vault has answered by, and the last answer in it, be it this vault's or one's that shares it.

    Guarantee:
        No answer leaves before its link is here, and the ledger has it before that. So a crash in between leaves a
        ledger that knows more, which is sound. One without this link is old, however many answers it got since: a link
        stands for one answer and for all before it.
    """

    def __init__(self, path: Path, ledger_id: str) -> None:
        hex_names("ledger_id", (ledger_id,), ID_BYTES)
        self.ledger_id, self._path, self._seen = ledger_id, path, read_settings(path, Seen)

    @property
    def answers(self) -> int:
        """How many answers the ledger must hold."""
        return self._seen.answers or 0

    def check_there(self, ledger: Path) -> None:
        """Raise if there is no ledger where one was."""
        if self._seen.answers is not None and not ledger.exists():
            raise LedgerLost(f"the ledger {ledger} is gone, which held {self.answers} answers: {_REMEDY}")

    def check(self, is_known: bool, answers: int, link: bytes | None) -> None:
        """Raise unless a ledger may be this vault's: it knows the vault, and has all the answers that left.

        ``link`` is what its chain has where the witness' own has its last, None if it has nothing there.
        """
        if self._seen.answers is None:
            return
        if not is_known:
            raise LedgerLost(f"it is not the ledger that this vault has answered by: {_REMEDY}")
        if answers < self.answers:
            held = f"it holds {answers} answers, {self.answers} were given"
            raise LedgerLost(f"it is older than this vault's last answer, {held}: {_REMEDY}")
        if self._seen.last is not None and (link is None or link.hex() != self._seen.last):
            grown = "it went on from an old copy"
            raise LedgerLost(f"it does not have this vault's last answer or start, {grown}: {_REMEDY}")

    def cover(self, answers: int, last: bytes | None) -> None:
        """Have on the disk that the ledger holds so many answers, with this link at the end; before one leaves."""
        if self._seen.answers is None or answers > self.answers:
            seen = Seen(answers, None if last is None else last.hex())
            write_settings(self._path, seen)
            sync_folder(self._path.parent)
            self._seen = seen
