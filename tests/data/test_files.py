import os
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


def test_what_was_written_is_on_the_disk_before_it_is_in_place(tmp_path, monkeypatch):
    """Else the name may be there after a power cut, and what was written may not."""
    done, path = [], tmp_path / "file"
    keep, put = os.fsync, os.replace

    def fsync(number):
        done.append(("on the disk", os.fstat(number).st_size))
        keep(number)

    def replace(one, other):
        done.append(("in place", os.stat(one).st_size))
        put(one, other)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_whole(path, lambda file: file.write(b"content"))
    assert done == [("on the disk", 7), ("in place", 7)]
    assert path.read_bytes() == b"content"


def test_what_is_secret_is_so_before_anybody_can_open_it(tmp_path, monkeypatch):
    """It was everybody's for a moment; who opened it then could read all that was written afterwards."""
    found, narrow = [], os.fchmod

    def look_and_narrow(number, mode):
        found.append(os.fstat(number).st_mode & 0o777)
        narrow(number, mode)

    monkeypatch.setattr(os, "fchmod", look_and_narrow)
    before = os.umask(0)
    try:
        for mode in (0o600, 0o755):
            write_whole(tmp_path / "file", lambda file: file.write(b"secret"), mode)
            assert (tmp_path / "file").stat().st_mode & 0o777 == mode
        write_whole(tmp_path / "file", lambda file: file.write(b"public"))
    finally:
        os.umask(before)
    assert found == [0o600, 0o600]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666
