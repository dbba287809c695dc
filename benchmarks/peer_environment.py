"""Environments of the peers: one folder each, made when first needed, with pinned versions."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_TORCH, _NUMPY = "torch==2.13.0", "numpy==2.4.6"
_INSTALLING_SECONDS = 900


class Environment(NamedTuple):
    """A name, and what is installed there."""

    name: str
    requirements: tuple[str, ...]


class NotInstalledError(Exception):
    """An environment could not be made; the message says why, in a line."""


FLOWER = Environment("flower", ("flwr[simulation]==1.41.0", "ray==2.55.1", _NUMPY))
PFL = Environment("pfl", ("pfl[pytorch]==0.6.0", _TORCH, _NUMPY))
TORCH = Environment("torch", (_TORCH, _NUMPY))
DP_ACCOUNTING = Environment("dp-accounting", ("dp-accounting==0.6.0", _NUMPY))


def python_of(environment: Environment, folder: Path) -> str:
    """The Python of an environment, which is made unless it is there with just these requirements.

    Raises:
        NotInstalledError: It could not be installed.
    """
    place = folder / environment.name
    python, stamp, wanted = place / "bin" / "python", place / "installed.txt", "\n".join(environment.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    _call([sys.executable, "-m", "venv", "--clear", str(place)])
    # No other torch, whoever asks for it: most builds bring gigabytes for graphics cards.
    (place / "constraints.txt").write_text(_TORCH)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    _call([*pip, "--constraint", str(place / "constraints.txt"), *environment.requirements])
    stamp.write_text(wanted)
    return str(python)


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALLING_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"not installed within {_INSTALLING_SECONDS} s") from None
    if done.returncode:
        raise NotInstalledError(f"not installed: {reason(done.stderr)}")


def reason(text: str) -> str:
    """The line of an output that says what went wrong: the last that names an error, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it does not say why"])[-1][:200]
