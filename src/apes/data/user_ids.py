"""User ids of rows in memory: whose each is. What cannot tell persons apart is refused, by its row."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.data.table.cells import as_they_are, is_missing, quoted
from apes.errors import ParameterError


def given_ids(users: ArrayLike) -> NDArray[Any]:
    """User ids as they are; one per row is checked later."""
    try:
        return as_they_are(users)
    except ValueError:
        raise ParameterError("users must be ids, one per row, got lists of different lengths") from None


def persons(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the different ids in order, and for every row the place of its own among them.

    Args:
        ids: One id per row, of one kind: numbers, texts, or objects that have an order.

    Guarantee:
        Rows with equal ids are one person, whoever else there is: of ids that have no order among each other, equal
        ones would not be found by sorting.

    Raises:
        ParameterError: At the first row whose id is missing, masked or has no order among the others.
    """
    _refuse_missing(ids)
    # As objects, so that numbers among texts stay numbers.
    sortable = ids.astype(object) if ids.dtype.kind in "SU" else ids
    try:
        names, number = np.unique(sortable, return_inverse=True)
        in_order = [bool(one < other) for one, other in pairwise(names)] if sortable.dtype.kind == "O" else []
    except (TypeError, ValueError):
        raise ParameterError("users must be ids of one kind, all numbers or all texts, got several kinds") from None
    if not all(in_order):
        at = in_order.index(False) + 1
        row = int(np.argmax(number == at))
        got = f"{quoted(names[at])} beside {quoted(names[at - 1])}"
        raise ParameterError(f"users[{row}] must be an id that has an order among the others, got {got}")
    return names, number


def _refuse_missing(ids: NDArray[Any]) -> None:
    if isinstance(ids, np.ma.MaskedArray):
        bad = np.ma.getmaskarray(ids)
    elif ids.dtype.kind in "OSU":
        bad = np.array([is_missing(value) or value in ("", b"") for value in ids.tolist()], dtype=bool)
    else:
        bad = ids != ids if ids.dtype.kind in "fcmM" else np.zeros(ids.shape, dtype=bool)
    if bad.any():
        row = int(np.argmax(bad))
        raise ParameterError(
            f"users[{row}] must be an id, got none ({'masked' if np.ma.is_masked(ids) else quoted(ids[row])})"
        )
