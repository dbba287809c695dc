"""Every command can be asked for help where there is no Unix: what only that has is imported by what needs it.

There is no Windows here: its absences are played by modules and functions that are taken away, in a new interpreter.
"""

import subprocess
import sys

import pytest

from apes.cli.main import GROUPS

UNIX_ALONE = ("fcntl", "grp", "pwd", "resource", "termios")
HIDE = f"""
import os, signal, socket, sys
for name in {UNIX_ALONE!r}:
    sys.modules[name] = None
for name in ("getuid", "geteuid", "getgrouplist", "chown", "fork", "fchmod"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGXFSZ"):
    delattr(signal, name)
del socket.AF_UNIX
"""
pytestmark = pytest.mark.process
MODULES = sorted({place.partition(":")[0] for _, rows in GROUPS.values() for _, place, _ in rows})
# What trains, plans, accounts and predicts, beside the commands; federations are for Unix.
WORK = ("train", "predictions", "choices", "plots", "subjects")


def python(code):
    return subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True)


@pytest.mark.parametrize("modules", [MODULES, WORK], ids=["commands", "their work"])
def test_modules_are_imported_without_unix(modules):
    done = python("import importlib\n" + "\n".join(f"importlib.import_module('apes.cli.{name}')" for name in modules))
    assert done.returncode == 0, done.stderr


def test_what_is_hidden_is_missed():
    done = python("import resource")
    assert (done.returncode, "ModuleNotFoundError" in done.stderr) == (1, True)


def test_what_needs_unix_says_so(tmp_path):
    """A vault's ledger is locked by fcntl; one line says that there is none."""
    (tmp_path / "device").mkdir()
    code = f"sys.argv = ['apes', 'federation', 'join', {str(tmp_path / 'new')!r}, '--invitation', 'x', '--data', 'y']\n"
    done = python(code + "from apes.cli.main import main\nmain()")
    assert done.returncode == 2
    assert done.stderr.startswith("apes: ")
    assert done.stderr.count("\n") == 1


def test_a_model_is_trained_without_unix(tmp_path):
    words = f"train --users 60 --rounds 1 --features pixels --preset paper --out {tmp_path / 'run'} --json".split()
    done = python(f"sys.argv = ['apes', *{words!r}]\nfrom apes.cli.main import main\nmain()")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.npz").exists()
