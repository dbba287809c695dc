"""A device's own table, read as the terms say: the same columns, bounds, categories and classes for everybody."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import positive
from apes.data.table.chunk import Chunk, Progress, Table, check_columns
from apes.data.table.opening import Source, open_table
from apes.data.table.people_rows import TableFacts, read_people_of
from apes.data.table.reading import Reading
from apes.data.table.schema import Schema
from apes.errors import ParameterError

# No column of a table has this name.
_NOBODY = ""


@dataclass(frozen=True)
class Whose:
    """Whose rows they are, and which budgets those people chose: what the device's owner says of the table.

    Attributes:
        user_column: Column of user ids; None if all rows are one person's.
        budget_column: Column of local budgets, numbers or, where the terms have levels, their names.
        budget: The local budget of everybody in the table, in (0, inf), where there is no such column.
    """

    user_column: str | None = None
    budget_column: str | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.budget_column is None):
            got = "none" if self.budget is None else f"{self.budget_column!r} and {self.budget!r}"
            raise ParameterError(f"budget_column or budget must be given, one of them; got {got}")
        if self.budget is not None:
            positive("budget", self.budget)


def read_own_table(
    source: Source, schema: Schema, whose: Whose, progress: Progress | None = None
) -> tuple[dict[str, NDArray[Any]], TableFacts]:
    """Rows of a vault's users, person after person, encoded by the schema; and what was read, for their owner.

    Columns that are neither in the schema nor named by the owner are not looked at; their order does not matter.
    """
    table, reading = open_table(source), _reading(schema, whose)
    rows = read_people_of(_Arranged(table, schema, reading), reading, progress)
    # The same bytes mean the same everywhere: whatever was left out here would be another encoding.
    own = replace(rows.schema, budget_levels=schema.budget_levels, bounds_from_data=schema.bounds_from_data)
    if own != schema:
        raise ParameterError(f"{table.title} must be read by the schema of the terms, which it does not fit")
    budgets = np.full(rows.names.size, whose.budget) if rows.budgets is None else rows.budgets
    arrays = {"features": rows.features, "labels": rows.labels, "offsets": rows.offsets, "budgets": budgets}
    return arrays, rows.facts


def _reading(schema: Schema, whose: Whose) -> Reading:
    """How a table of this schema is read; nobody of a device's users judges the model."""
    numbers = [*schema.columns.numbers, *([] if schema.target is None else [schema.target])]
    return Reading(
        _NOBODY if whose.user_column is None else whose.user_column,
        schema.label,
        whose.budget_column,
        {} if whose.budget_column is None else dict(schema.budget_levels),
        {column.name: (column.low, column.high) for column in numbers},
        {column.name: column.values for column in schema.columns.categories},
        schema.classes or None,
        schema.task,
        test_share=0.0,
    )


class _Arranged:
    """A table with just the columns that are asked for, in the schema's order; perhaps with one for a single person."""

    def __init__(self, table: Table, schema: Schema, reading: Reading) -> None:
        own = [name for name in (reading.user, reading.label, reading.budget) if name]
        numbers, texts = schema.columns.names
        check_columns(table, [*own, *numbers, *texts])
        self._table, self.title = table, table.title
        self.names = (*([] if reading.user else [_NOBODY]), *own, *numbers, *texts)

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order; see `Table`."""
        for chunk in self._table.chunks(numbers, [name for name in texts if name != _NOBODY], progress):
            one = {_NOBODY: ["1"] * chunk.rows} if _NOBODY in texts else {}
            yield replace(chunk, texts=chunk.texts | one)
