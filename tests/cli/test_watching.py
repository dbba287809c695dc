"""How long training will take, as said meanwhile: the first round, which may compile, is not taken for the others."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from apes.cli import watching
from apes.cli.watching import TimeLeft
from apes.training.run import RoundMetrics

# A first round that compiles for a minute, and others of a second.
ENDS = [60.0 + number for number in range(10)]


def metrics(number):
    return RoundMetrics(number, 0.5, None, 1.0)


def test_time_left_is_that_of_rounds_after_the_first():
    left = TimeLeft(10)
    assert left.after(1, ENDS[0]) is None
    assert [left.after(number, ENDS[number - 1]) for number in range(2, 10)] == [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert left.after(10, ENDS[9]) is None


def test_of_a_run_that_goes_on_its_own_first_round_is_left_out():
    left = TimeLeft(40)
    assert left.after(31, 100.0) is None
    assert left.after(33, 104.0) == 14.0


def test_of_one_round_nothing_is_said():
    assert TimeLeft(1).after(1, 60.0) is None


class Clock:
    """Time as a test tells it."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watching.time, "monotonic", clock)
    return clock


def test_lines_say_nothing_of_time_before_the_second_round(clock, capsys):
    with watching.training_rounds("apes", 10, 0) as show:
        for number in range(1, 11):
            clock.now = ENDS[number - 1]
            show(metrics(number))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert [line.partition(", about ")[2] for line in lines] == [
        "",
        *[f"{left} s left" for left in range(8, 0, -1)],
        "",
    ]


def test_the_bar_leaves_the_first_round_out_too():
    """As its library does it."""
    clock = Clock()
    progress = Progress(get_time=clock, console=Console(file=io.StringIO()))
    progress.add_task("apes", total=10, completed=0)
    (task,) = progress.tasks
    clock.now = ENDS[0]
    progress.update(task.id, completed=1)
    assert task.time_remaining is None
    clock.now = ENDS[1]
    progress.update(task.id, completed=2)
    assert task.time_remaining == 8
