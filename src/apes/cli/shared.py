"""What commands share: options, the terms and exposure that they come to, answers, and errors in one line."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from apes.cli.option_names import in_options, option_names
from apes.defaults import (
    CLIP,
    DELTA_IN_WORDS,
    DIMENSIONS,
    DIMENSIONS_OF_PIXELS,
    FEATURES,
    NORM,
    PAPER,
    PRESETS,
    ROUNDS,
    ROUNDS_NOT_OPEN,
    TARGET_EPSILON,
)
from apes.errors import ApesError, ParameterError

if TYPE_CHECKING:
    from apes.terms.plan import Plan
    from apes.terms.terms import Terms

P = ParamSpec("P")
_OF_EXTRAS = ("fastapi", "flwr", "httpx", "prometheus_client", "psutil", "starlette", "uvicorn")
# What Windows does not have: who asks for these needs an operating system that keeps accounts or processes apart.
_OF_UNIX = ("fcntl", "grp", "pwd", "resource", "termios")
_PICTURES = (".png", ".pdf", ".svg")


def check_place(name: str, path: Path) -> Path:
    """Return the path of a file that is to be written if that can be done, as far as one can tell; else raise.

    What takes minutes is not found out to be for nothing at its end.
    """
    if path.is_dir():
        raise ParameterError(f"{name} must be a file, got the folder {str(path)!r}")
    there = next(folder for folder in path.absolute().parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ParameterError(f"{name} must be in a folder that can be written to, got {str(path)!r}")
    return path


def _picture(path: Path | None) -> Path | None:
    """The path of a picture, whose name says what format it is to have."""
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise ParameterError(f"plot must end in .png, .pdf or .svg, got {str(path)!r}")
    return None if path is None else check_place("plot", path)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; all else goes to stderr.")]
_PLOT = "Draw a picture into this file: .png, .pdf or .svg."
Plot = Annotated[Path | None, typer.Option(help=_PLOT, callback=_picture)]
Folder = Annotated[Path, typer.Argument(help="Folder of the federation.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the data set's files.")]
# Of the commands that ask about a population: who takes part, and what a round of theirs reveals.
_BUDGETS = "Local budgets: a law, shares as in 0.1:60%,0.5:30%,1:10%, or file:PATH[:COLUMN], as for train."
Budgets = Annotated[str, typer.Option(help=_BUDGETS)]
Users = Annotated[int, typer.Option(help="Number of users.")]
_DIMENSIONS = (
    f"Coordinates of a report (default {DIMENSIONS}, the digits; {DIMENSIONS_OF_PIXELS} with --preset {PAPER})."
)
Dimensions = Annotated[int, typer.Option(help="Coordinates of a report.")]
PlanDimensions = Annotated[int | None, typer.Option(help=_DIMENSIONS)]
_NOT_OPEN = "clip, levels or another framework are given"
PlanRounds = Annotated[
    int | None,
    typer.Option(help=f"Rounds with the same participants (default {ROUNDS}; {ROUNDS_NOT_OPEN} if {_NOT_OPEN})."),
]
Levels = Annotated[str | None, typer.Option(help="Levels of a coded report, 2 to 256 (256; 2 with a norm).")]
FrameworkName = Annotated[str, typer.Option(help="apes, s-apes-first, s-apes-threshold, or s-apes with random-b.")]
SparsifierName = Annotated[str | None, typer.Option(help="As for train.")]
Keep = Annotated[float | None, typer.Option(help="Fraction of coordinates kept, as for train.")]
Clip = Annotated[float, typer.Option(help="C, bound of every coordinate; it matters beside a norm only.")]
PlanTarget = Annotated[
    float | None,
    typer.Option(help=f"Certified epsilon that clip bound and cap are fitted to (default {TARGET_EPSILON:g})."),
]
PlanClip = Annotated[
    float | None,
    typer.Option(help=f"C, bound of every coordinate (default: what spends the target, with a norm; else {CLIP:g})."),
]
Norm = Annotated[float | None, typer.Option(help="Bound R of an update's L2 norm, with one-bit reports and a clip C.")]
_FITTED_NORM = f"Bound R of an update's L2 norm: one-bit reports (default {NORM:g}; none if {_NOT_OPEN})."
PlanNorm = Annotated[float | None, typer.Option(help=_FITTED_NORM)]
_CAP = "Largest local budget that is used; whoever has more uses this much"
_FITTED_CAP = f"{_CAP} (default: what spends the target; none if {_NOT_OPEN})."
PlanCap = Annotated[float | None, typer.Option(help=_FITTED_CAP)]
Delta = Annotated[float | None, typer.Option(help=f"Delta of the guarantee (default {DELTA_IN_WORDS}).")]
Seed = Annotated[int, typer.Option(help="Seed of the budgets.")]


_NO_PROTECTION = "Begin even if what is certified protects nobody: an epsilon above 10, or a delta above 0.001."
AllowNoProtection = Annotated[bool, typer.Option("--allow-no-protection", help=_NO_PROTECTION)]


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


def with_preset(preset: str, **choices: Any) -> dict[str, Any]:
    """Choices of a plan, and the coordinates of a report (``dimensions``), with those of a preset for what is None."""
    from apes.checks import one_of

    rest = dict(PRESETS[one_of("preset", preset, list(PRESETS))])
    rest["dimensions"] = DIMENSIONS if rest.pop("features", FEATURES) == FEATURES else DIMENSIONS_OF_PIXELS
    return {name: rest.get(name) if value is None else value for name, value in choices.items()}


def certified_plan(levels: str | None, **choices: Any) -> "Plan":
    """A plan with a certificate, open or not."""
    from apes.terms.plan import Plan

    bound = {name: choices[name] for name in ("framework", "sparsifier", "keep") if choices.get(name) is not None}
    certified_terms(None, **bound)
    return Plan(levels=parse_levels(levels), **choices)


def tell(facts: dict[str, Any], as_json: bool, text: str | Callable[[], None] | None = None) -> None:
    """Print what was asked for on stdout: the facts as JSON, null for what is not finite; or the text for people.

    Instead of a text there may be a function that prints one.
    """
    try:
        if as_json:
            typer.echo(json.dumps(json.loads(json.dumps(facts), parse_constant=lambda name: None)))
        elif callable(text):
            text()
        elif text is not None:
            typer.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has read enough, as `head` does; what else there is to do is done, and said by the exit code.
        ignore_further_answers()


def ignore_further_answers() -> None:
    """Let what is still to be printed on stdout go nowhere: nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interrupts() -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt wherever it comes: compiled code passes it on as the cause of an error."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


@contextmanager
def in_one_line(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Say errors that a user can mend in one line, and end with exit code 2; stopped by Ctrl-C, end with 130.

    What is wrong is said of options: ``names`` says how parameters are given (`apes.cli.option_names`).
    """
    try:
        with interrupts():
            yield
    except KeyboardInterrupt:
        typer.echo("apes: stopped", err=True)
        raise typer.Exit(130) from None
    except (ApesError, OSError) as error:
        raise _refused(in_options(str(error), names or {})) from None
    except (MemoryError, OverflowError) as error:
        raise _refused(f"a number is beyond what this machine can hold ({error}): try a smaller one") from None
    except ModuleNotFoundError as error:
        if error.name in _OF_UNIX:
            raise _refused(f"this needs {error.name}, which this operating system does not have") from None
        if error.name not in _OF_EXTRAS:
            raise
        raise _refused(f"{error.name} is not installed; get it with: pip install 'apes-fl[flower]'") from None


def _refused(why: str) -> typer.Exit:
    typer.echo(f"apes: {spelt_out(why)}", err=True)
    return typer.Exit(2)


def says_what_went_wrong(function: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors that a user can mend are one line, about its options, and exit code 2."""
    names = option_names(function)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with in_one_line(names):
            function(*args, **kwargs)

    return run


def spelt_out(text: str) -> str:
    """A text without line breaks, and with what would move a terminal's cursor spelt out: a file's name, say."""
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)
