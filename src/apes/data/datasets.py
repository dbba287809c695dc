"""Data sets ready for training: flat float32 images in [0, 1] and their classes."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from apes.checks import one_of
from apes.data.catalogue import CATALOGUE, Collection
from apes.data.digits import PROVENANCE, SIDE, Pixels, load_digits
from apes.data.idx import read_idx
from apes.data.sources import BY_HAND, Progress, locate
from apes.errors import DataError, ParameterError
from apes.mathematics.arrays import F32, U8
from apes.storage.files import cache_folder

NAMES: tuple[str, ...] = ("digits", *CATALOGUE)
NORMALISATIONS: tuple[str, ...] = ("pixels", "unit-norm")
CLASSES = 10
# Stands for a test part that is left out.
_NOTHING = {"test_images": np.empty((0, SIDE, SIDE), np.uint8), "test_labels": np.empty(0, np.uint8)}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images for training and test.

    Attributes:
        name: of the set.
        train_images: (N, 784) float32 in [0, 1].
        train_labels: (N,) classes in [0, classes).
        test_images: (M, 784) float32 in [0, 1].
        test_labels: (M,) classes in [0, classes).
        provenance: one line that says where the images came from.
        classes: number of classes.
    """

    name: str
    train_images: F32
    train_labels: U8
    test_images: F32
    test_labels: U8
    provenance: str
    classes: int = CLASSES

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex of the four arrays, with their types and shapes, and of the number of classes."""
        total = hashlib.sha256(f"{self.classes} classes\n".encode())
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            total.update(f"{array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    normalise: str = "pixels",
    cache: Path | None = None,
    progress: Progress | None = None,
    only_training: bool = False,
) -> Dataset:
    """Load a data set; nothing is fetched from the network.

    Args:
        name: ``digits`` (embedded) or a set read from files: ``mnist``, ``fashion-mnist``, ``qmnist``.
        data_dir: folder of the set's four idx files, or of a subfolder of its name with them; not for ``digits``.
        normalise: ``pixels`` divides by 255; ``unit-norm`` then scales every image but zeros to L2 norm 1.
        cache: the cache folder; None for the usual one.
        progress: called with (done, total) images while the digits are made.
        only_training: leave the test part out: its files are not read, its arrays are empty.

    Raises:
        DataError: if the files are missing or not what they should be; says what to do.
    """
    one_of("name", name, NAMES)
    one_of("normalise", normalise, NORMALISATIONS)
    if name == "digits":
        if data_dir is not None:
            raise ParameterError(f"data_dir must be left out: the digits are embedded; got {str(data_dir)!r}")
        pixels, provenance = load_digits(cache_folder(cache), progress), PROVENANCE
        pixels = pixels._replace(**_NOTHING) if only_training else pixels
    else:
        try:
            pixels, provenance = _read_files(CATALOGUE[name], data_dir, cache, only_training=only_training)
        except DataError as error:
            raise DataError(f"{error}; run `apes data get {name}`, or {BY_HAND}") from None
    train, test = (scaled_images(images, normalise) for images in (pixels.train_images, pixels.test_images))
    return Dataset(name, train, pixels.train_labels, test, pixels.test_labels, f"{name}: {provenance}")


def _read_files(
    collection: Collection, data_dir: Path | None, cache: Path | None, *, only_training: bool
) -> tuple[Pixels, str]:
    paths = locate(collection, data_dir, cache)
    # Files of other known sets have the same names: their labels tell them.
    for other in (each for each in CATALOGUE.values() if each is not collection and each.files[1].sha256 is not None):
        try:
            other.files[1].verify(paths[1])
        except DataError:
            continue
        raise DataError(f"{paths[1]} belongs to {other.name}, not to {collection.name}")
    arrays: list[U8] = []
    for at in (0,) if only_training else (0, 2):
        images, labels = _read_images(paths[at]), _read_labels(paths[at + 1], collection.files[at + 1].dimensions)
        if len(images) != len(labels):
            raise DataError(f"{paths[at]} holds {len(images)} images but {paths[at + 1]} {len(labels)} labels")
        arrays += [images, labels]
    return Pixels(*arrays, *(_NOTHING.values() if only_training else ())), f"idx files in {paths[0].parent}"


def _read_images(path: Path) -> U8:
    images = read_idx(path, 3)
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE) or len(images) == 0:
        raise DataError(f"{path} holds {images.dtype} entries of shape {images.shape}, not 28x28 images of bytes")
    return images.astype(np.uint8, copy=False)


def _read_labels(path: Path, dimensions: int) -> U8:
    labels = read_idx(path, dimensions)
    # QMNIST's rows tell class, origin, writer and more; an empty row has no class.
    classes = labels[:, :1] if labels.ndim == 2 else labels[:, None]
    bad = (classes < 0) | (classes >= CLASSES)
    if bad.any() or classes.shape[1] == 0:
        cause = f"the label {classes[bad][0]}" if bad.any() else "no labels"
        raise DataError(f"{path} holds {cause}, expected 0 to {CLASSES - 1}")
    return classes[:, 0].astype(np.uint8)


def scaled_images(images: U8 | F32, normalise: str) -> F32:
    """Flatten images and bring them to [0, 1], where they are not yet, or to L2 norm 1."""
    # The dtype keeps numpy from a float64 copy, 376 MB for 60,000 images.
    whole = np.float32(255 if images.dtype == np.uint8 else 1)
    flat = np.divide(images.reshape(len(images), math.prod(images.shape[1:])), whole, dtype=np.float32)
    if normalise == "unit-norm":
        norms = np.sqrt(np.einsum("ij,ij->i", flat, flat))
        flat /= np.where(norms > 0, norms, np.float32(1))[:, None]
    return flat
