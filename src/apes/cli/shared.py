"""What commands share: options, the terms and exposure that they come to, answers, and errors in one line."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from apes.errors import ApesError, ParameterError

if TYPE_CHECKING:
    from apes.accounting.exposure import Exposure
    from apes.terms.terms import Terms

P = ParamSpec("P")
_OF_EXTRAS = ("fastapi", "flwr", "httpx", "prometheus_client", "psutil", "starlette", "uvicorn")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; all else goes to stderr.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a picture into this PNG file.")]
Folder = Annotated[Path, typer.Argument(help="Folder of the federation.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the data set's files.")]
# Of the commands that ask about a population: who takes part, and what a round of theirs reveals.
_BUDGETS = "Local budgets: a law, shares as in 0.1:60%,0.5:30%,1:10%, or file:PATH[:COLUMN], as for train."
Budgets = Annotated[str, typer.Option(help=_BUDGETS)]
Users = Annotated[int, typer.Option(help="Number of users.")]
Dimensions = Annotated[int, typer.Option(help="Coordinates of a report.")]
Levels = Annotated[str | None, typer.Option(help="Levels of a coded report, 2 to 256 (256; 2 with a norm).")]
FrameworkName = Annotated[str, typer.Option(help="apes, s-apes-first, s-apes-threshold, or s-apes with random-b.")]
SparsifierName = Annotated[str | None, typer.Option(help="As for train.")]
Keep = Annotated[float | None, typer.Option(help="Fraction of coordinates kept, as for train.")]
Clip = Annotated[float, typer.Option(help="C, bound of every coordinate; it matters beside a norm only.")]
Norm = Annotated[float | None, typer.Option(help="Bound R of an update's L2 norm, with one-bit reports and a clip C.")]
Seed = Annotated[int, typer.Option(help="Seed of the budgets.")]


def parse_levels(text: int | str | None) -> int | str | None:
    """A number of levels, or what was given, if it is no text of one; terms say what is wrong with it."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 10 else text


def certified_terms(levels: str | None, **choices: Any) -> "Terms":
    """Terms with a certificate."""
    from apes.terms.terms import Terms

    terms = Terms(levels=parse_levels(levels), **choices)
    if terms.why_not_certified is not None:
        raise ParameterError(f"framework must be one with a certificate: {terms.why_not_certified}")
    return terms


def exposure_of(terms: "Terms", budgets: str, users: int, seed: int, dimensions: int) -> "Exposure":
    """What a round with these participants reveals."""
    from apes.budgets import make_budgets

    return terms.exposure(0, terms.applied(make_budgets(budgets, users, seed)), dimensions)


def tell(facts: dict[str, Any], as_json: bool, text: str | None = None) -> None:
    """Print the facts as JSON if asked to, null for what is not finite; else the text, if there is one."""
    if as_json:
        facts = json.loads(json.dumps(facts), parse_constant=lambda name: None)
    if as_json or text is not None:
        typer.echo(json.dumps(facts) if as_json else text)


def says_what_went_wrong(function: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors that a user can mend are one line and exit code 2."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (ApesError, OSError) as error:
            typer.echo(f"apes: {_in_one_line(str(error))}", err=True)
            raise typer.Exit(2) from None
        except ModuleNotFoundError as error:
            if error.name not in _OF_EXTRAS:
                raise
            typer.echo(f"apes: {error.name} is not installed; get it with: pip install 'apes-fl[flower]'", err=True)
            raise typer.Exit(2) from None

    return run


def _in_one_line(text: str) -> str:
    """A text without line breaks, and with what would move a terminal's cursor spelt out: a file's name, say."""
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)
