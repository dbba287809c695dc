"""The file of a trained model: its weights, and beside them in words what they are.

``weights`` is one flat array of float64. ``about`` is a text of JSON: how the weights are laid out, classes and
features, which terms and which schema they belong to, what is guaranteed about them. Files of earlier versions have
the weights alone.
"""

import hashlib
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from apes.accounting.guarantee import Guarantee
from apes.data.table.schema import Schema
from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.models.model import Model, layout_of
from apes.storage.arrays import read_arrays, write_arrays
from apes.storage.version import __version__

_FORMAT = 1
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def about_model(
    model: Model,
    guarantee: Guarantee,
    terms: str,
    *,
    rounds: int,
    schema: Schema | None = None,
    features: str | None = None,
) -> dict[str, Any]:
    """What is to be said about a model's weights, as plain values.

    Args:
        model: What was trained.
        guarantee: What is certified about its training.
        terms: Digest of the terms.
        rounds: After how many of them it stands.
        schema: Of the table that it was trained on, if there was one.
        features: Name of the feature map that rows go through first, if there is one.
    """
    is_certified = guarantee.why_not_certified is None
    return {
        "format": _FORMAT,
        "version": __version__,
        "model": type(model).__name__,
        "layout": [array.as_dict() for array in layout_of(model)],
        "order": "one array after the other, each row by row (C order)",
        "classes": None if schema is None or schema.target else list(schema.classes),
        "features": None if schema is None else list(schema.columns.feature_names),
        "label": None if schema is None else schema.label,
        "feature_map": features,
        "schema_sha256": None if schema is None else schema.digest,
        "terms_sha256": terms,
        "rounds": rounds,
        "epsilon": guarantee.epsilon if is_certified else None,
        "delta": guarantee.delta if is_certified else None,
        "caveats": list(guarantee.caveats),
        "seeded": guarantee.is_seeded,
        "condition": guarantee.condition,
    }


def digest_of_weights(weights: F64) -> str:
    """SHA-256 of a model's weights, as little-endian float64."""
    return hashlib.sha256(weights.astype("<f8").tobytes()).hexdigest()


def write_model(path: Path, weights: F64, about: Mapping[str, Any]) -> None:
    """Write the weights and what they are; the file appears whole."""
    write_arrays(path, {"weights": weights, "about": np.array(json.dumps(about))})


def read_model(path: Path) -> tuple[F64, dict[str, Any] | None]:
    """Weights, and what they are; None for a file of an earlier version, which does not say."""
    found = read_arrays(path, ("weights",), ("about",), is_stored=True)
    weights = found["weights"]
    if weights.ndim != 1 or weights.dtype != np.float64 or not np.isfinite(weights).all():
        raise DataError(f"{path} is damaged: it holds no finite weights")
    if "about" not in found:
        return weights, None
    try:
        about = dict(json.loads(str(found["about"].item())))
        if about["format"] != _FORMAT:
            raise DataError(f"{path} is of format {about['format']!r}, known is {_FORMAT}")
        size = sum(prod(map(int, array["shape"])) for array in about["layout"])
    except _UNREADABLE as error:
        raise DataError(f"{path} is damaged: it does not say what its weights are: {error}") from None
    if size != weights.size:
        raise DataError(f"{path} is damaged: it is laid out for {size} weights and has {weights.size}")
    return weights, about
