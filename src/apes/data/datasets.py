"""Data sets ready for training: flat float32 images in [0, 1] and their classes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from apes.data.catalogue import CATALOGUE, Collection, IdxFile
from apes.data.digits import PROVENANCE, SIDE, Pixels, load_digits
from apes.data.idx import read_idx
from apes.data.sources import Progress, locate, remedy
from apes.errors import DataError, ParameterError
from apes.storage.files import cache_folder

NAMES: tuple[str, ...] = ("digits", *CATALOGUE)
CLASSES = 10

Normalise = Literal["pixels", "unit-norm"]


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
    train_images: NDArray[np.float32]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.uint8]
    provenance: str
    classes: int = CLASSES


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    normalise: str = "pixels",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set; nothing is fetched from the network.

    Args:
        name: ``digits`` (embedded) or a set read from files: ``mnist``, ``fashion-mnist``, ``qmnist``.
        data_dir: a folder with the set's four idx files, or with a subfolder of the set's name that holds
            them; not for ``digits``.
        normalise: ``pixels`` divides by 255; ``unit-norm`` then scales every image to L2 norm 1 (an image
            of zeros stays zero).
        cache: the cache folder; None for the usual one.
        progress: called with (done, total) images while the digits are made.

    Raises:
        ParameterError: if the name or the normalisation is unknown, or ``digits`` is given a folder.
        DataError: if the files are missing or not what they should be; says what to do.
    """
    if name not in NAMES:
        raise ParameterError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    if normalise not in get_args(Normalise):
        raise ParameterError(f"normalise must be {' or '.join(get_args(Normalise))}, got {normalise!r}")
    if name == "digits":
        if data_dir is not None:
            raise ParameterError(f"data_dir must be None for the embedded digits, got {str(data_dir)!r}")
        pixels, provenance = load_digits(cache_folder(cache), progress), PROVENANCE
    else:
        pixels, provenance = _read_files(CATALOGUE[name], data_dir, cache)
    scale = _SCALINGS[normalise]
    return Dataset(
        name=name,
        train_images=scale(pixels.train_images),
        train_labels=pixels.train_labels,
        test_images=scale(pixels.test_images),
        test_labels=pixels.test_labels,
        provenance=f"{name}: {provenance}",
    )


def _read_files(collection: Collection, data_dir: Path | None, cache: Path | None) -> tuple[Pixels, str]:
    paths = locate(collection, data_dir, cache)
    _refuse_other_sets(collection, paths[1])
    images, labels = [], []
    for at in (0, 2):
        images.append(_read_images(paths[at], collection))
        labels.append(_read_labels(paths[at + 1], collection.files[at + 1], collection))
        if len(images[-1]) != len(labels[-1]):
            counts = f"{len(images[-1])} images but {paths[at + 1]} {len(labels[-1])} labels"
            raise DataError(f"{paths[at]} holds {counts}; {remedy(collection.name)}")
    pixels = Pixels(images[0], labels[0], images[1], labels[1])
    return pixels, f"idx files in {paths[0].parent}"


def _refuse_other_sets(collection: Collection, train_labels: Path) -> None:
    """Raise if the labels are those of another known set: their files have the same names."""
    for other in CATALOGUE.values():
        expected = other.files[1]
        if other is collection or expected.sha256 is None:
            continue
        try:
            expected.verify(train_labels)
        except DataError:
            continue
        raise DataError(f"{train_labels} belongs to {other.name}, not to {collection.name}; {remedy(collection.name)}")


def _read_images(path: Path, collection: Collection) -> NDArray[np.uint8]:
    images = read_idx(path, 3, remedy(collection.name))
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE) or len(images) == 0:
        what = f"{images.dtype} entries of shape {images.shape}"
        raise DataError(f"{path} holds {what}, not 28x28 images of bytes; {remedy(collection.name)}")
    return images.astype(np.uint8, copy=False)


def _read_labels(path: Path, file: IdxFile, collection: Collection) -> NDArray[np.uint8]:
    labels = read_idx(path, file.dimensions, remedy(collection.name))
    # QMNIST's rows tell class, origin, writer and more; an empty row has no class.
    classes = labels[:, :1] if labels.ndim == 2 else labels[:, None]
    bad = (classes < 0) | (classes >= CLASSES)
    if bad.any() or classes.shape[1] == 0:
        cause = f"the label {classes[bad][0]}" if bad.any() else "no labels"
        raise DataError(f"{path} holds {cause}, expected 0 to {CLASSES - 1}; {remedy(collection.name)}")
    return classes[:, 0].astype(np.uint8)


def _to_pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Flatten images and bring them to [0, 1]."""
    # The dtype keeps numpy from a float64 copy, 376 MB for 60,000 images.
    return np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)


def _to_unit_norm(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Flatten images and scale each to L2 norm 1; an image of zeros stays zero."""
    flat = _to_pixels(images)
    norms = np.sqrt(np.einsum("ij,ij->i", flat, flat))
    flat /= np.where(norms > 0, norms, np.float32(1))[:, None]
    return flat


_SCALINGS: dict[str, Callable[[NDArray[np.uint8]], NDArray[np.float32]]] = {
    "pixels": _to_pixels,
    "unit-norm": _to_unit_norm,
}
