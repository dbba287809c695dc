"""Rows of persons: whose each is, how many of them count, who trains and who judges."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole, within
from apes.data.table.cells import Place, as_texts
from apes.data.table.chunk import Progress, Table
from apes.data.table.opening import Source, open_table
from apes.data.table.reading import Reading
from apes.data.table.rows import read_rows, with_bounds
from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64, U64, Bools


@dataclass(frozen=True)
class TableFacts:
    """What was read, for the experimenter. Counts and shares are of the data itself: they are not private.

    Attributes:
        rows: Rows that were taken, for training and for judging.
        left_out: Rows beyond the first ``max_rows`` of a person.
        users: People who train.
        test_users: People whose rows judge the model.
        clipped: Share of cells that lay outside the bounds, by column, where any did; None if nobody looked.
    """

    rows: int
    left_out: int
    users: int
    test_users: int
    clipped: dict[str, float] | None


@dataclass(frozen=True, eq=False)
class PeopleRows:
    """People of a table: their rows, person after person, in order of their ids.

    Attributes:
        schema: What is public about the table.
        facts: What was read.
        names: User ids of those who train.
        features, labels, offsets: Person u holds rows offsets[u] to offsets[u + 1].
        budgets: Of those who train, or None if the table has none.
        test_features, test_labels: Rows of those who judge.
    """

    schema: Schema
    facts: TableFacts
    names: NDArray[Any]
    features: F32
    labels: NDArray[Any]
    offsets: I64
    budgets: F64 | None
    test_features: F32
    test_labels: NDArray[Any]


def read_people(source: Source, reading: Reading, progress: Progress | None = None) -> PeopleRows:
    """Read a table of people.

    Raises:
        DataError: Where a cell is missing or cannot be read, in one line that names row and column.
        ParameterError: If a choice does not fit the table.
    """
    return read_people_of(open_table(source), reading, progress)


def read_people_of(table: Table, reading: Reading, progress: Progress | None = None) -> PeopleRows:
    """Read a table of people that is open; see `read_people`."""
    reading = with_bounds(table, reading)
    rows = read_rows(table, reading, progress)
    names, person = persons_of(rows.users)
    budgets = None
    if rows.budgets is not None:
        budgets = own_budgets(rows.budgets, names, person, Place(table.title, reading.budget or ""))
    order, counts = first_rows(person, reading.max_rows)
    is_test = judging_draws(names, reading.seed) < judging_limit(reading)
    check_training(is_test.size, int(is_test.sum()), reading)
    judging = np.repeat(is_test, counts)
    train, test = order[~judging], order[judging]
    shares = clipped_shares(rows.clipped, person.size)
    users = int((~is_test).sum())
    return PeopleRows(
        rows.schema,
        TableFacts(order.size, person.size - order.size, users, names.size - users, shares),
        names[~is_test],
        rows.features[train],
        rows.labels[train],
        np.concatenate([[0], np.cumsum(counts[~is_test])]),
        None if budgets is None else budgets[~is_test],
        rows.features[test],
        rows.labels[test],
    )


def clipped_shares(clipped: Mapping[str, int], rows: int) -> dict[str, float]:
    """Share of cells that lay outside the bounds, by column, where any did."""
    return {name: count / rows for name, count in clipped.items() if count}


def persons_of(users: Sequence[str]) -> tuple[NDArray[Any], I64]:
    """The different ids in order, and for every row the place of its own among them."""
    names = sorted(set(users))
    place = {name: at for at, name in enumerate(names)}
    return np.array(names, dtype=object), np.fromiter(map(place.__getitem__, users), dtype=np.int64, count=len(users))


def first_rows(person: I64, max_rows: int) -> tuple[I64, I64]:
    """The first rows of every person, person after person in the table's order; and how many each has."""
    order, counts = np.argsort(person, kind="stable"), np.bincount(person)
    place = np.arange(person.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[place < max_rows], np.minimum(counts, max_rows)


def own_budgets(by_row: F64, names: NDArray[Any], person: I64, place: Place) -> F64:
    """The budget of every person, who must have one."""
    first = np.unique(person, return_index=True)[1]
    own = by_row[first]
    differs = own[person] != by_row
    if differs.any():
        row = int(np.argmax(differs))
        name, earlier = names[person[row]], int(first[person[row]]) + 1
        said = f"{by_row[row]:g} for user {name!r}, who has {own[person[row]]:g} in row {earlier}"
        raise place.error(row, f"a person must have one budget, got {said}")
    return own


def judging_draws(names: NDArray[Any], seed: int) -> U64:
    """What decides who judges: a keyed hash of the own id, which nobody else's rows change, nor their order."""
    key = seed.to_bytes(8, "little")
    ids = (name.encode(errors="surrogatepass") for name in names)
    digests = (hashlib.blake2b(own, key=key, digest_size=8, person=b"apes test").digest() for own in ids)
    return np.fromiter(map(int.from_bytes, digests), dtype=np.uint64, count=names.size)


def judging_limit(reading: Reading) -> np.uint64:
    """Whose draw is below it judges."""
    return limit_of(reading.test_share)


def limit_of(test_share: float) -> np.uint64:
    """Whose draw is below it judges, at this share of the people."""
    return np.uint64(math.ceil(test_share * 2.0**64))


def who_judges(names: NDArray[Any], test_share: float, seed: int) -> Bools:
    """Which of these people judge: as of a table whose users have these ids.

    Raises:
        ParameterError: If the share is outside [0, 1), or nobody is left to train.
    """
    if not 0 <= within("test_share", test_share, 0, 1) < 1:
        raise ParameterError(f"test_share must be in [0, 1), got {test_share!r}")
    if test_share == 0:
        return np.zeros(names.size, dtype=bool)
    texts = np.array(as_texts(names, Place("users", "id")), dtype=object)
    judges = judging_draws(texts, whole("seed", seed, 0, 2**64 - 1)) < limit_of(test_share)
    if judges.all():
        raise ParameterError(f"test_share must leave somebody to train, got {test_share!r} of {names.size}")
    return judges


def check_training(people: int, judging: int, reading: Reading) -> None:
    """Raise unless somebody trains."""
    if judging == people:
        raise ParameterError(f"test_share must leave somebody to train, got {reading.test_share!r} of {people}")
