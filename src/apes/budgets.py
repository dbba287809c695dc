"""A population's privacy budgets: the paper's laws by name, a constant, a grid, shares, or a column of a file."""

import csv
import math
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from apes.checks import positive_array, whole
from apes.errors import DataError, ParameterError
from apes.mathematics.arrays import F64, I64

MOST_USERS = 10**8
"""Users whose budgets are held at once: 800 MB."""
PUBLIC_SEED = 1
"""Who made-up people are, where nobody says otherwise: budgets, split, test part. No noise follows from it."""
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

_FORMS = (
    f"{', '.join(LAWS)}, constant:E, grid:LOW:HIGH, shares such as 0.1:60%,0.5:30%,1:10%, file:PATH or file:PATH:COLUMN"
)
_SHARES = "shares"
# With the seed, what NumPy's generator of these laws is seeded with.
_STREAM = 4
# Shares are added up as the fractions that their texts stand for, and long texts make long fractions.
_LONGEST_SHARE = 40


def make_budgets(spec: str, users: int | None, seed: int) -> F64:
    """Return the local budgets of a population, per coordinate and round, in nats.

    Args:
        spec: A law's name (``uniform1`` .. ``mixgauss3``), ``constant:0.5``, ``grid:0.05:1`` (evenly spaced, no
            randomness), ``0.1:60%,0.5:30%,1:10%`` (so many of the users have each, in this order, no randomness),
            ``file:people.csv`` (first column) or ``file:people.csv:column``.
        users: How many budgets, in [1, 10^8]. A file must hold exactly as many; None takes all that it holds.
        seed: Seeds the laws; the others take no randomness.

    Raises:
        DataError: If a file cannot be read.

    >>> make_budgets("grid:0.5:1", 3, seed=0)
    array([0.5 , 0.75, 1.  ])
    >>> make_budgets("0.1:60%,1:40%", 5, seed=0)
    array([0.1, 0.1, 0.1, 1. , 1. ])
    """
    if users is not None:
        whole("users", users, 1, MOST_USERS)
    kind, rest, ends = check_budgets(spec)
    if kind == "file":
        return read_column("budgets", rest, users)
    if users is None:
        raise ParameterError(f"users must be given: only a file says how many there are, not {spec!r}; got none")
    if kind in LAWS:
        return LAWS[kind](_generator(seed), users)
    if kind == _SHARES:
        budgets, shares = parse_shares(spec)
        return np.repeat(budgets, users_by_share(shares, users))
    return positive_array("budgets", np.linspace(ends[0], ends[-1], users))


def _generator(seed: int) -> np.random.Generator:
    """NumPy's generator, for budgets of people who are made up: nothing of it is secret, so no secret may seed it."""
    words = np.random.SeedSequence([whole("seed", seed, 0, 2**64 - 1), 0, _STREAM, 0])
    return np.random.Generator(np.random.Philox(words))


def check_budgets(spec: str) -> tuple[str, str, list[float]]:
    """Check the form of a specification, without drawing or reading; return its kind, the rest, the numbers in it."""
    if not isinstance(spec, str):
        raise ParameterError(f"budgets must be a text here, one of {_FORMS}; got {type(spec).__name__}")
    kind, colon, rest = spec.partition(":")
    if (kind in LAWS and not colon) or (kind == "file" and rest):
        return kind, rest, []
    if "%" in spec:
        return _SHARES, spec, parse_shares(spec)[0]
    ends = rest.split(":")
    if len(ends) != {"constant": 1, "grid": 2}.get(kind):
        raise ParameterError(f"budgets must be one of {_FORMS}; got {spec!r}")
    return kind, rest, [_number(end, spec) for end in ends]


def parse_shares(spec: str) -> tuple[list[float], list[Fraction]]:
    """Different budgets, and which share of the users has each: ``0.1:60%,0.5:30%,1:10%``, 100 % in all.

    >>> parse_shares("0.1:62.5%,1:37.5%")
    ([0.1, 1.0], [Fraction(5, 8), Fraction(3, 8)])
    """
    budgets: list[float] = []
    shares: list[Fraction] = []
    for part in spec.split(","):
        budget, colon, share = (text.strip() for text in part.partition(":"))
        if not (colon and budget and share.endswith("%") and share.count("%") == 1):
            raise ParameterError(f"budgets must be shares such as 0.1:60%,0.5:30%,1:10%; got {part!r} in {spec!r}")
        budgets.append(_number(budget, spec))
        shares.append(_share(share[:-1].strip(), part))
    if len(set(budgets)) < len(budgets):
        twice = max(budgets, key=budgets.count)
        raise ParameterError(f"budgets must each have one share, got {twice:g} more than once in {spec!r}")
    if sum(shares) != 1:
        raise ParameterError(
            f"shares of budgets must add up to 100 %, got {float(100 * sum(shares)):.12g} % in {spec!r}"
        )
    return budgets, shares


def _share(text: str, part: str) -> Fraction:
    """A share in (0, 1] from a text in per cent."""
    must = f"shares of budgets must be in (0, 100] %, got {part!r}"
    try:
        if len(text) > _LONGEST_SHARE or not 1e-9 <= float(text) <= 100:
            raise ParameterError(must)
        return Fraction(text) / 100
    except ValueError:
        raise ParameterError(must) from None


def users_by_share(shares: list[Fraction], users: int) -> I64:
    """How many users have each share, all of them together: rounded down, and the largest remainders get one more.

    >>> users_by_share([Fraction(1, 3)] * 3, 10)
    array([4, 3, 3])
    """
    whole("users", users, 1)
    counts = [math.floor(share * users) for share in shares]
    # Of equal remainders the first comes first.
    by_remainder = sorted(range(len(shares)), key=lambda place: counts[place] - shares[place] * users)
    for place in by_remainder[: users - sum(counts)]:
        counts[place] += 1
    return np.array(counts, dtype=np.int64)


def spread_alike(budgets: F64, users: int) -> F64:
    """So many budgets, ascending, spread as those are: each of them by its share, as nearly as whole people can be.

    >>> spread_alike(np.array([1.0, 0.5]), 4)
    array([0.5, 0.5, 1. , 1. ])
    """
    places = (np.arange(whole("users", users, 1)) + 0.5) * (budgets.size / users)
    return np.asarray(np.sort(budgets)[np.minimum(places.astype(np.int64), budgets.size - 1)])


def _number(text: str, spec: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ParameterError(f"budgets must be one of {_FORMS}; got {spec!r}") from None
    if not (0 < number < math.inf):
        raise ParameterError(f"budgets must be in (0, inf), got {spec!r}")
    return number


def read_column(name: str, place: str, users: int | None) -> F64:
    """Read one number per user, each in (0, inf), in the order of the users.

    Args:
        name: What the numbers are, for messages.
        place: ``PATH`` of a CSV file (its first column) or ``PATH:COLUMN``.
        users: How many there must be; None for as many as there are, at least one.
    """
    file, column = _file_and_column(place)
    path = Path(file)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the {name} in {path}: {error}") from None
    if not rows:
        raise DataError(f"{path} holds no {name}: expected one row per user")
    texts = _column(path, rows, column)
    if users is None and not texts:
        raise DataError(f"{path} holds no {name}: expected one row per user")
    if users is not None and len(texts) != users:
        raise ParameterError(f"users must equal the {len(texts)} {name} in {path}, got {users}")
    try:
        return positive_array(name, [float(text) for text in texts])
    except ValueError as error:
        raise ParameterError(f"in {path}: {error}") from None


def absolute_place(spec: str) -> str:
    """A specification that names a file, with the file's whole path: good from any folder; else itself.

    >>> absolute_place("uniform2")
    'uniform2'
    """
    kind, _, place = spec.partition(":")
    if kind != "file" or not place:
        return spec
    file, column = _file_and_column(place)
    return f"file:{Path(file).resolve()}" + ("" if column is None else f":{column}")


def _file_and_column(place: str) -> tuple[str, str | None]:
    """``PATH`` or ``PATH:COLUMN``; a file of that very name comes first."""
    if ":" not in place or os.path.exists(place):
        return place, None
    file, _, column = place.rpartition(":")
    return file, column


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
