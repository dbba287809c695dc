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
    """The level of a test: of its case's mark, else of its own, else of its file's; unit without one."""
    own = [mark.name for mark in item.own_markers if mark.name in LEVELS]
    if own:
        # A function's marks come first, those of its parameters after them.
        return own[-1]
    return next((mark.name for mark in item.iter_markers() if mark.name in LEVELS), "unit")


_FILE_MARK = re.compile(r"^pytestmark = .*?pytest\.mark\.(unit|service|process|exhaustive)\b", re.MULTILINE)
_ANY_MARK = re.compile(r"pytest\.mark\.(unit|service|process|exhaustive)\b|\b(sampled)\(")


def has_none_of(path: Path, asked: Sequence[str]) -> bool:
    """Whether a file of tests says in its text that none of its tests is of these levels: it need not be imported.

    Only a file with a mark for all of its tests says so: without one, a test is a unit test.
    """
    text = path.read_text(encoding="utf-8")
    if not _FILE_MARK.search(text):
        return False
    named = {level or "exhaustive" for level, _ in _ANY_MARK.findall(text)}
    return named.isdisjoint(asked)


def parse(text: str) -> tuple[str, ...]:
    """The levels that the option ``--levels`` names."""
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in LEVELS]
    if unknown:
        raise pytest.UsageError(f"--levels takes {', '.join(LEVELS)}, separated by commas; got {', '.join(unknown)}")
    return names


def sampled(cases: Sequence[Any], keep: int) -> list[Any]:
    """The cases of a large grid: ``keep`` of them at the test's own level, the others at the level *exhaustive*.

    Those that stay are spread evenly over the grid, its first and last among them.
    """
    last = len(cases) - 1
    stay = {round(step * last / max(keep - 1, 1)) for step in range(keep)}
    return [case if number in stay else _exhaustive(case) for number, case in enumerate(cases)]


def _exhaustive(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.exhaustive], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)


class NotAUnitTest(BaseException):
    """A unit test left its process; a BaseException, so that no code under test takes it for an error of its own."""


_FORBIDDEN = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "socket.bind",
}
_running: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN and _running and _running[-1] == "unit":
        what = f"{event} {arguments[:2]}"
        raise NotAUnitTest(f"a unit test may not leave its process, got {what}: mark it service or process")


def watch(item: pytest.Item) -> None:
    """From here on, refuse what the level of this test does not allow."""
    if not _running:
        sys.addaudithook(_audit)
        _running.append("")
    _running[-1] = level_of(item)


def stop_watching() -> None:
    """What runs now belongs to no test."""
    if _running:
        _running[-1] = ""
