"""The embedded images: 28 x 28 digits made from scikit-learn's 1,797 handwritten 8 x 8 digits.

They need no network and have MNIST's size. The originals are split before images are made, so no image of
the test set comes from an original that was trained on. (The same few writers are in both.)
"""

import logging
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from apes.mathematics.arrays import F32, F64, I64, U8
from apes.storage.files import write_whole

NUM_TRAIN, NUM_TEST = 60_000, 10_000
SIDE = 28  # pixels
PROVENANCE = "made from scikit-learn's handwritten 8x8 digits, 1,437 originals for training and 360 for test"

# Raise when the recipe changes: a cache file of another version is made again.
_VERSION = 1
_SEED = 20_250_301
_SPLIT_STREAM, _TRAIN_STREAM, _TEST_STREAM = range(3)
_TEST_EVERY = 5  # every fifth original is for test: 360 of 1,797
_ZOOMED = 20  # pixels; MNIST too fits its digits into 20 x 20 of the 28 x 28
_BORDER = 2  # zero pixels around a zoomed original, where samples from outside of it land
_FRAME = _ZOOMED + 2 * _BORDER
_ANGLE_SD = np.deg2rad(8.0)
_SCALES = (0.9, 1.1)
_SHIFT = 1.5  # pixels, either way
_BATCH = 250  # images; keeps the working set within a core's cache

_LOGGER = logging.getLogger(__name__)


class Pixels(NamedTuple):
    """The images of a set as they are stored: uint8 in [0, 255], labels in [0, 9]."""

    train_images: U8
    train_labels: U8
    test_images: U8
    test_labels: U8


def load_digits(cache: Path, progress: Callable[[int, int], None] | None = None) -> Pixels:
    """Return the 60,000 + 10,000 embedded images, from the cache if they are there.

    A cache file that is damaged or of another version is made again; a cache that cannot be written is
    reported by a logged warning and does no harm. ``progress`` as for `make_digits`.
    """
    path = cache / "data" / "digits" / "digits.npz"
    if (stored := _read_cache(path)) is not None:
        return stored
    pixels = make_digits(NUM_TRAIN, NUM_TEST, progress)
    try:
        write_whole(path, lambda file: np.savez(file, version=np.array(_VERSION), **pixels._asdict()))
    except OSError as error:
        _LOGGER.warning("the digits are not kept for next time: %s", error)
    return pixels


def make_digits(num_train: int, num_test: int, progress: Callable[[int, int], None] | None = None) -> Pixels:
    """Make images from the originals; ``progress`` is called with (images made, images to make).

    The same arguments give the same images.
    """
    images, labels = originals()
    zoomed, arrays = _zoom(images), []
    parts = zip((_TRAIN_STREAM, _TEST_STREAM), split_originals(labels), (num_train, num_test), strict=True)
    for stream, pool, num in parts:
        rng = _generator(stream)
        # In random order, each original equally often but for a random choice of the remainder.
        picks = rng.permutation(np.resize(rng.permutation(pool), num))
        made = np.empty((num, SIDE * SIDE), np.uint8)
        for stop in _render(zoomed, picks, rng, made):
            if progress is not None:
                progress(stop + (num_train if stream == _TEST_STREAM else 0), num_train + num_test)
        arrays += [made.reshape(num, SIDE, SIDE), labels[picks]]
    return Pixels(*arrays)


def originals() -> tuple[F64, U8]:
    """Return scikit-learn's digits: (1797, 8, 8) pixels in [0, 16] and their classes."""
    # Imported here because it takes longer than all else that this package imports.
    from sklearn.datasets import load_digits as bundled

    digits = bundled()
    return digits.images, digits.target.astype(np.uint8)


def split_originals(labels: U8) -> tuple[I64, I64]:
    """Split the originals into those for training and those for test, alike in every class."""
    order = _generator(_SPLIT_STREAM).permutation(len(labels))
    # Every fifth of a list ordered by class is a fifth of every class.
    order = order[np.argsort(labels[order], kind="stable")]
    is_test = np.arange(len(order)) % _TEST_EVERY == 0
    return order[~is_test], order[is_test]


def _generator(stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([_SEED, stream])))


def _zoom(images: F64) -> F32:
    """Enlarge originals to 20 x 20 by cubic splines, scale them to [0, 255] and frame them with zeros."""
    from scipy.ndimage import zoom  # here: it takes a tenth of a second to import, and only new digits need it

    side = images.shape[1]
    # Splines are linear in the pixels: what they do to unit vectors is what they do to rows and columns.
    columns = [zoom(unit, _ZOOMED / side, order=3, mode="grid-constant", grid_mode=True) for unit in np.eye(side)]
    enlarge = np.stack(columns, axis=1)
    large = np.clip(enlarge @ images @ enlarge.T, 0, 16) * (255 / 16)
    return np.pad(large.astype(np.float32), ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER)))


def _render(zoomed: F32, picks: I64, rng: np.random.Generator, made: U8) -> Iterator[int]:
    """Turn, scale and shift the picked originals at random, one bilinear resampling each; yield how many are made."""
    num = len(picks)
    angle = rng.normal(0.0, _ANGLE_SD, num)
    scale = rng.uniform(*_SCALES, num)
    shift = rng.uniform(-_SHIFT, _SHIFT, (2, num, 1)).astype(np.float32)
    # A pixel of the image is looked up where the inverse map takes it.
    cos = (np.cos(angle) / scale).astype(np.float32)[:, None]
    sin = (np.sin(angle) / scale).astype(np.float32)[:, None]
    grid = np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)
    rows, columns = np.repeat(grid, SIDE), np.tile(grid, SIDE)
    for start in range(0, num, _BATCH):
        part = slice(start, start + _BATCH)
        y, x = rows - shift[0, part], columns - shift[1, part]
        source_y = cos[part] * y + sin[part] * x
        source_x = cos[part] * x - sin[part] * y
        made[part] = np.rint(_bilinear(zoomed, picks[part], source_y, source_x))
        yield min(start + _BATCH, num)


def _bilinear(zoomed: F32, picks: I64, y: F32, x: F32) -> F32:
    """Sample framed originals at points given relative to their centres, in pixels."""
    centre, last = np.float32((_FRAME - 1) / 2), np.float32(_FRAME - 1.5)
    y, x = np.clip(y + centre, 0, last), np.clip(x + centre, 0, last)
    row, column = y.astype(np.int64), x.astype(np.int64)
    y -= row.astype(np.float32)
    x -= column.astype(np.float32)
    flat = zoomed.ravel()
    corner = (picks * _FRAME**2)[:, None] + row * _FRAME + column
    upper = flat[corner] * (1 - x) + flat[corner + 1] * x
    lower = flat[corner + _FRAME] * (1 - x) + flat[corner + _FRAME + 1] * x
    sampled: F32 = upper * (1 - y) + lower * y
    return sampled


def _read_cache(path: Path) -> Pixels | None:
    """Read the images from the cache; None if there are none that can be used."""
    try:
        # Opened here, because numpy leaves the file open when it is no archive.
        with path.open("rb") as file, np.load(file) as archive:
            if int(archive["version"]) != _VERSION:
                raise ValueError("another version")
            pixels = Pixels(*(archive[field] for field in Pixels._fields))
        shapes = [(NUM_TRAIN, SIDE, SIDE), (NUM_TRAIN,), (NUM_TEST, SIDE, SIDE), (NUM_TEST,)]
        if [array.shape for array in pixels] != shapes or any(array.dtype != np.uint8 for array in pixels):
            raise ValueError("arrays of another shape or type")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        _LOGGER.warning("%s cannot be used and is made again: %s", path, error)
        return None
    return pixels
