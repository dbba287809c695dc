"""What a shuffler knows of its ledger without it, beside its keys: a ledger that is gone, another's or old is noticed.

Without its ledger, or with an old copy, a shuffler would release a round a second time, sign a second roster, and take
what was charged for uncharged: the difference of two releases, or of two rosters, is one person's.
"""

import secrets
import threading
from dataclasses import dataclass
from pathlib import Path

from apes.checks import hex_names, whole
from apes.errors import DataError, ParameterError
from apes.storage.chain import LINK_BYTES
from apes.storage.files import sync_folder
from apes.storage.settings import read_settings, write_settings

_ID_BYTES = 16
_REMEDY = (
    "put the newest copy back, with the files beside it whose names begin alike; if it is lost, so is what was "
    "released: do not go on with its runs, invite again with a new folder"
)


@dataclass(frozen=True)
class Seen:
    """What the witness' file holds."""

    ledger: str  # the ledger's name, 32 hexadecimal digits, made with the shuffler's folder
    # For each run, number and link of the last that the ledger's chain had; None before the ledger was first opened.
    runs: dict[str, tuple[int, str]] | None = None

    def __post_init__(self) -> None:
        hex_names("ledger", (self.ledger,), _ID_BYTES)
        if not isinstance(self.runs, dict | None):
            raise ParameterError(f"runs must be an object or null, got {self.runs!r}")
        for number, link in (self.runs or {}).values():
            whole("number", number, 1)
            hex_names("link", (link,), LINK_BYTES)


def new_witness(path: Path) -> None:
    """Make the file for a shuffler that never opened a ledger, and the name of the ledger that it will have."""
    write_settings(path, Seen(secrets.token_hex(_ID_BYTES)))


class Witness:
    """Which ledger a shuffler has answered by, and the last of every run in it; may be used from several threads.

    Guarantee:
        Nothing leaves before its link is here, and the ledger has it before that. So a crash in between leaves a ledger
        that knows more, which is sound. One without this link is old, whatever it got since: a link stands for one
        roster, announcement or release, and for all of its run before it.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            what = "which says what the ledger must hold: put the newest copy back; without one, the ledger may be old"
            raise DataError(f"there is no {path}, {what}: do not go on with its runs, invite again with a new folder")
        seen = read_settings(path, Seen)
        self.ledger, self._path, self._lock = seen.ledger, path, threading.Lock()
        self._runs = None if seen.runs is None else {run: (number, link) for run, (number, link) in seen.runs.items()}

    @property
    def is_new(self) -> bool:
        """Whether no ledger was opened so far."""
        return self._runs is None

    @property
    def runs(self) -> tuple[str, ...]:
        """Runs of which the ledger must hold something."""
        return tuple(self._runs or ())

    def check_there(self, ledger: Path) -> None:
        """Raise if there is no ledger where one was."""
        if not self.is_new and not ledger.exists():
            raise DataError(f"the ledger {ledger} is gone: {_REMEDY}")

    def check_name(self, name: str | None, is_empty: bool) -> None:
        """Raise unless a ledger of this name, None without one, may be the shuffler's."""
        if name != self.ledger and (name is not None or not self.is_new or not is_empty):
            raise DataError(f"it is not this shuffler's ledger, or what was in it is gone: {_REMEDY}")

    def last(self, run: str) -> tuple[int, str]:
        """Number and link of the last that the ledger must hold of a run; 0 if it need not hold anything."""
        return (self._runs or {}).get(run, (0, ""))

    def cover(self, run: str, number: int, link: bytes) -> None:
        """Have on the disk that the ledger's chain of a run goes to here; before any of it leaves."""
        with self._lock:
            if number > self.last(run)[0]:
                self._write({**(self._runs or {}), run: (number, link.hex())})

    def open(self) -> None:
        """Have on the disk that there is a ledger from now on."""
        with self._lock:
            if self._runs is None:
                self._write({})

    def _write(self, runs: dict[str, tuple[int, str]]) -> None:
        write_settings(self._path, Seen(self.ledger, runs))
        sync_folder(self._path.parent)
        self._runs = runs


def check_last(last: tuple[int, str], link: bytes | None) -> None:
    """Raise unless a ledger that has this link, None for none, where the witness saw its last, is not older."""
    number, seen = last
    if number and (link is None or link.hex() != seen):
        held = "it lacks what was announced or released" if link is None else "it went on from an old copy"
        raise DataError(f"it is older than this shuffler's last answer, {held}: {_REMEDY}")
