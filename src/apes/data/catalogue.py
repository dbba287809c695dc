"""The image sets that are read from files: their files, where these come from and their checksums.

The SHA-256 sums are of the unpacked content, so that a file packed anew by a mirror still passes. QMNIST
publishes only MD5 sums of its gzip files.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from apes.data.idx import open_content
from apes.errors import DataError


@dataclass(frozen=True)
class IdxFile:
    """One file of a set and how it is recognised."""

    name: str  # without .gz
    size: int  # of the unpacked content in bytes
    dimensions: int  # of the array in it
    sha256: str | None = None  # of the unpacked content
    gzip_md5: str | None = None  # of the published gzip file, used where sha256 is None

    def verify(self, path: Path) -> None:
        """Raise ``DataError`` unless the file at ``path`` has the published checksum."""
        if self.sha256 is not None:
            with open_content(path) as file:
                found, wanted = hashlib.sha256(file.read(self.size + 1)), self.sha256
        else:
            found, wanted = hashlib.md5(path.read_bytes(), usedforsecurity=False), str(self.gzip_md5)
        if found.hexdigest() != wanted:
            raise DataError(f"{path} has the wrong checksum ({found.hexdigest()[:8]}.., not {wanted[:8]}..)")


@dataclass(frozen=True)
class Collection:
    """A set of four idx files, in the order train images and labels, test images and labels."""

    name: str
    files: tuple[IdxFile, IdxFile, IdxFile, IdxFile]
    mirrors: tuple[str, ...]


def _mnist_like(*sha256: str) -> tuple[IdxFile, IdxFile, IdxFile, IdxFile]:
    """Describe 60,000 + 10,000 images in MNIST's own four file names."""
    return (
        IdxFile("train-images-idx3-ubyte", 47_040_016, 3, sha256[0]),
        IdxFile("train-labels-idx1-ubyte", 60_008, 1, sha256[1]),
        IdxFile("t10k-images-idx3-ubyte", 7_840_016, 3, sha256[2]),
        IdxFile("t10k-labels-idx1-ubyte", 10_008, 1, sha256[3]),
    )


_MNIST = Collection(
    "mnist",
    _mnist_like(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    # The first home of MNIST refuses downloads; these two are what its users were sent to.
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
)

_FASHION = Collection(
    "fashion-mnist",
    _mnist_like(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    # The second is the address in the authors' README; it has no https, the checksum guards it.
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)

# 60,000 + 60,000 images; a label is a row of 8 whole numbers, the class first.
_QMNIST = Collection(
    "qmnist",
    (
        IdxFile("qmnist-train-images-idx3-ubyte", 47_040_016, 3, gzip_md5="ed72d4157d28c017586c42bc6afe6370"),
        IdxFile("qmnist-train-labels-idx2-int", 1_920_012, 2, gzip_md5="0058f8dd561b90ffdd0f734c6a30e5e4"),
        IdxFile("qmnist-test-images-idx3-ubyte", 47_040_016, 3, gzip_md5="1394631089c404de565df7b7aeaf9412"),
        IdxFile("qmnist-test-labels-idx2-int", 1_920_012, 2, gzip_md5="5b5b05890a5e13444e108efe57b788aa"),
    ),
    ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",),
)

CATALOGUE: Mapping[str, Collection] = {each.name: each for each in (_MNIST, _FASHION, _QMNIST)}
