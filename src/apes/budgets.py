"""A population's privacy budgets: the paper's laws by name, a constant, a grid, or a column of a file."""

import csv
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from apes.checks import positive_array, whole
from apes.errors import DataError, ParameterError
from apes.mathematics.arrays import F64
from apes.mathematics.randomness import Purpose, SimulationSource

_Law = Callable[[np.random.Generator, int], F64]


def _uniform(low: float, high: float) -> _Law:
    return lambda rng, n: rng.uniform(low, high, n)


def _gauss(mean: float, low: float, high: float) -> _Law:
    return lambda rng, n: np.clip(rng.normal(mean, 1.0, n), low, high)


def _mixed(mean: float, other: float, low: float, high: float) -> _Law:
    """90 % of the users around one mean, 10 % around another (which ones is random)."""
    return lambda rng, n: np.clip(rng.normal(np.where(rng.random(n) < 0.1, other, mean), 1.0), low, high)


# Table 2 of the paper and the wider range of its Figure 6; a Gaussian's second parameter is a variance of 1.
LAWS: dict[str, _Law] = {
    "uniform1": _uniform(0.05, 0.5),
    "uniform2": _uniform(0.05, 1.0),
    "uniform3": _uniform(0.05, 3.0),
    "gauss1": _gauss(0.1, 0.05, 0.5),
    "gauss2": _gauss(0.2, 0.05, 1.0),
    "gauss3": _gauss(0.5, 0.05, 3.0),
    "mixgauss1": _mixed(0.1, 0.5, 0.05, 0.5),
    "mixgauss2": _mixed(0.2, 1.0, 0.05, 1.0),
    "mixgauss3": _mixed(0.5, 3.0, 0.05, 3.0),
}

_FORMS = f"{', '.join(LAWS)}, constant:E, grid:LOW:HIGH, file:PATH or file:PATH:COLUMN"


def make_budgets(spec: str, users: int, seed: int) -> F64:
    """Return the local budgets of a population, per coordinate and round, in nats.

    Args:
        spec: A law's name (``uniform1`` .. ``mixgauss3``), ``constant:0.5``, ``grid:0.05:1`` (evenly spaced, no
            randomness), ``file:people.csv`` (first column) or ``file:people.csv:column``.
        users: How many budgets, at least 1. A file must hold exactly as many.
        seed: Seeds the laws; the others take no randomness.

    Raises:
        DataError: If a file cannot be read.

    >>> make_budgets("grid:0.5:1", 3, seed=0)
    array([0.5 , 0.75, 1.  ])
    """
    users = whole("users", users, 1)
    kind, rest, ends = check_budgets(spec)
    if kind in LAWS:
        return LAWS[kind](SimulationSource(seed).generator(Purpose.BUDGETS), users)
    if ends:
        return positive_array("budgets", np.linspace(ends[0], ends[-1], users))
    return read_column("budgets", rest, users)


def check_budgets(spec: str) -> tuple[str, str, list[float]]:
    """Check the form of a specification, without drawing or reading; return its kind, the rest, the numbers in it."""
    if not isinstance(spec, str):
        raise ParameterError(f"budgets must be a text here, one of {_FORMS}; got {type(spec).__name__}")
    kind, colon, rest = spec.partition(":")
    if (kind in LAWS and not colon) or (kind == "file" and rest):
        return kind, rest, []
    ends = rest.split(":")
    if len(ends) != {"constant": 1, "grid": 2}.get(kind):
        raise ParameterError(f"budgets must be one of {_FORMS}; got {spec!r}")
    return kind, rest, [_number(end, spec) for end in ends]


def _number(text: str, spec: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ParameterError(f"budgets must be one of {_FORMS}; got {spec!r}") from None
    if not (0 < number < math.inf):
        raise ParameterError(f"budgets must be in (0, inf), got {spec!r}")
    return number


def read_column(name: str, place: str, users: int) -> F64:
    """Read one number per user, each in (0, inf), in the order of the users.

    Args:
        name: What the numbers are, for messages.
        place: ``PATH`` of a CSV file (its first column) or ``PATH:COLUMN``.
        users: How many there must be.
    """
    file, _, column = (place, "", None) if ":" not in place or os.path.exists(place) else place.rpartition(":")
    path = Path(file)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the {name} in {path}: {error}") from None
    if not rows:
        raise DataError(f"{path} holds no {name}: expected one row per user")
    texts = _column(path, rows, column)
    if len(texts) != users:
        raise ParameterError(f"users must equal the {len(texts)} {name} in {path}, got {users}")
    try:
        return positive_array(name, [float(text) for text in texts])
    except ValueError as error:
        raise ParameterError(f"in {path}: {error}") from None


def _column(path: Path, rows: list[list[str]], column: str | None) -> list[str]:
    if column is None:
        texts = [row[0] for row in rows]
        try:
            float(texts[0])
        except ValueError:
            return texts[1:]  # below a header
        return texts
    if column not in rows[0]:
        raise DataError(f"{path} has no column {column!r}; its columns are {', '.join(rows[0])}")
    place = rows[0].index(column)
    short = [number for number, row in enumerate(rows, start=1) if len(row) <= place]
    if short:
        raise DataError(f"{path} row {short[0]} has no entry in column {column!r}")
    return [row[place] for row in rows[1:]]
