"""The files of a partitioned table: which they are, and whether they are still what they were."""

import glob
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from apes.errors import DataError, ParameterError

SUFFIX = ".parquet"
# A folder, a pattern, or a list of files.
Files = str | Path | Sequence[str | Path]
_BYTES_AT_ONCE = 1 << 20
_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class PartFile:
    """A file as it was when it was opened.

    Attributes:
        path: Where it is, in full: the same on every worker.
        state: What tells that nobody wrote to it since: `_state`.
        sha256: Of its bytes.
    """

    path: str
    state: tuple[int, int, int, int]
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "PartFile":
        """The file as it is now; all of it is read once."""
        state = _state(str(path))
        return cls(str(path), state, _sha256(str(path), state))

    def check(self) -> None:
        """Raise unless the file is what it was; one that was copied or touched is, if its bytes are."""
        state = _state(self.path)
        if state == self.state:
            return
        if state[0] != self.state[0] or _sha256(self.path, state) != self.sha256:
            raise DataError(f"{self.path} has changed since it was opened")


def is_partitioned(data: str) -> bool:
    """Whether a text names a folder, or is a pattern of names, rather than one file."""
    path = Path(data)
    return path.is_dir() or (bool(_PATTERN & set(data)) and not path.is_file())


def part_paths(source: Files) -> list[Path]:
    """Paths of all Parquet files of a folder, of a pattern or of a list, by name; what begins with . or _ is none.

    Raises:
        DataError: If there is no such file.
    """
    if isinstance(source, str | Path):
        if not is_partitioned(str(source)):
            raise DataError(f"there is no folder {source}, nor is it a pattern such as 'folder/*{SUFFIX}'")
        root = Path(source)
        entries = list(root.iterdir()) if root.is_dir() else [Path(name) for name in glob.glob(str(source))]
        entries = [path for path in entries if path.suffix.lower() == SUFFIX and path.name[0] not in "._"]
    elif isinstance(source, Sequence) and all(isinstance(path, str | Path) for path in source):
        entries = [Path(path) for path in source]
    else:
        raise ParameterError(f"source must be a folder, a pattern or a list of files, got {type(source).__name__}")
    if not entries:
        raise DataError(f"{source} has no {SUFFIX} files; those of folders in it need a pattern: '*/*{SUFFIX}'")
    for path in entries:
        if not path.is_file():
            raise DataError(f"there is no file {path}")
    return sorted(path.resolve() for path in entries)


def _state(path: str) -> tuple[int, int, int, int]:
    """Size in bytes, when it was last written to and last changed in any way (nanoseconds), and which file it is.

    The first of the times can be put back by whoever writes, the second cannot.
    """
    try:
        found = Path(path).stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


# What was not written to since is not read again.
@lru_cache(maxsize=1 << 14)
def _sha256(path: str, state: tuple[int, int, int, int]) -> str:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while some := file.read(_BYTES_AT_ONCE):
                digest.update(some)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
