from pathlib import Path

import pytest

from apes.storage.files import cache_folder, write_whole


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"APES_CACHE": "/a", "XDG_CACHE_HOME": "/x"}, "/a"),
        ({"APES_CACHE": "", "XDG_CACHE_HOME": "/x"}, "/x/apes"),
        ({"HOME": "/h"}, "/h/.cache/apes"),
    ],
)
def test_cache_folder(monkeypatch, environment, expected):
    for name in ("APES_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)
    assert cache_folder(Path("/given")) == Path("/given")


def test_write_whole_makes_folders_and_replaces(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    write_whole(path, lambda file: file.write(b"one"))
    write_whole(path, lambda file: file.write(b"two"))
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_failed_write_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
