"""The table of commands: what it says before a command is loaded is what the command says then."""

import inspect

import pytest
import typer
from typer.testing import CliRunner

from apes.cli.main import GROUPS, app

ROWS = [(group, *row) for group, (_, rows) in GROUPS.items() for row in rows]
NAMES = [f"{group} {name}".strip() for group, name, _, _ in ROWS]


def command(group, name):
    """A command as it is listed."""
    return typer.main.get_group(GROUPS[group][0]).commands[name]


@pytest.mark.parametrize(("group", "name", "place", "line"), ROWS, ids=NAMES)
def test_the_line_is_the_commands_own(group, name, place, line):
    listed = command(group, name)
    own = listed.loaded()
    assert own.name == name
    assert inspect.cleandoc(own.help).split("\n\n")[0].replace("\n", " ") == line == listed.help
    assert place.endswith(f":{name}_command")


@pytest.mark.parametrize(("group", "name"), [row[:2] for row in ROWS], ids=NAMES)
def test_what_is_called_is_the_command_with_its_options(group, name):
    own = command(group, name).loaded()
    said = CliRunner(env={"COLUMNS": "400"}).invoke(app, [*group.split(), name, "--help"])
    assert said.exit_code == 0
    for parameter in own.params:
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert option in said.output


def test_a_command_that_is_nearly_right_is_named():
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["trian"])
    assert said.exit_code == 2
    assert "Did you mean 'train'?" in said.output
