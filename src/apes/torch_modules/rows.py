"""Rows as a torch module takes them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F32

_MOST_NUMBERS = 2**28


def checked_shape(shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of a row, checked; None stays None."""
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or not shape:
        raise ParameterError(f"input_shape must be a tuple of sizes, such as (1, 28, 28), got {shape!r}")
    sizes = tuple(whole("input_shape", size, 1) for size in shape)
    if math.prod(sizes) > _MOST_NUMBERS:
        raise ParameterError(f"input_shape must hold at most {_MOST_NUMBERS} numbers, got {shape!r}")
    return sizes


def shaped(rows: NDArray[Any], shape: tuple[int, ...] | None) -> F32:
    """Rows as float32 numbers, each in the given shape; in their own if it is None."""
    try:
        rows = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"rows must be numbers, got {type(rows).__name__}: {error}") from None
    if rows.ndim < 2 or not len(rows):
        raise ParameterError(f"rows must be an array of at least one row, got shape {rows.shape}")
    if shape is None:
        return rows
    size = int(np.prod(rows.shape[1:]))
    if size != int(np.prod(shape)):
        raise ParameterError(f"input_shape must hold the {size} numbers of a row, got {shape}")
    return rows.reshape(len(rows), *shape)
