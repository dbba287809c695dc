"""What a person watches: progress, on stderr, on a terminal alone; and tables of what a run or plan came to."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table

from apes.data import Dataset, load

if TYPE_CHECKING:
    from apes.terms.simulation import Simulation
    from apes.training.run import RoundMetrics


class _Answers(Console):
    """Where answers go; whoever stops reading them is no reason to end."""

    def on_broken_pipe(self) -> None:
        """Leave it to who prints (`apes.cli.shared.tell`)."""
        raise BrokenPipeError


console, answers = Console(stderr=True), _Answers()
"""Progress and notes; and what was asked for, on stdout, in colours for a terminal only."""
_COLUMNS_SHOWN = 6


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
        tenths = math.floor(10 * done / max(total, 1e-9) + 1e-9)
        if tenths > said:
            said = tenths
            console.print(f"{what}: {10 * tenths} %, {state}", markup=False, highlight=False)

    return show


@contextmanager
def training_rounds(
    what: str, rounds: int, done: int, who: Callable[[], str] = lambda: ""
) -> "Iterator[Callable[[RoundMetrics], None]]":
    """Show rounds, accuracy, loss and time left while a model trains, and who does the work now."""
    times = Elapsed(), "left", Remaining()
    with _bar(MofNCompleteColumn(), "{task.fields[state]}", *times) as progress:
        first = "compiling the inner loops if this is the first run ..."
        task = progress.add_task(what + who(), total=rounds, completed=done, state=first)

        def show(last: "RoundMetrics") -> None:
            state = "" if last.accuracy is None else f"accuracy {100 * last.accuracy:.2f} %  "
            state += "" if last.loss is None else f"loss {last.loss:.3f}"
            if last.epsilon is not None:
                state += f"  epsilon {last.epsilon:.3g}"
            progress.update(task, description=what + who(), completed=last.round, state=state)

        yield show


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Show which step is being worked on."""
    with console.status("accounting ...") as status:
        yield lambda step: status.update(f"{step} ...")


def table_of(title: str | None, headings: Iterable[str], caption: str | None = None) -> Table:
    """An empty table, with figures to the right and names to the left."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("", "bound") else "right")
    return table


def groups(personal: list[dict[str, Any]], over: str = "all rounds") -> None:
    """Print what is certified for users by their budgets, ``over`` as many rounds."""
    table = table_of(f"[bold]Everybody's own[/], {over}", ("local budget up to", "users", "certified epsilon"))
    for group in personal:
        # Whoever chose among levels knows the own budget by its name.
        name = "".join(f"{escape(level)} " for level in group.get("levels", ()))
        table.add_row(f"{name}{group['budget']:.4g}", f"{group['users']:,}", f"{group['epsilon']:.4g}")
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
        figures = [offer["cap"], offer["epsilon"], offer["error"], *offer["errors"]]
        cells = ["-" if figure is None else f"{figure:.4g}" for figure in figures]
        is_best = offer["levels"] == answer["answer"]
        table.add_row(str(offer["levels"]), str(offer["bits"]), *cells, style="bold" if is_best else None)
    console.print(table)


def summary(result: dict[str, Any]) -> None:
    """Print what a training run came to."""
    from apes.training.crews.crew import Facts

    table = Table(show_header=False, box=None, title="[bold]Result", title_justify="left")
    proved, budgets = result["certified"], result["local_epsilon"]
    central, local = f"nothing certified: {proved['why']}", "none: updates are averaged as they are"
    if proved["epsilon"] is not None:
        central = f"[bold]epsilon {proved['epsilon']:.4g}[/] at delta {proved['delta']:.3g} for a user, certified"
        central += f": {proved['meaning']}"
    if result["framework"] != "non-private":
        (low, high), (user_low, user_high) = budgets["coordinate"], budgets["user"]
        of_user = f"({user_low:,.4g} to {user_high:,.4g} per user and round)"
        local = f"epsilon {low:.3g} to {high:.3g} per coordinate and round, by each user's budget {of_user}"
        if "user_at_delta" in budgets:
            low, high = budgets["user_at_delta"]
            local += f"; by the norm {low:.3g} to {high:.3g} per user and round at delta {proved['delta']:.3g}"
    rows = {
        **_judged(result),
        "trained": f"{result['framework']} on {escape(result['data'])}: {result['users']:,} users, "
        f"{result['dimensions']:,} coordinates, {result['rounds']} rounds",
        "time": f"{result['seconds']:.1f} s, {result['seconds_per_round']:.3f} s per round, "
        f"{result['peak_memory_mb']:.0f} MB at the peak; {Facts(**result['workers']).told}",
        "central privacy": central,
        "local privacy": local,
        "written to": result["out"],
    }
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    answers.print(table)
    if proved["epsilon"] is not None:
        groups(proved["by_budget"])


def _judged(result: dict[str, Any]) -> dict[str, str]:
    """How good the model is on the test part, if there is one; and what was read of an own table."""
    table = result.get("table")
    if result["loss"] is None:
        said = {"test part": "none"}
    elif result["accuracy"] is not None:
        said = {"test accuracy": f"[bold]{100 * result['accuracy']:.2f} %[/] (loss {result['loss']:.3f})"}
    else:
        error = "" if table is None else f"[bold]{table['root_mean_square_error']:.4g}[/] in the label's unit "
        said = {"test error": f"root mean square {error}(loss {result['loss']:.4f})"}
    if table is not None:
        most = sorted((table["clipped"] or {}).items(), key=lambda item: -item[1])
        clipped = ", ".join(f"{escape(name)} {100 * share:.3g} %" for name, share in most[:_COLUMNS_SHOWN])
        nothing = "not looked at" if table["clipped"] is None else "none"
        more = f" and {len(most) - _COLUMNS_SHOWN} columns more" if len(most) > _COLUMNS_SHOWN else ""
        said["table"] = (
            f"{table['rows']:,} rows of {table['users']:,} people who train and {table['test_users']:,} who judge, "
            f"{table['left_out']:,} left out; outside the bounds: {clipped or nothing}{more}"
        )
    return said
