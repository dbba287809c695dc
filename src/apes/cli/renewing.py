"""The command that renews a federation's certificates."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from apes.cli import shared


def renew_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the federation, of who invited or of a trial.")],
    authority: Annotated[
        bool, typer.Option("--authority", help="Renew the authority's too; old and new are trusted side by side.")
    ] = False,
    as_json: shared.Json = False,
) -> None:
    """Issue new TLS certificates for shuffler and SuperLink; the shuffler takes its own without a restart."""
    from apes.federation.renewal import renew

    renewed = renew(folder, authority=authority)
    text = f"shuffler until {renewed.shuffler}, SuperLink until {renewed.superlink} UTC; start the SuperLink again"
    if authority:
        text += f"; hand out {folder / 'invitation' / 'authority.pem'} to all who joined"
    shared.tell({"folder": str(folder), **asdict(renewed)}, as_json, text)
