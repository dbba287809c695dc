"""Rows of a torch ``Dataset``, without importing torch: whatever has a length and items (x, y)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import offering
from apes.errors import DataError


def stacked(name: str, dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """All items of a data set: the numbers as one array, and the labels.

    Raises:
        DataError: At the first item that is no pair, or whose numbers or label have another shape than the others'.
    """
    offering(name, dataset, "__len__", "__getitem__")
    rows: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    for at in range(len(dataset)):
        try:
            row, label = (np.asarray(part) for part in dataset[at])
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{name}[{at}] must be a pair of numbers and a label: {error}") from None
        if row.shape != (rows[0].shape if rows else row.shape) or label.size != 1:
            first = f"{rows[0].shape} as the first" if rows else "any shape"
            raise DataError(f"{name}[{at}] must have numbers of {first} and one label, got {row.shape}, {label.shape}")
        rows.append(np.atleast_1d(row))
        labels.append(label.reshape(()))
    if not rows:
        raise DataError(f"{name} is empty")
    return np.stack(rows), np.array(labels)
