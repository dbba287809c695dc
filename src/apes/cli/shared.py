"""What all commands share: the --json option, and errors in one line."""

import functools
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer

from apes.errors import ApesError

P = ParamSpec("P")
_OF_EXTRAS = ("fastapi", "flwr", "httpx", "starlette", "uvicorn")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; all else goes to stderr.")]


def says_what_went_wrong(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors that a user can mend into one line and exit code 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ApesError, OSError) as error:
            typer.echo(f"apes: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from None
        except ModuleNotFoundError as error:
            if error.name not in _OF_EXTRAS:
                raise
            typer.echo(f"apes: {error.name} is not installed; get it with: pip install 'apes-fl[flower]'", err=True)
            raise typer.Exit(2) from None

    return run
