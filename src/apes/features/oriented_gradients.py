"""Oriented gradients: how strongly an image rises in each of a few directions, cell by cell.

A fixed public map (in the manner of Dalal and Triggs 2005), so that training on it costs no privacy. For every pixel
the gradient's length is shared between the two nearest of the signed directions; every cell takes a weighted mean
around its centre, weights falling linearly to zero at the centres of its neighbours; square roots even out strong and
faint strokes; the row's own mean is taken off, which all images share; and the row is brought to one norm.
"""

import json
import math
from dataclasses import asdict, dataclass

import numpy as np

from apes.checks import positive, whole
from apes.data.scale import ROW_NORM
from apes.errors import ParameterError
from apes.features.scale import scaled_rows
from apes.mathematics.arrays import F32
from apes.mathematics.compiled import compiled

_VERSION = 1


@dataclass(frozen=True)
class OrientedGradients:
    """A map from square images of one channel to orientations x cells x cells numbers.

    Attributes:
        side: Pixels of an image's side, at least 2.
        cells: Cells along a side, in [1, side].
        orientations: Directions that are told apart, signed, in [2, 64].
        norm: L2 norm of every row of features but blank ones, in (0, inf).

    >>> OrientedGradients()(np.zeros((3, 784), dtype=np.float32)).shape
    (3, 200)
    """

    side: int = 28
    cells: int = 5
    orientations: int = 8
    norm: float = ROW_NORM

    def __post_init__(self) -> None:
        whole("cells", self.cells, 1, whole("side", self.side, 2))
        whole("orientations", self.orientations, 2, 64)
        positive("norm", self.norm)

    @property
    def digest(self) -> str:
        """Name, version and every choice."""
        return json.dumps(["oriented-gradients", _VERSION, asdict(self)], sort_keys=True)

    def __call__(self, rows: F32) -> F32:
        """Features of some images, each a row of side x side pixels."""
        images = np.ascontiguousarray(rows, dtype=np.float32)
        if images[0].size != self.side**2 if len(images) else images.ndim < 2:
            raise ParameterError(f"rows must be images of {self.side} x {self.side} pixels, got shape {images.shape}")
        images = images.reshape(len(images), self.side, self.side)
        cells = np.zeros((len(images), self.orientations, self.cells, self.cells), dtype=np.float32)
        _fill(images, _weights(self.side, self.cells), cells)
        strengths = np.sqrt(cells).reshape(len(images), -1)
        return scaled_rows(strengths - strengths.mean(axis=1, keepdims=True), self.norm)


def _weights(side: int, cells: int) -> F32:
    """Weight of every pixel for every cell along a side: a triangle around the cell's centre; sums of 1."""
    centres = (np.arange(cells) + 0.5) * side / cells - 0.5
    triangle = np.maximum(0, 1 - np.abs(np.arange(side) - centres[:, None]) * cells / side)
    return np.asarray(triangle / triangle.sum(axis=1, keepdims=True), dtype=np.float32)


@compiled
def _fill(images: F32, weights: F32, out: F32) -> None:
    """Add every pixel's gradient to the two nearest orientations of the cells around it."""
    count, side = images.shape[0], images.shape[1]
    orientations, cells = out.shape[1], out.shape[2]
    per_radian = np.float32(orientations / (2 * math.pi))
    for n in range(count):
        image = images[n]
        for y in range(side):
            for x in range(side):
                right = image[y, x + 1] if x + 1 < side else np.float32(0)
                left = image[y, x - 1] if x > 0 else np.float32(0)
                below = image[y + 1, x] if y + 1 < side else np.float32(0)
                above = image[y - 1, x] if y > 0 else np.float32(0)
                across, down = right - left, below - above
                if across == 0 and down == 0:
                    continue
                length = np.sqrt(across * across + down * down)
                turn = np.float32(math.atan2(down, across)) * per_radian
                floor = np.floor(turn)
                first = int(floor) % orientations
                second = (first + 1) % orientations
                share = np.float32(turn - floor)
                for i in range(cells):
                    if weights[i, y] > 0:
                        for j in range(cells):
                            weight = weights[i, y] * weights[j, x] * length
                            out[n, first, i, j] += weight * (np.float32(1) - share)
                            out[n, second, i, j] += weight * share
