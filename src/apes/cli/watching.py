"""What a person watches while a model trains: a bar on a terminal, now and then a line elsewhere. All on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Column

from apes.accounting.words import upwards
from apes.cli.display import console

if TYPE_CHECKING:
    from apes.training.run import RoundMetrics

Show = Callable[["RoundMetrics"], None]
# Columns of a terminal from which on there is room for everything.
_WIDE = 120
# Where nobody watches a bar, a line after every tenth of the rounds, and when this many seconds have passed.
_LINES, _SECONDS = 10, 30.0


@contextmanager
def training_rounds(what: str, rounds: int, done: int, who: Callable[[], str] = lambda: "") -> Iterator[Show]:
    """Show rounds, accuracy, loss, epsilon and time left while a model trains, and who does the work now."""
    if console.is_terminal and not console.is_dumb_terminal:
        with _bar(what, rounds, done, who) as show:
            yield show
    else:
        yield _lines(what, rounds, done, who)


@contextmanager
def _bar(what: str, rounds: int, done: int, who: Callable[[], str]) -> Iterator[Show]:
    """A bar that fits into the terminal: where that is narrow, without what can be read afterwards."""
    is_wide = console.width >= _WIDE
    whole = Column(no_wrap=True)
    columns: list[ProgressColumn] = [TextColumn("[bold]{task.description}", table_column=whole)]
    columns += [BarColumn(None if is_wide else 12), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[state]}", table_column=whole), *([Elapsed()] if is_wide else [])]
    columns += [Remaining(compact=not is_wide), TextColumn("left", table_column=whole)]
    with Progress(*columns, console=console, expand=is_wide) as progress:

        def description() -> str:
            return what + who() if is_wide else what

        first = "compiling, if this is the first run ..." if is_wide else "compiling ..."
        task = progress.add_task(description(), total=rounds, completed=done, state=first)

        def show(last: "RoundMetrics") -> None:
            state = reached(last, is_short=not is_wide)
            progress.update(task, description=description(), completed=last.round, state=state)

        yield show


class TimeLeft:
    """How long the remaining rounds will take, by those after the first: in the first one loops may be compiled.

    >>> left = TimeLeft(rounds=10)
    >>> left.after(1, 60.0), left.after(2, 61.0), left.after(4, 63.0)
    (None, 8.0, 6.0)
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._first: tuple[int, float] | None = None

    def after(self, number: int, now: float) -> float | None:
        """Seconds from now, as round ``number`` ends; None as the first one ends that is told of, and at the end."""
        if self._first is None:
            self._first = number, now
        first, ended = self._first
        if not first < number < self._rounds:
            return None
        return (now - ended) / (number - first) * (self._rounds - number)


def _lines(what: str, rounds: int, done: int, who: Callable[[], str]) -> Show:
    """Lines, as for a file: the first round, some, the last."""
    told = time.monotonic()
    left, first = TimeLeft(rounds), done + 1

    def show(last: "RoundMetrics") -> None:
        nonlocal told
        now = time.monotonic()
        seconds = left.after(last.round, now)
        is_due = last.round in (first, rounds) or last.round % max(1, rounds // _LINES) == 0 or now - told > _SECONDS
        if is_due:
            told = now
            ahead = "" if seconds is None else f", about {seconds:.0f} s left"
            # Not behind "apes: ", as what went wrong is.
            words = f"training {what}{who()}: round {last.round} of {rounds}, {reached(last)}{ahead}"
            console.print(words, highlight=False, markup=False, soft_wrap=True)

    return show


def reached(last: "RoundMetrics", *, is_short: bool = False) -> str:
    """Where the model stands after a round."""
    parts = [] if last.accuracy is None else [f"{'' if is_short else 'accuracy '}{100 * last.accuracy:.2f} %"]
    if last.loss is not None and not (is_short and parts):
        parts.append(f"loss {last.loss:.3f}")
    if last.epsilon is not None:
        parts.append(f"epsilon {upwards(last.epsilon, 3)}")
    return ", ".join(parts) or "no test part"
