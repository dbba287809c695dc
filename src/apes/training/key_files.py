"""The keys of a run on disk: what only its owner reads, and what is destroyed when the run ends."""

import os
from pathlib import Path

from apes.errors import DataError
from apes.mathematics.randomness import StreamKey
from apes.storage.files import OWNERS_FILE, read_regular, sync_folder, write_bytes
from apes.training.keys import KEY_BYTES, RunKeys
from apes.training.run_files import DIGEST_KEY, PRIVATE, RUN_KEY, make_private


def write_keys(run: Path, keys: RunKeys) -> None:
    """Write what is not there yet; a key that follows from a seed is in no file."""
    private = make_private(run)
    if not (private / DIGEST_KEY).exists():
        write_bytes(private / DIGEST_KEY, keys.digests, OWNERS_FILE)
    if keys.noise is not None and not keys.is_seeded and not (private / RUN_KEY).exists():
        write_bytes(private / RUN_KEY, keys.noise.material, OWNERS_FILE)
    sync_folder(private)


def read_keys(run: Path, seed: int | None) -> RunKeys:
    """The keys of a run; noise follows from the seed, if there is one, and is None where its key was destroyed."""
    digests = _read(run / PRIVATE / DIGEST_KEY)
    if digests is None:
        missing = run / PRIVATE / DIGEST_KEY
        raise DataError(
            f"{missing} is missing: whether the people are those of the run cannot be known; start a new run"
        )
    if seed is not None:
        return RunKeys(StreamKey.from_seed(seed), digests)
    material = _read(run / PRIVATE / RUN_KEY)
    return RunKeys(None if material is None else StreamKey(material), digests)


def remove_keys(run: Path) -> None:
    """Remove what somebody who was killed before a run had begun has left."""
    destroy_run_key(run)
    (run / PRIVATE / DIGEST_KEY).unlink(missing_ok=True)


def destroy_run_key(run: Path) -> None:
    """Overwrite and remove the key that noise was drawn under, if it is there.

    A file system may keep what was overwritten: a copy in its journal, a snapshot, a worn block of a disk.
    """
    path = run / PRIVATE / RUN_KEY
    try:
        number = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return
    try:
        os.write(number, bytes(os.fstat(number).st_size))
        os.fsync(number)
    finally:
        os.close(number)
    path.unlink()
    sync_folder(path.parent)


def _read(path: Path) -> bytes | None:
    """A key; None if it is not there."""
    try:
        found = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if len(found) != KEY_BYTES:
        raise DataError(f"{path} is damaged: a key has {KEY_BYTES} bytes, it has {len(found)}")
    return found
