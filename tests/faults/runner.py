"""Runs tests on a copy of the checkout that has a fault, and says whether they notice."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.fault import ROOT, Fault

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "runs", "dist", "_build", ".mypy_cache", ".ruff_cache", ".hypothesis"
)
# Exit codes of pytest.
_ALL_PASSED, _SOME_FAILED = 0, 1
# Ours, where pytest did not end in time.
_HUNG = -1


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    fault: Fault
    verdict: str  # caught, survived, hung or broken
    by: str  # the first test that failed, or what went wrong
    seconds: float


@contextmanager
def faulty_checkout(fault: Fault | None) -> Iterator[Path]:
    """A copy of the checkout with the fault in it, or without any."""
    with TemporaryDirectory(prefix="apes-fault-") as folder:
        # With the compiled loops, whose cache goes by the time of each file: a changed file is compiled again.
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT, symlinks=True)
        if fault is not None:
            fault.apply(copy)
            if _is_compiled(copy / fault.file):
                _forget_compiled_loops(copy)
        yield copy


def tests_without_a_fault(faults: Sequence[Fault], seconds: float) -> str | None:
    """Run the tests that the faults name on an unchanged copy, and return what failed: it would notice anything."""
    nodes = sorted({node for fault in faults for node in fault.caught_by})
    levels = ",".join(sorted({fault.level for fault in faults}))
    with faulty_checkout(None) as checkout:
        code, output = _pytest(checkout, ["--levels", levels, *nodes], seconds)
    verdict, by = _verdict(code, output)
    return None if verdict == "survived" else f"{verdict}: {by}"


def run_fault(fault: Fault, level: str | None, seconds: float) -> Outcome:
    """Run the tests that have to notice; with a ``level``, all tests of that level instead."""
    began = time.monotonic()
    chosen = ["--levels", level] if level is not None else ["--levels", fault.level, *fault.caught_by]
    with faulty_checkout(fault) as checkout:
        code, output = _pytest(checkout, chosen, seconds)
    return Outcome(fault, *_verdict(code, output), time.monotonic() - began)


def _pytest(checkout: Path, arguments: list[str], seconds: float) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", *arguments]
    paths = os.pathsep.join([str(checkout / "src"), str(checkout)])
    environment = {**os.environ, "PYTHONPATH": paths}
    # The copy has the compiled sources that the checkout has.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("APES_MNIST_DIR", str(ROOT.parent / "shared" / "data" / "mnist"))
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return _HUNG, f"pytest did not end within {seconds:g} seconds"
    return done.returncode, done.stdout + done.stderr


def _verdict(code: int, output: str) -> tuple[str, str]:
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if code == _ALL_PASSED:
        return "survived", lines[-1] if lines else ""
    if code == _SOME_FAILED and failed:
        return "caught", failed[0].split(" ", 1)[1].split(" - ")[0]
    # A slow machine is no proof that a test noticed, nor is a file that cannot be imported.
    return "hung" if code == _HUNG else "broken", " | ".join(lines[-3:])


def _is_compiled(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(word in text for word in ("@compiled", "@inlined", "compiled("))


def _forget_compiled_loops(checkout: Path) -> None:
    """A compiled loop keeps what it called in other files: all are compiled again."""
    for pattern in ("*.nbi", "*.nbc"):
        for cached in checkout.rglob(pattern):
            cached.unlink()
