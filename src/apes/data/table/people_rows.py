"""Rows of persons: whose each is, how many of them count, who trains and who judges."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.table.cells import Place
from apes.data.table.chunk import Progress, Table
from apes.data.table.opening import Source, open_table
from apes.data.table.reading import Reading
from apes.data.table.rows import read_rows
from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64, Bools


@dataclass(frozen=True)
class TableFacts:
    """What was read, for the experimenter. Counts and shares are of the data itself: they are not private.

    Attributes:
        rows: Rows that were taken, for training and for judging.
        left_out: Rows beyond the first ``max_rows`` of a person.
        users: People who train.
        test_users: People whose rows judge the model.
        clipped: Share of cells that lay outside the bounds, by column, where any did.
    """

    rows: int
    left_out: int
    users: int
    test_users: int
    clipped: dict[str, float]


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
    rows = read_rows(table, reading, progress)
    names, person = np.unique(np.array(rows.users, dtype=object), return_inverse=True)
    budgets = None
    if rows.budgets is not None:
        budgets = _own_budgets(rows.budgets, names, person, Place(table.title, reading.budget or ""))
    order, counts = _first_rows(person, reading.max_rows)
    is_test = _is_test(names, reading)
    judging = np.repeat(is_test, counts)
    train, test = order[~judging], order[judging]
    shares = {name: count / person.size for name, count in rows.clipped.items() if count}
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


def _first_rows(person: I64, max_rows: int) -> tuple[I64, I64]:
    """The first rows of every person, person after person in the table's order; and how many each has."""
    order, counts = np.argsort(person, kind="stable"), np.bincount(person)
    place = np.arange(person.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[place < max_rows], np.minimum(counts, max_rows)


def _own_budgets(by_row: F64, names: NDArray[Any], person: I64, place: Place) -> F64:
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


def _is_test(names: NDArray[Any], reading: Reading) -> Bools:
    """Who judges: by a keyed hash of the own id, so that it depends on nobody else's rows, nor on their order."""
    key, limit = reading.seed.to_bytes(8, "little"), reading.test_share * 2.0**64
    ids = (name.encode(errors="surrogatepass") for name in names)
    digests = (hashlib.blake2b(own, key=key, digest_size=8, person=b"apes test").digest() for own in ids)
    found = np.fromiter((int.from_bytes(digest) < limit for digest in digests), dtype=bool, count=names.size)
    if found.all():
        raise ParameterError(f"test_share must leave somebody to train, got {reading.test_share!r} of {names.size}")
    return found
