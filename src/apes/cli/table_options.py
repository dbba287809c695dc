"""Options of commands that train on an own table; a test holds them against the fields of one."""

import inspect
from collections.abc import Callable
from typing import Any

from apes.cli.options import Choice, option

# fmt: off
TABLE_CHOICES: dict[str, Choice] = {
    "user_column": Choice(str, "Own table: column of user ids."),
    "label_column": Choice(str, "Own table: column that is learned."),
    "budget_column": Choice(str, "Own table: column of the budgets that people chose, numbers or names of levels."),
    "budget_levels": Choice(str, "Own table: low=0.1,high=1: the budget of every level, where the column has names."),
    "bounds": Choice(str, "Own table: public bounds of columns, LOW:HIGH for all, NAME=LOW:HIGH for one, separated by "
                     "commas; or file:PATH, a table of column, low, high. Numbers are scaled by these, never by "
                     "statistics of the data, which would not be private; what lies outside is clipped. Every column "
                     "of numbers needs some."),
    "bounds_from_data": Choice(bool, "Own table: take the least and the largest value in the table where a column has "
                               "no bounds. No guarantee covers what these tell, and the result says so.", False),
    "categories": Choice(str, "Own table: city=A|B|C,...: all values of columns of texts."),
    "classes": Choice(str, "Own table: a,b,c: names of all classes (default: those in the table, taken as public)."),
    "task": Choice(str, "Own table: classification, or regression for real-valued labels (squared loss).",
                   "classification"),
    "ignore": Choice(str, "Own table: a,b: columns that are left out."),
    "max_rows": Choice(int, "Own table: of a person's rows the first so many are taken.", 64),
    "test_share": Choice(float, "Own table: share of the people whose rows judge the model and train nothing.", 0.2),
}
# fmt: on


def with_table_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, beside what `with_choices` gives it, one option for each choice of a table."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())

    def run(choices: dict[str, Any], **given: Any) -> None:
        table = {name: given.pop(name) for name in TABLE_CHOICES}
        command(choices=choices | {name: value for name, value in table.items() if value is not None}, **given)

    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters = [*own, *(option(name, choice) for name, choice in TABLE_CHOICES.items())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by with_choices
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run
