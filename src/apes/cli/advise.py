"""The command advise: which certified way suits people with these budgets, at a target; the best first."""

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from apes.checks import whole
from apes.cli import shared
from apes.defaults import BUDGETS, DIMENSIONS, ROUNDS, TARGET_EPSILON, USERS
from apes.errors import ParameterError

if TYPE_CHECKING:
    from apes.advice.advise import Advice
    from apes.advice.question import Question

_USERS = "Number of people; a file of budgets says it by itself."
_HTML = "Write the advice as a page to hand around: one file, nothing loaded from anywhere."
_WIDTH = 80


# parameters: one per option, as typer wants it.
def advise_command(
    target_epsilon: Annotated[
        float, typer.Option(help="Largest certified epsilon of anybody over all rounds.")
    ] = TARGET_EPSILON,
    delta: shared.Delta = None,
    budgets: shared.Budgets = BUDGETS,
    users: Annotated[int | None, typer.Option(help=_USERS)] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training; everybody takes part in each.")] = ROUNDS,
    dimensions: Annotated[int, typer.Option(help=f"Coordinates of a report ({DIMENSIONS}: the digits).")] = DIMENSIONS,
    cap: Annotated[float | None, typer.Option(help="Largest local budget that may be used.")] = None,
    seed: shared.Seed = 1,
    html: Annotated[Path | None, typer.Option(help=_HTML)] = None,
    as_json: shared.Json = False,
) -> None:
    """Say how to train people with these budgets within a target: every certified way, the best first."""
    from apes.advice.question import MOST_USERS, Question
    from apes.budgets import make_budgets

    # Before so many budgets are made.
    if users is not None:
        whole("users", users, 1, MOST_USERS)
    is_file = budgets.startswith("file:")
    asked = make_budgets(budgets, users if users is not None or is_file else USERS, seed)
    question = Question(asked, rounds, delta, target_epsilon, dimensions=dimensions, cap=cap, spec=budgets, seed=seed)
    if html is not None:
        check_page(html)
    began = time.perf_counter()
    advice = _found(question)
    if html is not None:
        _write(advice, html)
    facts = advice.as_dict() | {"html": None if html is None else str(html), "seconds": time.perf_counter() - began}
    if as_json:
        shared.tell(facts, as_json)
    else:
        show(advice, html)
    if advice.best is None:
        raise typer.Exit(1)


def _found(question: "Question") -> "Advice":
    """Compare the ways, with a bar."""
    from apes.advice.advise import advise
    from apes.cli import display

    with display.steps("comparing ways", "looked at") as progress:
        progress(0, 100)
        return advise(question, progress)


def check_page(path: Path) -> None:
    """Raise if a page cannot go there, or would take the place of something else than an earlier one."""
    from apes.advice.handout import MARK

    if path.is_dir():
        raise ParameterError(f"html must name a file, got the folder {str(path)!r}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise ParameterError(f"html must be where you may write, and {str(above)!r} is not; got {str(path)!r}")
    if path.exists():
        with path.open("rb") as file:
            if MARK.encode() not in file.read(4096):
                raise ParameterError(f"html must name a new file or an earlier page of advice, got {str(path)!r}")


def _write(advice: "Advice", path: Path) -> None:
    from apes.advice.handout import page_of
    from apes.storage.files import write_bytes

    write_bytes(path, page_of(advice).encode())


def show(advice: "Advice", html: Path | None) -> None:
    """Print the advice for people, on stdout, within 80 columns."""
    from apes.advice.words import question_in_words

    console = Console(width=_WIDTH, highlight=False)
    console.print(question_in_words(advice.question), "\n")
    best = advice.best
    if best is None:
        console.print("[bold]Nothing keeps within the target.[/] Take fewer rounds, a larger target or more people.\n")
    else:
        console.print(f"[bold]Recommended: {best.name}.[/] {best.reason}\n")
    console.print("[bold]Certified ways[/], best first (* beyond the target)", _ways(advice), sep="\n")
    console.print("\n[bold]Epsilon by own budget[/], all rounds (largest of a group, and its share of people)")
    console.print(_groups(advice))
    console.print("\n[bold]How to do it[/]")
    for number, way in enumerate(advice.ways, start=1):
        # Not through the console: it would break lines at words.
        typer.echo(f"{number}. " + in_lines(way.command))
    console.print(f"\n[bold]What is protected.[/] {advice.unit}")
    console.print(f"[bold]Whom one relies on.[/] {advice.trust}")
    console.print(f"[bold]Accuracy.[/] {advice.basis}")
    if html is not None:
        console.print(f"written to {html}", markup=False)


def _ways(advice: "Advice") -> Table:
    """The ways with their figures."""
    from apes.advice.words import change_in_words, figure

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "way", "with"):
        table.add_column(heading, justify="left", no_wrap=True)
    for heading in ("epsilon", "accuracy", "noise", "in a weight"):
        table.add_column(heading, justify="right")
    for number, way in enumerate(advice.ways, start=1):
        accuracy = "-" if way.accuracy is None else f"{100 * way.accuracy:.1f} %"
        epsilon = figure(way.epsilon) if way.meets_target else f"[red]{figure(way.epsilon)}[/]*"
        figures = (epsilon, accuracy, f"{way.noise:.2g}", f"{way.noise_of_weight:.2g}")
        table.add_row(str(number), way.name, change_in_words(way), *figures, style="bold" if number == 1 else None)
    return table


def _groups(advice: "Advice") -> Table:
    """What every way costs people by their budgets."""
    from apes.advice.words import figure

    first = advice.ways[0].groups
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", justify="right")
    for group in first:
        table.add_column(f"{group.budget:.3g}\n{100 * group.share:.3g} %", justify="right")
    for number, way in enumerate(advice.ways, start=1):
        # With more people the boldest may be others, and groups fewer.
        table.add_row(str(number), *(figure(group.epsilon) for group in way.groups[: len(first)]))
    return table


def in_lines(command: str, width: int = _WIDTH - 7) -> str:
    """A command in lines that a shell puts together again."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        # An option and its value stay together.
        if word.startswith("--"):
            parts.append([])
        parts[-1].append(word)
    lines = [""]
    for text in map(shlex.join, parts):
        if lines[-1] and len(lines[-1]) + 1 + len(text) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + text
    return " \\\n     ".join(lines)
