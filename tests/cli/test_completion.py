"""Completion, asked for as shells ask: by environment variables, of commands that are loaded when they are called."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from apes.cli.main import COMMANDS, OF_FEDERATION, app

RUN = "import sys; sys.argv = ['apes', *sys.argv[1:]]; from apes.cli.main import main; main()"


def asking(line):
    """What bash sets to ask about a line, whose last word is not finished."""
    return {"_APES_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}


def completed(line):
    """What bash would offer for a line."""
    done = CliRunner(env=asking(line)).invoke(app, [], prog_name="apes")
    assert done.exit_code == 0, done.output
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("apes trai", ["train"]),
        ("apes train --ta", ["--target-epsilon", "--task"]),
        ("apes train --users 5 --no", ["--normalise", "--norm"]),
        ("apes federation joi", ["join"]),
        ("apes federation init --dev", ["--devices"]),
        ("apes account --co", ["--colluders"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bash(line, offered):
    assert sorted(completed(line)) == sorted(offered)


def test_all_commands_are_offered():
    assert {name for name, _, _ in COMMANDS} <= set(completed("apes "))
    assert {name for name, _, _ in OF_FEDERATION} == set(completed("apes federation "))


def apes(*arguments, **variables):
    """The command line in a process of its own, as a shell starts it."""
    environment = dict(os.environ, **variables)
    return subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.process
def test_a_shell_asks_a_process():
    done = apes(**asking("apes train --ta"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["--target-epsilon", "--task"]


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_every_shell(shell):
    done = apes("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "_APES_COMPLETE" in done.stdout


@pytest.mark.process
def test_installing_writes_where_the_shell_looks(tmp_path):
    plain = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    done = apes("--install-completion", "bash", **plain)
    assert done.returncode == 0, done.stderr
    (script,) = [file for file in tmp_path.rglob("*apes*") if file.is_file()]
    assert "_APES_COMPLETE" in script.read_text()
    assert script.name in (tmp_path / ".bashrc").read_text()
