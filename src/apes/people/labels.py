"""Labels of rows: classes or real-valued targets, as small as they may be."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.checks import finite, finite_float32, numbers, whole
from apes.errors import ParameterError
from apes.population import Examples

MOST_CLASSES = 65536


def as_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Classes as the smallest unsigned integers that hold them, real-valued targets as float32."""
    if np.issubdtype(labels.dtype, np.floating):
        finite("labels", labels)
        return np.ascontiguousarray(labels, dtype=np.float32)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(f"labels must be classes or real-valued targets, got {labels.dtype}")
    if labels.size and (labels.min() < 0 or labels.max() >= MOST_CLASSES):
        raise ParameterError(f"labels must be in [0, {MOST_CLASSES - 1}], got {labels.min()} to {labels.max()}")
    kind = np.uint8 if not labels.size or labels.max() < 256 else np.uint16
    return np.ascontiguousarray(labels, dtype=kind)


def check_classes(name: str, labels: NDArray[Any], classes: int) -> int:
    """Return the number of classes if all labels are less."""
    whole("classes", classes, 1, MOST_CLASSES)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(f"classes must be left out: {name} are real-valued; got {classes!r}")
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        must = f"{name} must be in [0, {classes - 1}], there being {classes} classes"
        raise ParameterError(f"{must}, got {labels.min()} to {labels.max()}")
    return int(classes)


def public_examples(test: tuple[ArrayLike, ArrayLike], features: NDArray[Any], classes: int | None) -> Examples:
    """Public examples, if their rows are as people's ``features``; of ``classes``, or of targets where that is None."""
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise ParameterError(f"test must be a pair of features and labels, got {type(test).__name__}")
    rows, labels = finite_float32("test", test[0]), numbers("test", test[1])
    if rows.shape[1:] != features.shape[1:]:
        raise ParameterError(f"test must have rows of shape {features.shape[1:]}, got {rows.shape[1:]}")
    if not rows.size or labels.shape != rows.shape[:1]:
        raise ParameterError(f"test must have one label per row, and a row, got {rows.shape} and {labels.shape}")
    if classes is None:
        return Examples(rows, as_labels(labels.astype(np.float64)))
    if not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(f"test must have classes as labels, as people have, got {labels.dtype}")
    check_classes("test labels", labels, classes)
    return Examples(rows, as_labels(labels))
