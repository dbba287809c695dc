"""Messages of the library in terms of options: which words are parameters, and which are left as they are."""

from pathlib import Path
from typing import Annotated

import pytest
import typer

from apes.cli.option_names import in_options, option_names


def command(
    folder: Annotated[Path, typer.Argument(help="A folder.")],
    user_column: Annotated[str | None, typer.Option(help="A column.")] = None,
    budget_column: Annotated[str | None, typer.Option(help="A column.")] = None,
    budgets: Annotated[str, typer.Option(help="A law.")] = "uniform2",
    plan_file: Annotated[Path | None, typer.Option("--plan", help="A file.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON.")] = False,
) -> None:
    """A command."""


NAMES = option_names(command)


def test_how_parameters_are_given():
    # The library says `plan` of what the command calls plan_file, `processes` of workers, `budget` of a table's column.
    assert NAMES == {
        "folder": "FOLDER",
        "user_column": "--user-column",
        "budget_column": "--budget-column",
        "budgets": "--budgets",
        "plan_file": "--plan",
        "plan": "--plan",
        "workers": "--workers",
        "as_json": "--json",
        "json": "--json",
        "processes": "--workers",
        "user": "--user-column",
        "budget": "--budget-column",
    }


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("budgets must be in (0, inf), got -1.0", "--budgets must be in (0, inf), got -1.0"),
        ("budgets[3] must be in (0, inf), got nan", "--budgets[3] must be in (0, inf), got nan"),
        ("folder must be new, got 'budgets'", "FOLDER must be new, got 'budgets'"),
        ("processes must be in [1, inf), got 0", "--workers must be in [1, inf), got 0"),
        ("budget_column or budgets must be given", "--budget-column or --budgets must be given"),
        ("user, label and budget must differ", "--user-column, label and --budget-column must differ"),
        ("a plan that leaves budget_column out", "a plan that leaves --budget-column out"),
        ("it needs a law (budgets), or fewer budgets", "it needs a law (--budgets), or fewer budgets"),
        # Another's, of which there is no option here.
        ("clip_norm must be larger, got 1", "clip_norm must be larger, got 1"),
        # Words of a sentence, and what somebody wrote.
        ("the budgets must be larger", "the budgets must be larger"),
        ("people (data or budgets) are others", "people (data or budgets) are others"),
        ("there is no column 'user_column'", "there is no column 'user_column'"),
        ("no file here/user_column.csv", "no file here/user_column.csv"),
        ("no file user_column.csv", "no file user_column.csv"),
    ],
)
def test_what_is_a_parameter_and_what_is_not(message, said):
    assert in_options(message, NAMES) == said


def test_without_options_a_message_stays_as_it_is():
    assert in_options("budgets must be larger; see budget_column", {}) == "budgets must be larger; see budget_column"
