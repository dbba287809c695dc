"""What is asked for a word is not kept waiting: nothing heavy is loaded for it. Nothing is timed here.

Each question is put to an interpreter of its own, since this one has long loaded everything.
"""

import json
import subprocess
import sys

import pytest

from apes.cli.main import GROUPS

pytestmark = pytest.mark.process
HEAVY = {"numba", "scipy", "matplotlib", "sklearn", "pandas", "torch", "flwr"}
# One interpreter is asked one thing after another; after each, what it said and what it has loaded by then.
ASKED = """
import contextlib, io, json, sys
from apes.cli.main import main

told = []
for arguments in {asked!r}:
    sys.argv, said, code = ["apes", *arguments], io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        # The command line leaves by SystemExit.
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
    told.append([arguments, code, said.getvalue(), sorted({{name.split(".")[0] for name in sys.modules}})])
print(json.dumps(told))
"""
TELL = "\nimport json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def run(code):
    """What an interpreter of its own prints on its last line, which is JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(asked, heavy):
    """Ask for several things, each with the exit code and a word of the answer that are expected."""
    found = run(ASKED.format(asked=[words for words, _, _ in asked]))
    for (words, code, said), (again, left, printed, packages) in zip(asked, found, strict=True):
        assert words == again
        assert (left, said in printed) == (code, True), words
        # Whoever is the first to load something is the one who is named.
        assert heavy & set(packages) == set(), words


def test_the_package_alone():
    packages = set(run("import apes\ndir(apes)" + TELL))
    assert "apes" in packages
    assert packages & (HEAVY | {"numpy", "cryptography"}) == set()


def test_what_is_loaded_is_seen():
    """The test above has teeth: a name that needs more brings more."""
    assert {"numba", "scipy"} <= set(run("import apes\napes.Plan" + TELL))


def test_a_word_of_help():
    asked = [
        (["--help"], 0, "Usage"),
        (["--version"], 0, "."),
        ([], 2, "Usage"),
        (["federation", "--help"], 0, "Usage"),
        (["data"], 2, "Usage"),
        (["trian"], 2, ""),
        (["--wrong"], 2, ""),
    ]
    check(asked, HEAVY | {"numpy", "cryptography"})


def test_a_command_that_imports_its_work_when_it_runs():
    asked = [
        (["vault", "--help"], 0, "Usage"),
        (["federation", "up", "--help"], 0, "Usage"),
        (["data", "get", "--wrong"], 2, ""),
        (["account", "--users", "x"], 2, ""),
    ]
    check(asked, HEAVY)


def test_help_of_every_command():
    """Whoever asks what the options are does not wait for what trains, searches or draws."""
    names = [[*group.split(), name] for group, (_, rows) in GROUPS.items() for name, _, _ in rows]
    check([([*words, "-h"], 0, "Usage") for words in names], HEAVY)
