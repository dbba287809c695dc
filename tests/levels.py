"""The four levels of a test, and the guard that keeps unit tests to one process without sockets.

=========== ================================================================================================
unit        One process, no socket, small sizes. The default: a test without a mark is a unit test.
service     Shuffler, vault and analyzer in one process, over an in-process transport or the loopback address.
process     Real processes: TLS, accounts, kills, PostgreSQL, a browser, Dask, Ray.
exhaustive  Large grids, enumerations, statistical tests of high power, timing side channels.
=========== ================================================================================================

``make quick`` runs unit; ``make test`` runs unit, service and process; ``make exhaustive`` runs the rest.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

LEVELS = ("unit", "service", "process", "exhaustive")
DEFAULT = "unit,service,process"


def level_of(item: pytest.Item) -> str:
    """The level of a test. A mark of the case comes before one of the function, and that before one of the file."""
    own = [mark.name for mark in item.own_markers if mark.name in LEVELS]
    if own:
        # pytest lists the marks of the function first, then those of the case.
        return own[-1]
    return next((mark.name for mark in item.iter_markers() if mark.name in LEVELS), "unit")


_FILE_MARK = re.compile(r"^pytestmark = .*?pytest\.mark\.(unit|service|process|exhaustive)\b", re.MULTILINE)
_ANY_MARK = re.compile(r"pytest\.mark\.(unit|service|process|exhaustive)\b")


def can_be_left_out(path: Path, asked: Sequence[str]) -> bool:
    """Whether the text of a file shows that none of its tests has a level that is asked for.

    Such a file need not be imported. A file without a mark for all of its tests may always have unit tests.
    """
    text = path.read_text(encoding="utf-8")
    if not _FILE_MARK.search(text):
        return False
    levels = set(_ANY_MARK.findall(text))
    if "sampled(" in text:
        levels.add("exhaustive")
    return levels.isdisjoint(asked)


def parse(text: str) -> tuple[str, ...]:
    """The levels that the option ``--levels`` names."""
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in LEVELS]
    if unknown:
        raise pytest.UsageError(f"--levels takes {', '.join(LEVELS)}, separated by commas; got {', '.join(unknown)}")
    return names


def sampled(cases: Sequence[Any], keep: int) -> list[Any]:
    """All cases of a large grid: ``keep`` of them as they are, the others marked *exhaustive*.

    Those that keep the level of the test are spread evenly over the grid, with the first and the last case.
    """
    last = len(cases) - 1
    kept = {round(step * last / max(keep - 1, 1)) for step in range(keep)}
    return [case if number in kept else _exhaustive(case) for number, case in enumerate(cases)]


def _exhaustive(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.exhaustive], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)


class NotAUnitTest(BaseException):
    """A unit test started a process or used a socket.

    No ordinary exception: the code under test might catch one and go on.
    """


# Names of Python's audit events.
_FORBIDDEN = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "socket.bind",
}


class _Guard:
    """Hears of every audit event, and refuses the forbidden ones while a unit test runs."""

    def __init__(self) -> None:
        self.is_installed = False
        self.level: str | None = None  # of the test that runs now

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.level == "unit" and event in _FORBIDDEN:
            what = f"{event} {arguments[:2]}"
            raise NotAUnitTest(f"a unit test may not leave its process, got {what}: mark it service or process")


_guard = _Guard()


def begin_test(item: pytest.Item) -> None:
    """From here on, refuse what the level of this test does not allow."""
    if not _guard.is_installed:
        # A hook stays for as long as the process runs.
        sys.addaudithook(_guard)
        _guard.is_installed = True
    _guard.level = level_of(item)


def end_test() -> None:
    """From here on, refuse nothing."""
    _guard.level = None
