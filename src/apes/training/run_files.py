"""The files of a run's folder: what they are called, and that none of them takes another's place."""

import os
from pathlib import Path
from typing import Any

from apes.errors import ParameterError

CONFIG, CHECKPOINT, EXPOSURES = "config.json", "checkpoint.npz", "exposures.jsonl"
METRICS, SUMMARY, MODEL = "metrics.jsonl", "summary.json", "model.npz"
BUDGETS, ACCURACY, ACCOUNT, REPORT = "budgets", "accuracy.png", "account.png", "report.html"
EVENTS = "tensorboard"
_FILES = (CONFIG, CHECKPOINT, EXPOSURES, METRICS, SUMMARY, MODEL, ACCURACY, ACCOUNT, REPORT, EVENTS)
_CONFIGURED = {"choices": dict, "basis": dict, "data": str, "version": str}


def check_new(path: Path) -> None:
    """Raise unless a new run can be started in this folder."""
    if path == Path():
        raise ParameterError("out must name a folder of its own, got the current one")
    if any((path / name).exists() for name in (CONFIG, CHECKPOINT, EXPOSURES)):
        raise ParameterError(f"out must be a new folder, got {str(path)!r}, which holds a run: --resume continues it")
    if path.exists() and not path.is_dir():
        raise ParameterError(f"out must be a folder, got the file {str(path)!r}")
    taken = [name for name in _FILES if os.path.lexists(path / name)]
    if taken:
        raise ParameterError(f"out must be a new folder, got {str(path)!r}, where {taken[0]} would be overwritten")


def is_of_run(path: Path, file: Path) -> bool:
    """Whether a file is, or would be, one that the run in this folder keeps."""
    own, other = path.resolve(), file.resolve()
    return other.parent in (own / BUDGETS, own / EVENTS) or (other.parent == own and other.name in (*_FILES, BUDGETS))


def configured(config: Any) -> dict[str, Any]:
    """What a run was started with, of its configuration; TypeError or KeyError if that is of another kind."""
    found = {name: config[name] for name in _CONFIGURED} | {name: config.get(name) for name in ("schema", "data_dir")}
    # Of runs without levels, and of earlier versions, there are none.
    found["levels"] = config.get("levels") or {}
    for name, kind in _CONFIGURED.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {found[name]!r}")
    if not (isinstance(found["levels"], dict) and all(type(each) in (int, float) for each in found["levels"].values())):
        raise TypeError(f"levels is {found['levels']!r}")
    if not isinstance(found["data_dir"], str | None):
        raise TypeError(f"data_dir is {found['data_dir']!r}")
    return found


def files_of(path: Path) -> dict[str, int]:
    """The files of a run that are there, with their sizes in bytes; a folder's as one."""
    places = {name: path / name for name in (*_FILES, BUDGETS) if (path / name).exists()}
    parts = {name: [part for part in (place, *place.glob("*")) if part.is_file()] for name, place in places.items()}
    return {name: sum(part.stat().st_size for part in found) for name, found in parts.items()}
