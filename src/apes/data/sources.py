"""Where the files of a set are: in a given folder, in the cache, or to be fetched into the cache."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from apes.checks import one_of
from apes.data.catalogue import CATALOGUE, Collection, IdxFile
from apes.data.idx import is_gzip
from apes.errors import DataError
from apes.storage.files import cache_folder, sync

Progress = Callable[[int, int], None]

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30  # without a byte
_SLACK_BYTES = 1 << 20  # gzip can make a file that does not compress slightly longer
BY_HAND = "place the four files in DIR and pass --data-dir DIR"


def locate(collection: Collection, data_dir: Path | None, cache: Path | None) -> list[Path]:
    """Find the four files of a set, each gzipped or not.

    Looked up in this order: the subfolder of ``data_dir`` named like the set, ``data_dir`` itself,
    ``data/NAME`` in the cache. A folder that holds only some of the files ends the search: what was meant
    is there, and other data would be used in its place.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DataError(f"{data_dir} is not a folder")
    given = [] if data_dir is None else [Path(data_dir) / collection.name, Path(data_dir)]
    folders = [*given, cache_folder(cache) / "data" / collection.name]
    names = [file.name for file in collection.files]
    for folder in folders:
        found = [[path for path in (folder / name, folder / f"{name}.gz") if path.is_file()] for name in names]
        missing = [name for name, paths in zip(names, found, strict=True) if not paths]
        if not missing:
            return [paths[0] for paths in found]
        if len(missing) < len(names):
            raise DataError(f"{folder} holds no {' and no '.join(missing)}")
    raise DataError(f"{collection.name} was not found in {', '.join(map(str, folders))}")


def download(name: str, cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Fetch the four files of a set from its official places into the cache, and return their folder.

    Every file is checked by its published checksum before any is put in place; if one fails, all stays as it was.

    Args:
        name: of the set: ``mnist``, ``fashion-mnist`` or ``qmnist``.
        cache: the cache folder; None for the usual one, see ``cache_folder``.
        progress: called with (done, total), both in bytes of the unpacked set.

    Raises:
        DataError: if every mirror fails (one line, each attempt with its cause) or the cache cannot be written.
    """
    one_of("name", name, list(CATALOGUE))
    collection, target = CATALOGUE[name], cache_folder(cache) / "data" / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside its destination, so that os.replace stays within one file system.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as staging:
            arrived = _gather(collection, Path(staging), progress)
            target.mkdir(exist_ok=True)
            for file, path in zip(collection.files, arrived, strict=True):
                os.replace(path, target / path.name)
                # What was there in the other form, gzipped or not, may be damaged.
                for other in {file.name, f"{file.name}.gz"} - {path.name}:
                    (target / other).unlink(missing_ok=True)
    except OSError as error:
        cause = error.strerror or error
        raise DataError(f"{target} cannot be written ({cause}); set APES_CACHE to a folder that can") from None
    return target


def _gather(collection: Collection, staging: Path, progress: Progress | None) -> list[Path]:
    """Try one mirror after the other until all files are there; a later one brings what is missing."""
    sizes = [file.size for file in collection.files]
    arrived: list[Path] = []
    causes = []

    def report(size: int) -> None:
        if progress is not None:
            progress(sum(sizes[: len(arrived)]) + size, sum(sizes))

    for mirror in collection.mirrors:
        try:
            for file in collection.files[len(arrived) :]:
                arrived.append(_fetch(mirror, file, staging / "part", report))
                report(0)
            return arrived
        except DataError as error:
            causes.append(f"{mirror}: {error}")
    raise DataError(f"{collection.name} could not be fetched ({'; '.join(causes)}); {BY_HAND}")


def _fetch(mirror: str, file: IdxFile, part: Path, report: Callable[[int], None]) -> Path:
    """Fetch one file, check it and give it its name."""
    try:
        with part.open("wb") as written:
            _transfer(f"{mirror}{file.name}.gz", written, file.size, report)
            sync(written)
        file.verify(part)
    except DataError as error:
        # The name of the temporary file would tell the user nothing.
        raise DataError(f"{file.name}.gz: {str(error).replace(str(part), 'it')}") from None
    return part.rename(part.with_name(f"{file.name}.gz" if is_gzip(part) else file.name))


def _transfer(url: str, file: BinaryIO, size: int, report: Callable[[int], None]) -> None:
    """Copy what a server sends, as far as it can be a file of ``size`` unpacked bytes; report in those."""
    # Imported here because `import apes` should not wait for what few of its users need.
    import requests

    # The checksums are of files as they are kept, not as a server may pack them for the way.
    headers, limit = {"User-Agent": "apes", "Accept-Encoding": "identity"}, size + _SLACK_BYTES
    try:
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
            if not answer.ok:
                raise DataError(f"HTTP {answer.status_code} {answer.reason}")
            announced = int(answer.headers.get("Content-Length", 0))
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                if file.tell() > limit:
                    raise DataError(f"sends more than the {limit} bytes expected at most")
                if announced:
                    report(min(size, size * file.tell() // announced))
    except requests.exceptions.ChunkedEncodingError as error:
        raise DataError(f"the transfer broke off: {_cause(error)}") from None
    # A ValueError where the length that a server announces is no number.
    except (requests.RequestException, ValueError) as error:
        raise DataError(_cause(error)) from None


def _cause(error: BaseException) -> str:
    """What went wrong at the bottom: requests wraps what urllib3 has wrapped."""
    inner = next((each for each in (*error.args, error.__cause__) if isinstance(each, BaseException)), None)
    if inner is not None:
        return _cause(inner)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())
