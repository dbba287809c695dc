"""What a person watches: progress on the terminal, and a summary at the end. Everything goes to stderr."""

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

from apes.accounting.words import judged
from apes.data import Dataset, load

if TYPE_CHECKING:
    from apes.terms.simulation import Simulation
    from apes.training.run import RoundMetrics

console = Console(stderr=True)
_USERS_SHOWN = 20
_COLUMNS_SHOWN = 6


def _bar(*columns: str | ProgressColumn, transient: bool = False) -> Progress:
    """A bar between its description and other columns; words are templates of columns."""
    after = [TextColumn(column) if isinstance(column, str) else column for column in columns]
    return Progress(TextColumn("[bold]{task.description}"), BarColumn(), *after, console=console, transient=transient)


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
    """Show a bar for work that reports (done, total, what is being done), with the time left."""
    times = Elapsed(), "left", Remaining()
    with _bar("{task.percentage:>3.0f} %", *times, "{task.fields[state]}") as progress:
        task = progress.add_task(what, total=None, state="")
        yield lambda done, total, state: progress.update(task, completed=done, total=max(total, 1e-9), state=state)


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


def _table(title: str | None, headings: Iterable[str], caption: str | None = None) -> Table:
    """An empty table, with figures to the right and names to the left."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("", "bound") else "right")
    return table


def account(answer: dict[str, Any]) -> None:
    """Print what the accountant found."""
    headings = ("", "epsilon", "delta", "cannot be below")
    table = _table("[bold]Certified[/] (proved; one user's data replaced)", headings)
    names = {"dimension": "one coordinate", "round": "a user, one round", "total": "a user, all rounds"}
    for name, part in answer["certified"].items():
        lower = f"{answer['lower'][name]:.4g}" if answer["lower"][name] > 0 else "-"
        table.add_row(names[name], f"[bold]{part['epsilon']:.4g}", f"{part['delta']:.3g}", lower)
    console.print(table)
    total = answer["certified"]["total"]
    console.print(f"A user, all rounds: [bold]{judged(total['epsilon'], total['delta'])}")
    local = answer["local"]
    console.print(
        f"Local, largest budget, one round: {local['dimension']:.4g} per coordinate, {local['user']:,.4g} per user; "
        f"{local['user_top_b']:,.4g} if top-b keeps a fifth"
    )
    if "user_at_delta" in local:
        delta = answer["certified"]["round"]["delta"]
        console.print(
            f"and by the norm {local['user_at_delta']:.4g} per user at delta {delta:g}, whoever reads the reports"
        )
    console.print("Published figures are not proved for different budgets: docs/published-bounds.md")
    claims = _table(None, ("bound", "epsilon"))
    for name, value in sorted(answer["published"].items()):
        claims.add_row(name, "outside its range" if value is None else f"{value:.4g}")
    console.print(claims)
    groups(answer["personal"])
    console.print(f"{answer['seconds']:.1f} s")


def groups(personal: list[dict[str, Any]]) -> None:
    """Print what is certified for users by their budgets."""
    table = _table("[bold]Everybody's own[/] (central, all rounds)", ("local budget up to", "users", "epsilon"))
    for group in personal:
        # Whoever chose among levels knows the own budget by its name.
        name = "".join(f"{escape(level)} " for level in group.get("levels", ()))
        table.add_row(f"{name}{group['budget']:.4g}", f"{group['users']:,}", f"{group['epsilon']:.4g}")
    console.print(table)


def level_choice(answer: dict[str, Any]) -> None:
    """Print what each number of levels comes to under a target."""
    target, clips = answer["target"], answer["clips"]
    table = _table(
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
    console.print(table)
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


def tuned(found: dict[str, Any], out: str) -> None:
    """Print what a search for a plan came to."""
    table = _table(
        "[bold]Best of the plans tried[/]", ("", "accuracy", "runs"), "On people of the public training part."
    )
    for name, trial in (("the plan", found["best"]), ("defaults", found["default"])):
        words = ", ".join(f"{what} {value}" for what, value in trial["choices"].items()) or "nothing changed"
        figures = f"{100 * trial['accuracy']:.2f} ± {100 * trial['spread']:.2f} %", str(len(trial["runs"]))
        table.add_row(f"{name}: {words}", *figures)
    console.print(table)
    console.print(f"written to {out}; train with: apes train --plan {out} --data ...")


def spent(accounts: list[dict[str, Any]]) -> None:
    """Print what the users of a vault have spent: the first of them if they are many."""
    central = accounts[0]["central"]
    table = _table(
        "[bold]Spent[/] (all coordinates, rounds and runs)",
        ("user", "budget", "rounds", "local", "allowance", "central", "mu", "limit", "rounds left"),
        f"Local epsilon holds whoever reads the reports. Central epsilon, at delta {central['delta']:.3g}, holds "
        "against everybody but the shuffler, had every round been of the smallest cohort that it lets through.",
    )
    for user, account in enumerate(accounts[:_USERS_SHOWN]):
        central, left = account["central"], account["rounds_left"]
        figures = account["spent"], account["allowance"], central["epsilon"], central["mu"], central["limit"]
        nothing = "", "no limit", "no bound", "no bound", "no limit"
        cells = [word if figure is None else f"{figure:,.4g}" for figure, word in zip(figures, nothing, strict=True)]
        own = str(user), f"{account['budget']:.4g}", str(account["rounds"])
        table.add_row(*own, *cells, "no limit" if left is None else str(left))
    console.print(table)
    if len(accounts) > _USERS_SHOWN:
        console.print(f"{_USERS_SHOWN} of {len(accounts):,} users; --json has them all")


def federation(summary: dict[str, Any]) -> None:
    """Print what a federation's run came to."""
    certified, users, accuracy = summary["certified"], summary["participants_by_round"], summary["accuracy"]
    loss = f"loss [bold]{summary['loss']:.4f}[/]"
    reached = loss if accuracy is None else f"accuracy [bold]{100 * accuracy:.2f} %[/]"
    console.print(
        f"[bold]{summary['rounds']} rounds[/] with {min(users)} to {max(users)} participants: "
        f"{reached}, certified epsilon [bold]{certified['epsilon']:.4g}[/] "
        f"at delta {certified['delta']:.3g} (a user, all rounds, whoever chose who takes part: the limit that was "
        f"agreed; {certified['epsilon_by_round'][-1]:.4g} was spent): {certified['meaning']}"
    )
