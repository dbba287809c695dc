"""Arrays in NumPy archives, from anywhere: nothing in them is run, and what is wrong with one is said."""

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.errors import DataError
from apes.storage.files import write_whole

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def read_arrays(path: Path, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Read these arrays of an archive; those that are optional if it has them."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in [*needed, *(name for name in optional if name in stored)]}
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def read_all_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an archive."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (*_UNREADABLE, AttributeError) as error:
        raise DataError(f"{path} cannot be read as a NumPy archive: {error}") from None


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], mode: int | None = None) -> None:
    """Write an archive; it appears whole, with these permissions if any are given."""
    # The stub of savez has no type for a dictionary of arrays.
    write_whole(path, lambda file: np.savez(file, **arrays), mode)  # type: ignore[arg-type]
