"""What is asked for a word is not kept waiting: nothing heavy is loaded for it. Nothing is timed here.

Each question is put to an interpreter of its own, since this one has long loaded everything.
"""

import json
import subprocess
import sys

import pytest

from apes.cli.main import GROUPS

HEAVY = {"numba", "scipy", "matplotlib", "sklearn", "pandas", "torch", "flwr"}
# The command line leaves by SystemExit; what was loaded until then is told on the last line.
OF_COMMAND = """
import sys
sys.argv = ["apes", *{arguments!r}]
try:
    from apes.cli.main import main
    main()
except SystemExit as left:
    code = left.code or 0
"""
TELL = "\nimport json, sys\nprint()\nprint(json.dumps([code, sorted({name.split('.')[0] for name in sys.modules})]))"


def after(code):
    """Exit code and packages that are loaded after some lines of Python."""
    done = subprocess.run([sys.executable, "-c", code + TELL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left, packages = json.loads(done.stdout.splitlines()[-1])
    return left, set(packages), done.stdout


def test_the_package_alone():
    _, packages, _ = after("code = 0\nimport apes\ndir(apes)")
    assert "apes" in packages
    assert packages & (HEAVY | {"numpy", "cryptography"}) == set()


def test_what_is_loaded_is_seen():
    """The test above has teeth: a name that needs more brings more."""
    _, packages, _ = after("code = 0\nimport apes\napes.Plan")
    assert {"numba", "scipy"} <= packages


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "Usage"),
        (["--version"], 0, "."),
        ([], 2, "Usage"),
        (["federation", "--help"], 0, "Usage"),
        (["data"], 2, "Usage"),
        (["trian"], 2, ""),
        (["--wrong"], 2, ""),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_word_of_help(arguments, code, said):
    left, packages, printed = after(OF_COMMAND.format(arguments=arguments))
    assert left == code
    assert said in printed
    assert packages & (HEAVY | {"numpy", "cryptography"}) == set()


@pytest.mark.parametrize(
    "arguments",
    [["vault", "--help"], ["federation", "up", "--help"], ["data", "get", "--wrong"], ["account", "--users", "x"]],
    ids=" ".join,
)
def test_a_command_that_imports_its_work_when_it_runs(arguments):
    left, packages, _ = after(OF_COMMAND.format(arguments=arguments))
    assert left == (0 if "--help" in arguments else 2)
    assert packages & HEAVY == set()


@pytest.mark.parametrize(
    "words", [[*group.split(), name] for group, (_, rows) in GROUPS.items() for name, _, _ in rows], ids=" ".join
)
def test_help_of_every_command(words):
    """Whoever asks what the options are does not wait for what trains, searches or draws."""
    left, packages, printed = after(OF_COMMAND.format(arguments=[*words, "-h"]))
    assert (left, "Usage" in printed) == (0, True)
    assert packages & HEAVY == set()
