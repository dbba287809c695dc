"""The files of a run's folder: what may be shown, what is its owner's, and that none takes another's place.

What may be shown depends on people's data only by what was released under noise. Everything else lies in ``private/``,
which only its owner can go into: keys, the checkpoint, what follows from held-out people, and paths of the machine.
"""

import os
import re
from pathlib import Path
from typing import Any

from apes.errors import ParameterError
from apes.storage.files import OWNERS_FOLDER

CONFIG, CHECKPOINT, EXPOSURES = "config.json", "checkpoint.npz", "exposures.jsonl"
METRICS, SUMMARY, MODEL = "metrics.jsonl", "summary.json", "model.npz"
BUDGETS, ACCURACY, ACCOUNT, REPORT = "budgets", "accuracy.png", "account.png", "report.html"
EVENTS, CERTIFICATE, IDENTITY = "tensorboard", "certificate.json", "identity.json"
README, PRIVATE = "README.txt", "private"
SHOWN = (CONFIG, EXPOSURES, BUDGETS, MODEL, CERTIFICATE, ACCOUNT, README)
"""What may be shown."""
OWNERS = (CHECKPOINT, METRICS, SUMMARY, ACCURACY, REPORT, EVENTS, IDENTITY, "choices.json", "run.key", "digest.key")
"""What is the owner's."""
CHOICES, RUN_KEY, DIGEST_KEY = OWNERS[-3:]
LOCK = "run.lock"
SORTED = 2
"""The layout that sorts; folders of the one before do not say theirs, and have everything in one place."""
ABOUT = f"""A run of APES.

{PRIVATE}/ is its owner's: keys, the checkpoint, what follows from people's data as it is (accuracy on held-out people,
the report with it), and paths of the machine. Do not hand it out.

The rest may be shown. What of it depends on people's data was released under the run's guarantee: the model.
  {CONFIG}        what was chosen, and what the guarantee rests on
  {EXPOSURES}    what every round revealed: the guarantee is computed from it again (apes account --run .)
  {BUDGETS}/            the budgets of those who took part, without an order and without names
  {MODEL}          the model
  {CERTIFICATE}   what is certified about it
  {ACCOUNT}        the same as a picture
The times at which these files were written tell how long rounds took.
"""
_FILES = (*SHOWN, *OWNERS, PRIVATE)
_CONFIGURED = {"choices": dict, "basis": dict, "data": str, "version": str}
# What `write_whole` calls a file that is not whole yet.
_HALF = re.compile(r"\.(.+)\.[0-9a-f]{32}")


def place_of(path: Path, name: str, layout: int | None = SORTED) -> Path:
    """Where a run keeps a file."""
    return path / PRIVATE / name if layout == SORTED and name in OWNERS else path / name


def make_private(path: Path) -> Path:
    """Make the owner's folder of a run, if it is not there; nobody else can go into it."""
    private = path / PRIVATE
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(OWNERS_FOLDER)
    return private


def check_new(path: Path) -> None:
    """Raise unless a new run can be started in this folder."""
    if path == Path():
        raise ParameterError("out must name a folder of its own, got the current one")
    known = (path / CONFIG, path / EXPOSURES, path / CHECKPOINT, place_of(path, CHECKPOINT))
    if any(file.exists() for file in known):
        raise ParameterError(f"out must be a new folder, got {str(path)!r}, which holds a run: --resume continues it")
    if path.exists() and not path.is_dir():
        raise ParameterError(f"out must be a folder, got the file {str(path)!r}")
    taken = [name for name in _FILES if os.path.lexists(path / name) and not (name == PRIVATE and _is_begun(path))]
    if taken:
        raise ParameterError(f"out must be a new folder, got {str(path)!r}, where {taken[0]} would be overwritten")


def _is_begun(path: Path) -> bool:
    """Whether the owner's folder holds what a run leaves that was killed before there was one, and nothing else."""
    private = path / PRIVATE
    names = {file.name for file in private.iterdir()} if private.is_dir() and not private.is_symlink() else {""}
    return all(name in (CHOICES, RUN_KEY, DIGEST_KEY, LOCK) or _HALF.fullmatch(name) for name in names)


def is_of_run(path: Path, file: Path) -> bool:
    """Whether a file is, or would be, one that the run in this folder keeps."""
    own, other = path.resolve(), file.resolve()
    return own / PRIVATE in other.parents or other.parent == own / BUDGETS or other in {own / name for name in _FILES}


def configured(config: Any) -> dict[str, Any]:
    """What a run was started with, of its configuration; TypeError or KeyError if that is of another kind."""
    names = ("schema", "data_dir", "layout")
    found = {name: config[name] for name in _CONFIGURED} | {name: config.get(name) for name in names}
    # Of runs without levels, and of earlier versions, there are none.
    found["levels"] = config.get("levels") or {}
    for name, kind in _CONFIGURED.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {found[name]!r}")
    if not (isinstance(found["levels"], dict) and all(type(each) in (int, float) for each in found["levels"].values())):
        raise TypeError(f"levels is {found['levels']!r}")
    if not isinstance(found["data_dir"], str | None):
        raise TypeError(f"data_dir is {found['data_dir']!r}")
    if found["layout"] not in (None, SORTED):
        raise ValueError(f"layout is {found['layout']!r}, and this version knows {SORTED}: read it with a later one")
    return found


def files_of(path: Path, layout: int | None = SORTED) -> dict[str, int]:
    """The files of a run that are there, named from its folder, with their sizes in bytes; a folder's as one."""
    places = {place.relative_to(path).as_posix(): place for place in (place_of(path, n, layout) for n in _FILES)}
    there = {name: place for name, place in places.items() if name != PRIVATE and place.exists()}
    parts = {name: [part for part in (place, *place.glob("*")) if part.is_file()] for name, place in there.items()}
    return {name: sum(part.stat().st_size for part in found) for name, found in parts.items()}


def remove_halves(path: Path) -> None:
    """Remove what a process that was killed left of files that it had not written whole."""
    for folder in (path, path / BUDGETS, path / PRIVATE):
        for file in folder.glob(".*"):
            if _HALF.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)
