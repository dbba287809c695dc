"""Processes that outlive the command that started them: known by number and start time, stopped by it too."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from apes.errors import DataError
from apes.storage.files import write_bytes

_SECONDS_TO_STOP = 15.0


@dataclass(frozen=True)
class Started:
    """A process; its start time tells it from another that got the same number later."""

    pid: int
    began: str

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; one that was gone before its start time could be read does not."""
        return self.began != "" and _began(self.pid) == self.began


class Processes:
    """The processes of a trial, remembered in a file.

    Args:
        file: Where they are remembered.
        logs: Folder for their output.
    """

    def __init__(self, file: Path, logs: Path) -> None:
        self._file, self._logs = file, logs
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, script: Path) -> Started:
        """Start a script in its own session; its output is appended to its log."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as output:
            child = subprocess.Popen(
                [str(script)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                start_new_session=True,
            )
        self._children[name] = child
        started = Started(child.pid, _began(child.pid))
        self._remember({**self.all(), name: started})
        return started

    def adopt(self, name: str, *words: str) -> None:
        """Remember processes that others started: those whose command lines have all these words."""
        answer = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=False)
        lines = [line.split(maxsplit=1) for line in answer.stdout.splitlines()]
        found = [int(line[0]) for line in lines if all(word in line[-1] for word in words)]
        for count, pid in enumerate(found, 1):
            self._remember({**self.all(), f"{name}-{count:04d}": Started(pid, _began(pid))})

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self._logs / f"{name}.log"

    def all(self) -> dict[str, Started]:
        """Every process that was started and not stopped since."""
        if not self._file.exists():
            return {}
        try:
            return {name: Started(**entry) for name, entry in json.loads(self._file.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{self._file} is damaged ({error}); stop the processes by hand and remove it") from None

    def is_alive(self, name: str) -> bool:
        """Whether a process runs; of one that does not, nothing remains that its own children could take for it."""
        started = self.all().get(name)
        if started is not None and started.is_alive:
            return True
        self._reap(name, wait=True)
        return False

    def stop(self, names: list[str], how: signal.Signals = signal.SIGTERM) -> None:
        """Stop processes and everything they started; what does not go is killed."""
        everything = self.all()
        targets = {name: everything[name] for name in names if name in everything}
        living = [started.pid for started in targets.values() if started.is_alive]
        family = [Started(pid, _began(pid)) for pid in _descendants(living)]
        for pid in living:
            _signal(pid, how)
        end = time.monotonic() + _SECONDS_TO_STOP
        members = [*targets.values(), *family]
        while any(member.is_alive for member in members) and time.monotonic() < end:
            for name in targets:
                self._reap(name)
            time.sleep(0.05)
        for member in members:
            if member.is_alive:
                _signal(member.pid, signal.SIGKILL)
        for name in targets:
            self._reap(name, wait=True)
        self._remember({name: started for name, started in self.all().items() if name not in targets})

    def _reap(self, name: str, *, wait: bool = False) -> None:
        child = self._children.get(name)
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5 if wait else 0)

    def _remember(self, processes: dict[str, Started]) -> None:
        entries = {name: asdict(started) for name, started in processes.items()}
        write_bytes(self._file, json.dumps(entries, indent=1).encode())


def environment(**further: str) -> dict[str, str]:
    """The environment of a child: this Python's programs come first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, **further}


def _began(pid: int) -> str:
    """When a process began, as text; empty if there is none, or only its remains."""
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, began = answer.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


def _descendants(pids: list[int]) -> list[int]:
    answer = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in answer.stdout.splitlines())}
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {*pids, *found} and pid not in found}:
        found |= more
    return sorted(found)


def _signal(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
