"""Arrays in NumPy archives, from anywhere: nothing in them is run, and what is wrong with one is said.

How large an archive's arrays are is read from its headers before anything is unpacked.
"""

import math
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from apes.errors import DataError
from apes.storage.files import open_regular, write_whole

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)
# An archive may be unpacked to this much, or to this many times its own size: images of digits shrink to a sixth.
_SMALL, _MOST_TIMES = 64 << 20, 100
# No header of an array that NumPy writes is as long.
_LONGEST_HEADER = 10_000


def read_arrays(
    path: Path, needed: Iterable[str], optional: Iterable[str] = (), *, is_stored: bool = False
) -> dict[str, NDArray[Any]]:
    """Read these arrays of an archive; those that are optional if it has them.

    ``is_stored``: it is one of ours, which are written as they are; one that would be unpacked to more is refused.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            there = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = [*needed, *(name for name in optional if name in there)]
            for name in wanted:
                if name not in there:
                    raise KeyError(f"it has no array {name!r}")
            _check_sizes([there[name] for name in wanted], _size(file), is_stored)
            return {name: _array(archive, there[name]) for name in wanted}
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def read_all_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an archive."""
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (*_UNREADABLE, AttributeError) as error:
        raise DataError(f"{path} cannot be read as a NumPy archive: {error}") from None


def read_array(path: Path) -> NDArray[Any]:
    """Read the array in a file of its own (.npy); OSError or ValueError if it is not one, or not whole."""
    with open_regular(path) as file:
        declared = _declared(file)
        if declared not in (None, held := _size(file) - file.tell()):
            raise ValueError(f"it is of {declared} bytes and holds {held}")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], mode: int | None = None) -> None:
    """Write an archive; it appears whole, with these permissions if any are given."""
    # The stub of savez has no type for a dictionary of arrays.
    write_whole(path, lambda file: np.savez(file, **arrays), mode)  # type: ignore[arg-type]


def _check_sizes(members: list[zipfile.ZipInfo], size: int, is_stored: bool) -> None:
    """Raise unless what the members say they are unpacked to is what such an archive can hold."""
    unpacked = sum(info.file_size for info in members)
    most = size if is_stored else max(_SMALL, _MOST_TIMES * size)
    if unpacked > most:
        raise ValueError(f"it has {size} bytes and would be unpacked to {unpacked}, more than {most}")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, of as many bytes as its member says; memory for it is taken only then."""
    with archive.open(info) as member:
        declared = _declared(member)
        if declared not in (None, held := info.file_size - member.tell()):
            raise ValueError(f"{info.filename} is of {declared} bytes and holds {held}")
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _declared(file: Any) -> int | None:
    """How many bytes an array has, by its header, which is read; None of objects, which are not unpacked at all."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file, max_header_size=_LONGEST_HEADER)
    return None if dtype.hasobject else math.prod(map(int, shape)) * dtype.itemsize


def _size(file: BinaryIO) -> int:
    """Bytes of an open file; it stands where it stood."""
    at = file.tell()
    size = file.seek(0, 2)
    file.seek(at)
    return size
