"""Processes that outlive the command that started them: known by number and start time, stopped by it too."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

import psutil

from apes.errors import DataError
from apes.storage.files import write_bytes

_SECONDS_TO_STOP = 15.0
# A start time is counted from the clock as it is set, and that may be set again in between.
_SECONDS_APART = 2.0


class Processes:
    """The processes of a trial, remembered in a file; their output goes to a folder of logs."""

    def __init__(self, file: Path, logs: Path) -> None:
        self._file, self._logs = file, logs
        self._children: list[Popen[bytes]] = []

    def start(self, name: str, script: Path) -> None:
        """Start a script in its own session; its output is appended to its log."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as output:
            child = Popen(
                [str(script)], stdin=DEVNULL, stdout=output, stderr=output, env=environment(), start_new_session=True
            )
        # Looked up before `all` may clear it away: it may have ended by now.
        process = psutil.Process(child.pid)
        self._children.append(child)
        self._remember({**self.all(), name: process})

    def adopt(self, name: str, *words: str) -> None:
        """Remember processes that others started: those whose command lines have all these words."""
        lines = [(process, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"])]
        found = [process for process, line in lines if all(word in line for word in words)]
        self._remember(self.all() | {f"{name}-{count:04d}": process for count, process in enumerate(found, 1)})

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self._logs / f"{name}.log"

    def all(self) -> dict[str, psutil.Process]:
        """Every process that was started and still runs.

        Of one that does not, nothing remains afterwards that its own children could take for it.
        """
        if not self._file.exists():
            return {}
        try:
            remembered = {name: _find(pid, began) for name, (pid, began) in json.loads(self._file.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{self._file} is damaged ({error}); stop the processes by hand and remove it") from None
        for child in self._children:
            child.poll()
        return {name: process for name, process in remembered.items() if process is not None}

    def stop(self, names: list[str]) -> None:
        """Stop processes and everything they started; what does not go is killed."""
        targets = [process for name, process in self.all().items() if name in names]
        family = targets.copy()
        for process in targets:
            with contextlib.suppress(psutil.NoSuchProcess):
                family += process.children(recursive=True)
                process.terminate()
        for process in _wait(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait(family)
        self._remember({name: process for name, process in self.all().items() if name not in names})

    def _remember(self, processes: dict[str, psutil.Process]) -> None:
        entries = {}
        for name, process in processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                entries[name] = (process.pid, process.create_time())
        write_bytes(self._file, json.dumps(entries, indent=1).encode())


def environment() -> dict[str, str]:
    """The environment of a child: this Python's programs come first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}


def is_running(process: psutil.Process) -> bool:
    """Whether a process still does anything: what is left of one until its parent has looked does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _find(pid: int, began: float) -> psutil.Process | None:
    """The process of this number, unless it is gone or another has got its number since."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - began) < _SECONDS_APART and is_running(process):
            return process
    return None


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait for the end of processes; return those that still run when patience is over."""
    end = time.monotonic() + _SECONDS_TO_STOP
    while processes and time.monotonic() < end:
        # In short turns: one whose parent never looks after it is gone as well, which psutil alone would not say.
        _, processes = psutil.wait_procs(processes, timeout=0.2)
        processes = [process for process in processes if is_running(process)]
    return processes
