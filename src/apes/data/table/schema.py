"""The schema: all that is public about a table. Frozen, plain, with a digest; whoever has it encodes rows alike."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import one_of, plain_text, positive
from apes.data.table.columns import Category, Columns, Number, check_values
from apes.errors import DataError, ParameterError

CLASSIFICATION, REGRESSION = "classification", "regression"
TASKS = (CLASSIFICATION, REGRESSION)
_VERSION = 1
# Digits and sign of the smallest.
_LONGEST_INT64 = 20
_NAMES_SHOWN = 20


@dataclass(frozen=True)
class Schema:
    """How rows become features, and labels classes or targets.

    Attributes:
        columns: What is learned from.
        label: Name of the column that is learned.
        task: ``classification`` (cross-entropy) or ``regression`` (squared loss).
        classes: Names of the classes, for classification; at least two.
        target: The label's column with its bounds, for regression.
        budget_levels: Local budgets by the names that people chose among; empty if budgets are numbers or by a law.
        bounds_from_data: Names of the columns whose bounds are the least and the largest value in the data, in place of
            what everybody knows.
    """

    columns: Columns
    label: str
    task: str = CLASSIFICATION
    classes: tuple[str, ...] = ()
    target: Number | None = None
    budget_levels: tuple[tuple[str, float], ...] = ()
    bounds_from_data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        plain_text("label", self.label)
        if self.task == CLASSIFICATION:
            check_values("classes", self.classes, 2)
        if (self.target is None) == (self.task == REGRESSION):
            raise ParameterError(f"target must be given for regression and for nothing else, got {self.target!r}")
        for name, budget in self.budget_levels:
            plain_text("the name of a budget level", name)
            positive(f"budget level {name!r}", budget)
        numbers = [*self.columns.names[0], *([] if self.target is None else [self.target.name])]
        for name in self.bounds_from_data:
            if name not in numbers:
                raise ParameterError(f"bounds_from_data must be columns of numbers, got {name!r}")

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a guarantee about a model of this schema does not cover, in words."""
        made = self.bounds_from_data
        if not made:
            return ()
        more = f" and {len(made) - _NAMES_SHOWN} more columns" if len(made) > _NAMES_SHOWN else ""
        names = ", ".join(made[:_NAMES_SHOWN]) + more
        return (f"bounds of {names} were made from the data, and what they tell about people is not covered",)

    def class_values(self) -> NDArray[Any]:
        """The classes as scikit-learn has them: whole numbers if all are, and fit into 64 bits, else texts."""
        numbers = [_int64(name) for name in self.classes]
        if [str(number) for number in numbers] == list(self.classes):
            return np.array(numbers, dtype=np.int64)
        return np.array(self.classes)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: part of the terms, since rows encoded otherwise would mean something else."""
        return hashlib.sha256(json.dumps(["apes schema", self.as_dict()], sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        plain = {"version": _VERSION, **asdict(self)}
        if not self.bounds_from_data:
            # As it was before there was this field, so that digests stay what they were.
            del plain["bounds_from_data"]
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Schema":
        """The schema that was written as these plain values."""
        try:
            fields = dict(values)
            if fields.pop("version") != _VERSION:
                raise DataError(f"the schema is of version {values['version']!r}, known is {_VERSION}")
            columns = fields.pop("columns")
            numbers = tuple(Number(**column) for column in columns["numbers"])
            texts = tuple(Category(column["name"], tuple(column["values"])) for column in columns["categories"])
            fields["columns"] = Columns(numbers, texts, columns["row_norm"])
            fields["target"] = None if fields["target"] is None else Number(**fields["target"])
            fields["classes"] = tuple(fields["classes"])
            fields["budget_levels"] = tuple((name, budget) for name, budget in fields["budget_levels"])
            fields["bounds_from_data"] = tuple(fields.get("bounds_from_data", ()))
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(f"this is not the schema of a table: {error}") from None


def _int64(name: str) -> int | None:
    """The whole number that a name is, if 64 bits hold it."""
    is_number = len(name) <= _LONGEST_INT64 and name.isascii() and name.removeprefix("-").isdecimal()
    number = int(name) if is_number else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
