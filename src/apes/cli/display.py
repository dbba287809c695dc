"""What a person watches: progress, on stderr, on a terminal alone; and tables of what a run or plan came to."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table

from apes.accounting.words import upwards
from apes.data import Dataset, load

if TYPE_CHECKING:
    from apes.terms.simulation import Simulation


class _Answers(Console):
    """Where answers go; whoever stops reading them is no reason to end."""

    def on_broken_pipe(self) -> None:
        """Leave it to who prints (`apes.cli.shared.tell`)."""
        raise BrokenPipeError


console, answers = Console(stderr=True), _Answers()
"""Progress and notes; and what was asked for, on stdout, in colours for a terminal only."""


def _bar(*columns: str | ProgressColumn, transient: bool = False) -> Progress:
    """A bar between its description and other columns; words are templates of columns. None where nobody watches."""
    after = [TextColumn(column) if isinstance(column, str) else column for column in columns]
    # On 80 columns the words beside it count for more.
    bar = BarColumn(40 if console.width > 110 else 10)
    how: dict[str, Any] = {"console": console, "transient": transient, "disable": not console.is_terminal}
    return Progress(TextColumn("[bold]{task.description}"), bar, *after, **how)


@contextmanager
def steps(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for work that reports (done, total); it appears with the first report."""
    count = "{task.completed:,.0f} of {task.total:,.0f} " + unit
    with _bar(count, Remaining(), transient=True) as progress:
        task = progress.add_task(what, total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)


def dataset(simulation: "Simulation", data_dir: Path | None) -> Dataset:
    """Load a simulation's data, with a bar if it has to be made."""
    with steps("making the digits", "images") as progress:
        return load(simulation.data, data_dir=data_dir, normalise=simulation.normalise, progress=progress)


@contextmanager
def shares(what: str) -> Iterator[Callable[[float, float, str], None]]:
    """Show a bar for work that reports (done, total, what is being done), with the time left; or a line per tenth."""
    if not console.is_terminal:
        yield _tenths(what)
        return
    times = Elapsed(), "left", Remaining()
    with _bar("{task.percentage:>3.0f} %", *times, "{task.fields[state]}") as progress:
        task = progress.add_task(what, total=None, state="")
        yield lambda done, total, state: progress.update(task, completed=done, total=max(total, 1e-9), state=state)


def _tenths(what: str) -> Callable[[float, float, str], None]:
    """Says every tenth of the work that is done in a line of its own, for a log."""
    said = -1

    def show(done: float, total: float, state: str) -> None:
        nonlocal said
        # Of nothing, all is done.
        tenths = math.floor(10 * done / total + 1e-9) if total > 0 else 10
        if tenths > said:
            said = tenths
            console.print(f"{what}: {10 * tenths} %, {state}", markup=False, highlight=False)

    return show


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Show which step is being worked on."""
    with console.status("accounting ...") as status:
        yield lambda step: status.update(f"{step} ...")


def table_of(title: str | None, headings: Iterable[str], caption: str | None = None) -> Table:
    """An empty table, with figures to the right and names to the left."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in headings:
        # A figure that is cut short is another figure.
        table.add_column(heading, justify="left" if heading in ("", "bound") else "right", overflow="fold")
    return table


def groups(personal: list[dict[str, Any]], over: str = "all rounds") -> None:
    """Print what is certified for users by their budgets, ``over`` as many rounds."""
    table = table_of(f"[bold]Everybody's own[/], {over}", ("local budget up to", "users", "certified epsilon"))
    for group in personal:
        # Whoever chose among levels knows the own budget by its name.
        names = ", ".join(escape(level) for level in group.get("levels", ()))
        name = f"{names} " if names else ""
        table.add_row(f"{name}{group['budget']:.4g}", f"{group['users']:,}", upwards(group["epsilon"]))
    answers.print(table)


def level_choice(answer: dict[str, Any]) -> None:
    """Print what each number of levels comes to under a target."""
    target, clips = answer["target"], answer["clips"]
    table = table_of(
        f"[bold]Levels of a report[/] at epsilon {target['epsilon']:g}, delta {target['delta']:g}",
        ("levels", "bits", "cap", "certified", "error / C", *(f"error, C = {clip:g}" for clip in clips)),
        "Standard error of the mean update, per coordinate and round. The noise grows with the clip bound C; "
        "what updates lose beyond C is not in it.",
    )
    for offer in answer["trade"]:
        figures = [offer["cap"], offer["error"], *offer["errors"]]
        cells = ["-" if figure is None else f"{figure:.4g}" for figure in figures]
        cells.insert(1, "-" if offer["epsilon"] is None else upwards(offer["epsilon"]))
        is_best = offer["levels"] == answer["answer"]
        table.add_row(str(offer["levels"]), str(offer["bits"]), *cells, style="bold" if is_best else None)
    answers.print(table)
