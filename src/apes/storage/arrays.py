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


def read_arrays(path: Path, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Read these arrays of an archive; those that are optional if it has them."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in [*needed, *(name for name in optional if name in stored)]}
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], mode: int | None = None) -> None:
    """Write an archive; it appears whole, with these permissions if any are given."""
    # The stub of savez has no type for a dictionary of arrays.
    write_whole(path, lambda file: np.savez(file, **arrays), mode)  # type: ignore[arg-type]
