"""Completion, asked for as shells ask: by environment variables, of commands that are loaded when they are called."""

import os
import subprocess
import sys

import pytest

from apes.cli.main import COMMANDS, OF_FEDERATION

RUN = "import sys; sys.argv = ['apes']; from apes.cli.main import main; main()"


def apes(*arguments, code=RUN, **variables):
    environment = dict(os.environ, **variables)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)


def completed(line):
    """What bash would offer for a line, whose last word is not finished."""
    words = line.split(" ")
    done = apes(_APES_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert done.returncode == 0, done.stderr
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_every_shell(shell):
    show = RUN.replace("['apes']", f"['apes', '--show-completion', '{shell}']")
    done = apes(code=show, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "_APES_COMPLETE" in done.stdout


def test_installing_writes_where_the_shell_looks(tmp_path):
    install = RUN.replace("['apes']", "['apes', '--install-completion', 'bash']")
    done = apes(code=install, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (script,) = [file for file in tmp_path.rglob("*apes*") if file.is_file()]
    assert "_APES_COMPLETE" in script.read_text()
    assert script.name in (tmp_path / ".bashrc").read_text()
