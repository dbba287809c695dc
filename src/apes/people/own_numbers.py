"""Numbers of people's own, budgets and targets: one per person, by name, by row, or by a law."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.budgets import make_budgets
from apes.checks import positive_array
from apes.data.table.cells import by_text
from apes.errors import ParameterError
from apes.mathematics.arrays import F64, Bools


def budgets_of(
    budgets: ArrayLike | Mapping[Any, float] | str,
    names: NDArray[Any],
    number: NDArray[np.intp],
    seed: int,
    trains: Bools | None = None,
) -> F64:
    """Budgets of users in order of their names; where ``trains`` says who trains, of those alone."""
    if isinstance(budgets, str):
        return make_budgets(budgets, names.size if trains is None else int(trains.sum()), seed)
    return per_user("budgets", budgets, names, number, trains)


def per_user(
    what: str,
    values: ArrayLike | Mapping[Any, float],
    names: NDArray[Any],
    number: NDArray[np.intp],
    trains: Bools | None = None,
) -> F64:
    """One positive number per user, in order of their names: from one per row, or from a mapping.

    Where ``trains`` says who trains, of those alone: a mapping need not name the others.
    """
    if isinstance(values, Mapping):
        names = names if trains is None else names[trains]
        missing = [name for name in names.tolist() if name not in values]
        if missing:
            raise ParameterError(f"{what} must name every user, got none for {missing[0]!r}")
        return positive_array(what, [values[name] for name in names.tolist()])
    by_row = positive_array(what, values)
    if by_row.shape != number.shape:
        raise ParameterError(f"{what} must have one entry per row, {number.size}, got {by_row.size}")
    own = np.empty(names.size)
    own[number] = by_row
    differs = own[number] != by_row
    if differs.any():
        row = int(np.argmax(differs))
        name, (first, second) = names[number[row]], sorted({float(own[number[row]]), float(by_row[row])})
        raise ParameterError(f"{what} must be equal within a user, got {first!r} and {second!r} for {name!r}")
    return own if trains is None else own[trains]


def budgets_by_name(budgets: Mapping[Any, float], names: NDArray[Any]) -> F64:
    """Budgets of users in order of their names."""
    return per_user("budgets", budgets, names, np.arange(names.size))


def budgets_beside(budgets: Mapping[Any, float] | str | None) -> dict[str, float] | str:
    """Budgets for a table without a column of them: a law by name, or everybody's own by id, as cells spell it.

    Raises:
        ParameterError: If there are none, or they are in a file, which has nobody's order.
    """
    if budgets is None:
        raise ParameterError("budget must name a column, or budgets a law or everybody's own; got neither")
    if isinstance(budgets, str) and budgets.startswith("file:"):
        raise ParameterError(f"budgets of a table must be in a column of it, or by a law, got {budgets!r}")
    return budgets if isinstance(budgets, str) else by_text("budgets", budgets)


def levels_beside(budget: str | None, budgets: Mapping[str, float] | str | None) -> dict[str, float]:
    """The budget of every level, where a column ``budget`` has levels; none where it has numbers, or there is none."""
    if budget is not None and not isinstance(budgets, Mapping | None):
        raise ParameterError(f"budgets must be levels by name, or left out, beside a column; got {budgets!r}")
    return {} if budget is None or budgets is None else by_text("budgets", budgets)
