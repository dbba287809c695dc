"""Read idx files, the format of MNIST and its relatives, gzipped or not."""

import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from apes.errors import DataError
from apes.mathematics.arrays import I32, U8

_Type = np.dtype[np.uint8] | np.dtype[np.int32]
# The third byte of an idx file names the type of its entries; they are stored big end first.
_TYPES: dict[int, _Type] = {0x08: np.dtype(">u1"), 0x0C: np.dtype(">i4")}
# Far above any supported set (47 MB); keeps a damaged header from asking for all memory.
_LARGEST_BYTES = 1 << 30


def is_gzip(path: Path) -> bool:
    """Say whether the file's content, whatever its name, begins as gzip."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextmanager
def open_content(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading its content, unpacked if it is gzipped.

    What goes wrong, on entry or while reading inside the block, is a ``DataError`` with the file and the cause.
    """
    try:
        opener = gzip.open if is_gzip(path) else open
        with opener(path, "rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except EOFError:
        raise DataError(f"{path} is truncated: its gzip stream has no end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from None


def read_idx(path: Path, dimensions: int) -> U8 | I32:
    """Read one idx file, gzipped or not, into an array of so many dimensions, in [1, 255].

    It is in the machine's byte order: uint8 (maybe read-only) for type 0x08, int32 for 0x0C. A ``DataError`` if the
    file is missing, truncated, damaged, longer than it says or no such idx file.
    """
    with open_content(path) as file:
        magic = file.read(4)
        if not magic:
            raise DataError(f"{path} is empty")
        if len(magic) < 4 or magic[:2] != b"\0\0":
            raise DataError(f"{path} is not an idx file, it begins with the bytes {magic.hex(' ')}")
        if magic[2] not in _TYPES:
            raise DataError(f"{path} is an idx file of type 0x{magic[2]:02x}, not 0x08 (ubyte) or 0x0c (int)")
        if magic[3] != dimensions:
            raise DataError(f"{path} has {magic[3]} dimensions where {dimensions} are expected")
        sizes = file.read(4 * dimensions)
        if len(sizes) < 4 * dimensions:
            raise DataError(f"{path} is truncated within its header")
        dtype, shape = _TYPES[magic[2]], tuple(np.frombuffer(sizes, ">u4").tolist())
        size = math.prod(shape) * dtype.itemsize
        if size > _LARGEST_BYTES:
            raise DataError(f"{path} claims the shape {shape}, more than {_LARGEST_BYTES} bytes")
        # One byte more than there should be: finds trailing bytes and makes gzip check its sum.
        body = file.read(size + 1)
    if len(body) != size:
        cause, found = ("trailing bytes", "more") if len(body) > size else ("truncated", f"only {len(body)}")
        raise DataError(f"{path}: {cause}, its header promises {size} bytes and there are {found}")
    array = np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
    return cast("U8 | I32", array)
