"""The table of commands: what it says before one is loaded is what the command says then; and what an account says."""

import inspect
import json

import pytest
import typer
from typer.testing import CliRunner

from apes.accounting.words import downwards, upwards
from apes.cli.main import GROUPS, app
from apes.errors import ParameterError

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


def test_no_command_is_left_out():
    for group, (of_group, rows) in GROUPS.items():
        names = [name for name, _, _ in rows]
        said = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*group.split(), "--help"]).output
        assert list(typer.main.get_group(of_group).commands)[: len(names)] == names
        assert all(f" {name} " in said for name in names)


ASKED = ["account", "--users", "40", "--dimensions", "3", "--rounds", "2", "--budgets", "uniform2", "--norm", "1"]


def account(*more):
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [*ASKED, *more])
    assert done.exit_code == 0, done.output
    return done.stdout


def certified(*more):
    return json.loads(account(*more, "--json"))["certified"]


def question(monkeypatch, *more):
    """What the accountant is asked, as text."""
    asked = []

    def no_account(question, show):
        asked.append(question)
        raise ParameterError("this is enough")

    with monkeypatch.context() as patch:
        patch.setattr("apes.accounting.account.account", no_account)
        done = CliRunner().invoke(app, [*more])
    assert "this is enough" in done.stderr
    exposure = asked[0].exposure
    names = ("dimensions", "levels", "clip", "norm", "sparsifier", "charged", "top_b_first")
    of_round = [getattr(exposure, name) for name in names]
    rest = [asked[0].rounds, asked[0].delta, asked[0].delta_s, asked[0].colluders]
    return repr([exposure.budgets.tolist(), *of_round, *rest])


def test_every_option_of_an_account_changes_what_is_asked(monkeypatch):
    for plain, options in {
        "--framework apes --norm 1 --clip 0.5": {
            "--users": "50",
            "--budgets": "uniform1",
            "--dimensions": "40",
            "--rounds": "3",
            "--delta": "1e-3",
            "--norm": "0.05",
            "--clip": "0.9",
            "--cap": "0.3",
            "--delta-s": "1e-3",
            "--colluders": "20",
            "--seed": "2",
        },
        "--framework apes": {"--levels": "4", "--target-epsilon": "2", "--preset": "paper"},
        "--framework s-apes --sparsifier random-b": {"--sparsifier": "top-b-first", "--keep": "0.34"},
        "--framework s-apes-first": {"--keep": "0.34", "--framework": "apes"},
    }.items():
        asked = ["account", "--users", "40", *plain.split()]
        for option, value in options.items():
            more = question(monkeypatch, *asked, option, value)
            assert more != question(monkeypatch, *asked), (plain, option)


def test_an_account_says_at_which_delta_its_figures_hold():
    facts = certified("--delta", "1e-4", "--delta-s", "1e-7")
    assert facts["round"]["delta"] == facts["total"]["delta"] == 1e-4
    assert 0 < facts["dimension"]["delta"] < 1e-7


def test_an_account_for_people_says_no_less_than_is_proved_and_no_more_than_is_forced():
    facts = json.loads(account("--json"))
    rows = [
        [cell.strip() for cell in line.split("\u2502")[1:-1]] for line in account().splitlines() if "\u2502" in line
    ]
    named = {row[0]: row[1:] for row in rows}
    for name, what in (("round", "one round"), ("total", "all 2 rounds")):
        proved, _, below = named[what]
        assert proved == upwards(facts["certified"][name]["epsilon"])
        assert below == downwards(facts["lower"][name])
    assert named["certified"] == [upwards(facts["certified"]["dimension"]["epsilon"]), "proved"]
    for group in facts["personal"]:
        assert named[f"{group['budget']:.4g}"] == [str(group["users"]), upwards(group["epsilon"])]


@pytest.mark.parametrize("asked", [["--framework", "s-apes"], ["--framework", "unis"], ["--framework", "non-private"]])
def test_nothing_is_accounted_that_no_theorem_covers(asked):
    done = CliRunner().invoke(app, ["account", "--users", "40", *asked])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "framework must be one with a certificate" in done.stderr
