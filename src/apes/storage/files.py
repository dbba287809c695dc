"""The cache folder, and files that appear whole or not at all."""

import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

OWNERS_FOLDER, OWNERS_FILE = 0o700, 0o600
"""Permissions of what its owner alone may read."""
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BYTES = getattr(os, "O_BINARY", 0)


def cache_folder(cache: Path | None = None) -> Path:
    """Folder for what can be made or fetched again, if none is given; it need not exist.

    ``$APES_CACHE``, else ``$XDG_CACHE_HOME/apes``, else ``~/.cache/apes``.
    """
    if cache is not None:
        return Path(cache)
    own, shared = os.environ.get("APES_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    if shared:
        return Path(shared) / "apes"
    home = os.path.expanduser("~")
    # A user without a home (some containers) keeps the tilde; do not make a folder of that name.
    return (Path(tempfile.gettempdir()) if home == "~" else Path(home) / ".cache") / "apes"


def write_whole(path: Path, write: Callable[[BinaryIO], object], mode: int | None = None) -> None:
    """Write a file so that others see the old content or all of the new, even after a crash.

    Its folder is made if need be; with permissions ``mode``, nobody else can open it before it has them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    # Who has opened it goes on reading, whatever its permissions are by then.
    first = 0o666 if mode is None else 0o600
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, first)) as file:
            # Windows has no permissions of this kind.
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            write(file)
            sync(file)
        os.replace(part, path)
    except OSError as error:
        # What a full disk says names no file, or one that nobody asked for.
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write ``data`` by `write_whole`."""
    write_whole(path, lambda file: file.write(data), mode)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it, if it is one: a pipe or a device could keep whoever reads it waiting, or never end.

    Raises:
        OSError: If it cannot be opened, or is no regular file.
    """
    # Without waiting for a pipe's other end; Windows has neither the flag nor such pipes in its folders.
    number = os.open(path, os.O_RDONLY | _NO_WAITING | _BYTES)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return open(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_regular(path: Path) -> bytes:
    """Read a whole file by `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def sync(file: BinaryIO) -> None:
    """Bring what was written to ``file`` to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring it to the disk which files a folder has: a new one, or one in the place of another, may be lost before."""
    if os.name == "nt":
        return  # a folder cannot be opened there
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
