"""Feature maps by name, as commands and terms know them."""

from apes.errors import ParameterError
from apes.features.feature_map import FeatureMap
from apes.features.oriented_gradients import OrientedGradients

PIXELS = "pixels"
"""The name of no map: rows as they are."""
_GRADIENTS = "oriented-gradients"


def named_features(name: str) -> FeatureMap | None:
    """The map of that name, for images of 28 x 28 pixels; None for ``pixels``, which leaves rows as they are.

    >>> named_features("oriented-gradients:7").cells
    7
    """
    kind, colon, cells = name.partition(":")
    if name == PIXELS:
        return None
    if kind != _GRADIENTS or (colon and not (cells.isascii() and cells.isdecimal() and len(cells) < 5)):
        raise ParameterError(f"features must be {PIXELS} or {_GRADIENTS}[:CELLS], got {name!r}")
    return OrientedGradients(cells=int(cells)) if colon else OrientedGradients()
