"""Runs a peer's program: what it printed, and the largest memory of all its processes together."""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.peer_environment import reason
from benchmarks.peer_programs.stages import Stage

ROOT = Path(__file__).parents[1]
_LOOK_SECONDS = 0.1


class Finished(NamedTuple):
    """Objects that a program printed, its peak memory, and what went wrong, if it did."""

    printed: list[dict[str, Any]]
    peak_mb: float
    error: str | None


class Estimated(NamedTuple):
    """Seconds of a round of all users, and with how many it was measured."""

    seconds: float
    measured_users: int


def run(command: Sequence[str], environment: Mapping[str, str], limit: float) -> Finished:
    """Run a program for so many seconds at most; what it started ends with it."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = psutil.Popen(command, stdout=out, stderr=errors, cwd=ROOT, env=dict(environment))
        began, peak, tree = time.perf_counter(), 0.0, list[psutil.Process]()
        while process.poll() is None and time.perf_counter() - began < limit:
            tree = [process, *_children(process)]
            peak = max(peak, sum(_pss(member) for member in tree))
            time.sleep(_LOOK_SECONDS)
        is_late = process.poll() is None
        _end([*tree, *_children(process)])
        out.seek(0)
        errors.seek(0)
        wrong = f"stopped after {limit:.0f} s" if is_late else reason(errors.read())
        return Finished(objects_in(out.read()), peak / 2**20, wrong if is_late or process.returncode else None)


def environment_of(paths: Sequence[Path], scratch: str) -> dict[str, str]:
    """Variables for a program: where it imports from, nothing told to anybody, Ray's files in a place of their own."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **quiet, "RAY_TMPDIR": scratch, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def objects_in(text: str) -> list[dict[str, Any]]:
    """The lines that are JSON objects; programs print other lines as well."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def estimate(stages: Sequence[Stage], users: int) -> Estimated:
    """Median of the rounds with the most users; of fewer than all, seconds per user times users."""
    most = max(stage.users for stage in stages)
    seconds = statistics.median(stage.seconds for stage in stages if stage.users == most)
    return Estimated(seconds * users / most, most)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _pss(process: psutil.Process) -> float:
    """Bytes of a process, what it shares divided among those who share it."""
    try:
        return float(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def _end(processes: Sequence[psutil.Process]) -> None:
    """End processes that are still there; a number that was given to another process since is left alone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=10)
