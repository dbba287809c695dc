"""Runs tests on a copy of the checkout that has a fault, and says whether they notice."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.faults.fault import ROOT, Fault

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "runs", "dist", "_build", ".mypy_cache", ".ruff_cache", ".hypothesis"
)
# Exit codes of pytest.
_ALL_PASSED, _SOME_FAILED = 0, 1
# Our own exit code for a pytest that did not end in time.
_HUNG = -1


@dataclass(frozen=True)
class Outcome:
    """Whether the tests noticed a fault.

    Attributes:
        fault: The fault that was tried.
        verdict: ``caught``: a test failed. ``survived``: all passed. ``hung``: pytest did not end in time.
            ``broken``: pytest could not run the tests.
        by: The first test that failed; otherwise the last lines of what pytest printed.
        seconds: How long it took.
    """

    fault: Fault
    verdict: str
    by: str
    seconds: float


class Copies:
    """Copies of the checkout, one per job. A copy is used for one fault after another.

    Making a copy takes longer than many tests do. So only what a fault changed is put back after it.
    """

    def __init__(self, count: int) -> None:
        self._folder = TemporaryDirectory(prefix="apes-faults-")
        self._count = count
        self._made = 0
        self._free: SimpleQueue[Path] = SimpleQueue()
        for _ in range(count):
            self._free.put(self._new())

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def run(self, fault: Fault, level: str | None, seconds: float) -> Outcome:
        """Run the tests that the fault names or, with a ``level``, all tests of that level."""
        began = time.monotonic()
        chosen = ["--levels", level] if level is not None else ["--levels", fault.level, *fault.caught_by]
        copy = self._free.get()
        try:
            with faulty(copy, fault):
                code, output = _pytest(copy, chosen, seconds)
            if code == _HUNG:
                # Processes that the tests started may still write into it.
                copy = self._new()
        finally:
            self._free.put(copy)
        return Outcome(fault, *_verdict(code, output), time.monotonic() - began)

    def failure_without_fault(self, faults: Sequence[Fault], seconds: float) -> str | None:
        """Run all tests that these faults name on an unchanged copy, and return what failed, or None.

        A test that fails without a fault would count as one that notices every fault.
        """
        nodes = sorted({node for fault in faults for node in fault.caught_by})
        levels = ",".join(sorted({fault.level for fault in faults}))
        copy = self._free.get()
        try:
            at_once = ["-n", str(self._count), "--dist", "loadfile"]
            code, output = _pytest(copy, [*at_once, "--levels", levels, *nodes], seconds)
        finally:
            self._free.put(copy)
        verdict, by = _verdict(code, output)
        return None if verdict == "survived" else f"{verdict}: {by}"

    def _new(self) -> Path:
        self._made += 1
        copy = Path(self._folder.name) / f"checkout-{self._made}"
        # With the cache of compiled loops: numba takes a cached loop if its file has the same time of change.
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT, symlinks=True)
        return copy


@contextmanager
def faulty(copy: Path, fault: Fault) -> Iterator[None]:
    """Put a fault into a copy of the checkout, and afterwards put back what was there."""
    folders = [(copy / file).parent / "__pycache__" for file in _recompiled_with(copy, fault.file)]
    names = [Path(file).stem for file in _recompiled_with(copy, fault.file)]

    def compiled() -> list[Path]:
        found = (path for folder, name in zip(folders, names, strict=True) for path in folder.glob(f"{name}.*"))
        return [path for path in found if path.suffix in (".nbi", ".nbc", ".pyc")]

    kept = {path: (path.read_bytes(), path.stat()) for path in (copy / fault.file, *compiled())}
    try:
        fault.apply(copy)
        for path in compiled():
            path.unlink()
        yield
    finally:
        for path in compiled():
            path.unlink()
        for path, (content, found) in kept.items():
            path.write_bytes(content)
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _recompiled_with(copy: Path, file: str) -> list[str]:
    """The file, and every file whose compiled loops contain code of it.

    A compiled loop contains the loops that it calls in other files, as they were when it was compiled.
    """
    if not _is_compiled(copy / file):
        return [file]
    sources = {path.relative_to(copy).as_posix(): path for path in (copy / "src").rglob("*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in sources.items() if _is_compiled(path)}
    found = [file]
    for changed in found:
        module = changed.removeprefix("src/").removesuffix(".py").replace("/", ".")
        imports = re.compile(rf"^(from|import) {re.escape(module)}\b", re.MULTILINE)
        found += [name for name, text in texts.items() if name not in found and imports.search(text)]
    return found


def _is_compiled(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(word in text for word in ("@compiled", "@inlined", "compiled("))


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
    # Neither a slow machine nor a file that cannot be imported shows that a test noticed the fault.
    return "hung" if code == _HUNG else "broken", " | ".join(lines[-3:])
