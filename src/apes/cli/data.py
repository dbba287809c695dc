"""Data sets on the command line."""

from typing import Annotated

import typer

from apes.cli import display, shared
from apes.data import NAMES, download

_SETS = f"One of {', '.join(NAMES[1:])}."


def get_command(name: Annotated[str, typer.Argument(help=_SETS)], as_json: shared.Json = False) -> None:
    """Download a data set into the cache, checked against its checksums."""
    with display.steps(f"fetching {name}", "bytes") as progress:
        folder = download(name, progress=progress)
    shared.tell({"name": name, "folder": str(folder)}, as_json, f"{name} is in {folder}")
