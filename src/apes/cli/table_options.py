"""Options of commands that train on an own table."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

from apes.cli.options import option
from apes.terms.own_table import OwnTable
from apes.terms.simulation import Simulation

_HELP = {
    "user_column": "Own table: column of user ids.",
    "label_column": "Own table: column that is learned.",
    "budget_column": "Own table: column of the budgets that people chose, numbers or names of levels.",
    "budget_levels": "Own table: low=0.1,high=1: the budget of every level, where the column has names.",
    "bounds": "Own table: public bounds of columns, LOW:HIGH for all, NAME=LOW:HIGH for one, separated by commas; or "
    "file:PATH, a table of column, low, high. Numbers are scaled by these, never by statistics of the data, which "
    "would not be private; what lies outside is clipped.",
    "categories": "Own table: city=A|B|C,...: all values of columns of texts.",
    "classes": "Own table: a,b,c: names of all classes (default: those in the table, taken as public).",
    "task": "Own table: classification, or regression for real-valued labels (squared loss).",
    "ignore": "Own table: a,b: columns that are left out.",
    "max_rows": "Own table: of a person's rows the first so many are taken.",
    "test_share": "Own table: share of the people whose rows judge the model and train nothing.",
}
_SHARED = {field.name for field in fields(Simulation)}
TABLE_FIELDS: dict[str, Field[Any]] = {field.name: field for field in fields(OwnTable) if field.name not in _SHARED}


def with_table_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, beside what `with_choices` gives it, one option for each field of a table."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())

    def run(choices: dict[str, Any], **given: Any) -> None:
        table = {name: given.pop(name) for name in TABLE_FIELDS}
        command(choices=choices | {name: value for name, value in table.items() if value is not None}, **given)

    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters = [*own, *(option(field, _HELP[field.name]) for field in TABLE_FIELDS.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by with_choices
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run
