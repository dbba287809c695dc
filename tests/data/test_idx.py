import gzip

import numpy as np
import pytest

from apes.data.idx import read_idx
from apes.errors import DataError

ARRAYS = [
    np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4),
    np.array([0, 255, 7], dtype=np.uint8),
    np.array([[1, -2], [1 << 20, 3]], dtype=np.int32),
    np.zeros((0, 28, 28), dtype=np.uint8),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_reads_what_was_written_whatever_the_name(tmp_path, idx_bytes, array, packed):
    # The names say the opposite of what the files are.
    path = tmp_path / ("plain" if packed else "packed.gz")
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    found = read_idx(path, array.ndim)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


def _damaged(content):
    packed = gzip.compress(content)
    middle = len(packed) // 2
    flipped = packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :]
    wrong_sum = packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]
    return {
        "empty": (b"", "empty"),
        "one byte": (content[:1], "not an idx file"),
        "magic cut": (content[:3], "not an idx file"),
        "header cut": (content[:9], "truncated within its header"),
        "no body": (content[:16], "truncated.* only 0"),
        "body cut": (content[:-1], "truncated"),
        "trailing": (content + b"x", "trailing"),
        "text": (b"<html>404 not found</html>", "not an idx file, it begins with the bytes 3c 68 74 6d"),
        "png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "not an idx file"),
        "float idx": (b"\0\0\x0d\x03" + content[4:], "type 0x0d"),
        "wrong dimensions": (b"\0\0\x08\x01" + content[4:], "1 dimensions where 3 are expected"),
        "huge": (b"\0\0\x08\x03" + b"\xff" * 12, "claims the shape"),
        "gzip cut": (packed[:-9], "truncated: its gzip stream has no end"),
        "gzip cut in its header": (packed[:5], "truncated: its gzip stream has no end"),
        "gzip sum cut": (packed[:-3], "truncated: its gzip stream has no end"),
        "gzip sum wrong": (wrong_sum, "damaged gzip"),
        "gzip flipped": (flipped, "damaged gzip"),
        "gzip trailing": (packed + b"more", "damaged gzip"),
        "gzip of text": (gzip.compress(b"hello, world"), "not an idx file"),
        "gzip of too little": (gzip.compress(content[:-5]), "truncated"),
        "gzip of too much": (gzip.compress(content + bytes(3)), "trailing"),
    }


@pytest.mark.parametrize("kind", _damaged(bytes(40)))
def test_refuses_damaged_and_foreign_files(tmp_path, idx_bytes, kind):
    rng = np.random.Generator(np.random.Philox(1))
    content, cause = _damaged(idx_bytes(rng.integers(0, 256, (5, 9, 9), dtype=np.uint8)))[kind]
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=cause) as caught:
        read_idx(path, 3)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message


def test_every_truncation_is_noticed(tmp_path, idx_bytes):
    content = idx_bytes(ARRAYS[0])
    packed = gzip.compress(content)
    path = tmp_path / "file"
    for whole in (content, packed):
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(DataError, match=str(path)):
                read_idx(path, 3)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="file is missing"):
        read_idx(tmp_path / "file", 3)
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        read_idx(tmp_path, 3)
