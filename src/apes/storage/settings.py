"""Settings in files: a frozen dataclass as JSON, checked on the way in, written whole."""

import json
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from apes.errors import DataError, ParameterError
from apes.storage.files import write_bytes

T = TypeVar("T")


def read_settings(path: Path, kind: type[T]) -> T:
    """Read settings of a dataclass ``kind``, checking that its fields are there and no others; lists become tuples."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return from_plain(values, kind, str(path))


def read_token(path: Path) -> str:
    """Read what the analyzer shows to the shuffler."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not token:
        raise DataError(f"{path} is empty; it must hold the analyzer's token")
    return token


def read_key(path: Path, kind: Callable[[bytes], T]) -> T:
    """Read a private key, which is the whole of a file."""
    try:
        return kind(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def from_plain(values: Any, kind: type[T], where: str) -> T:
    """Make a dataclass ``kind`` of plain values as JSON has them; see `read_settings`."""
    if not isinstance(values, dict):
        raise DataError(f"{where} must hold an object with the fields of {kind.__name__}, got {type(values).__name__}")
    known: dict[str, Field[Any]] = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    needed = {name for name, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING}
    for name in sorted(values.keys() - known.keys()):
        raise DataError(f"{where}: unknown field {name!r}; known are {', '.join(known)}")
    for name in sorted(needed - values.keys()):
        raise DataError(f"{where}: field {name!r} is missing")
    for name, value in values.items():
        if known[name].type is str and not isinstance(value, str):
            raise DataError(f"{where}: field {name!r} must be a text, got {value!r}")
    try:
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    except (ParameterError, TypeError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None


def write_settings(path: Path, settings: Any, mode: int | None = None) -> None:
    """Write a dataclass as JSON; the file appears whole or not at all, with the permissions ``mode``."""
    write_bytes(path, (json.dumps(asdict(settings), indent=1) + "\n").encode(), mode)
