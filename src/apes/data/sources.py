"""Where the files of a set are: in a given folder, in the cache, or to be fetched into the cache."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from apes.data.catalogue import CATALOGUE, Collection, IdxFile
from apes.data.idx import is_gzip
from apes.errors import DataError, ParameterError
from apes.storage.files import cache_folder, sync

Progress = Callable[[int, int], None]

_CHUNK_BYTES = 1 << 18
_SLACK_BYTES = 1 << 20  # gzip can make a file that does not compress slightly longer
BY_HAND = "place the four files in DIR and pass --data-dir DIR"


def locate(collection: Collection, data_dir: Path | None, cache: Path | None) -> list[Path]:
    """Find the four files of a set, each gzipped or not.

    Looked up in this order: the subfolder of ``data_dir`` named like the set, ``data_dir`` itself,
    ``data/NAME`` in the cache. A folder that holds only some of the files ends the search: what was meant
    is there, and other data would be used in its place.

    Raises:
        DataError: if ``data_dir`` is no folder, or no folder holds all four.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DataError(f"{data_dir} is not a folder")
    given = [] if data_dir is None else [Path(data_dir) / collection.name, Path(data_dir)]
    folders = [*given, _stored(collection, cache)]
    for folder in folders:
        paths, missing = [], []
        for name in (file.name for file in collection.files):
            found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
            paths += found[:1]
            missing += [] if found else [name]
        if not missing:
            return paths
        if paths:
            raise DataError(f"{folder} holds no {' and no '.join(missing)}")
    raise DataError(f"{collection.name} was not found in {', '.join(map(str, folders))}")


def download(name: str, cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Fetch the four files of a set from its official places into the cache, all of them or none.

    Every file is checked by its published checksum before it is put in place; on failure nothing is left
    behind and what was there before stays.

    Args:
        name: of the set: ``mnist``, ``fashion-mnist`` or ``qmnist``.
        cache: the cache folder; None for the usual one, see ``cache_folder``.
        progress: called with (done, total), both in bytes of the unpacked set.

    Returns:
        The folder that now holds the files.

    Raises:
        ParameterError: if there is no such set.
        DataError: if every mirror fails (one line, each attempt with its cause) or the cache cannot be
            written.
    """
    if name not in CATALOGUE:
        raise ParameterError(f"name must be one of {', '.join(CATALOGUE)}, got {name!r}")
    collection = CATALOGUE[name]
    target = _stored(collection, cache)
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
        raise DataError(
            f"{target} cannot be written ({error.strerror or error}); set APES_CACHE to a folder that can"
        ) from None
    return target


def _stored(collection: Collection, cache: Path | None) -> Path:
    return cache_folder(cache) / "data" / collection.name


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
            _transfer(f"{mirror}{file.name}.gz", written, _Meter(written, file.size, report))
            sync(written)
        file.verify(part)
    except DataError as error:
        # The name of the temporary file would tell the user nothing.
        raise DataError(f"{file.name}.gz: {str(error).replace(str(part), 'it')}") from None
    return part.rename(part.with_name(f"{file.name}.gz" if is_gzip(part) else file.name))


class _Meter:
    """What pooch takes for a progress bar: reports in unpacked bytes, and stops what never ends."""

    def __init__(self, file: BinaryIO, size: int, report: Callable[[int], None]) -> None:
        self.total = 0  # set by pooch to the length that the server announces, 0 if it does not
        self._file, self._size, self._report = file, size, report

    def update(self, _: int) -> None:
        # What pooch counts is chunks, however short they are.
        length, limit = self._file.tell(), self._size + _SLACK_BYTES
        if length > limit:
            raise DataError(f"sends more than the {limit} bytes expected at most")
        if self.total:
            self._report(min(self._size, self._size * length // self.total))

    def reset(self) -> None: ...

    def close(self) -> None: ...


def _transfer(url: str, file: BinaryIO, meter: _Meter) -> None:
    # Imported here because `import apes` should not wait for what few of its users need.
    from pooch import HTTPDownloader  # type: ignore[import-untyped]
    from requests.exceptions import ChunkedEncodingError, RequestException

    # The checksums are of files as they are kept, not as a server may pack them for the way.
    headers = {"User-Agent": "apes", "Accept-Encoding": "identity"}
    try:
        HTTPDownloader(progressbar=meter, chunk_size=_CHUNK_BYTES, headers=headers)(url, file, None)
    except ChunkedEncodingError as error:
        raise DataError(f"the transfer broke off: {_cause(error)}") from None
    # pooch raises a ValueError when the length that a server announces is no number.
    except (RequestException, ValueError) as error:
        answer = getattr(error, "response", None)
        raise DataError(_cause(error) if answer is None else f"HTTP {answer.status_code} {answer.reason}") from None


def _cause(error: BaseException) -> str:
    """What went wrong at the bottom: requests wraps what urllib3 has wrapped."""
    inner = next((each for each in (*error.args, error.__cause__) if isinstance(each, BaseException)), None)
    if inner is not None:
        return _cause(inner)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())
