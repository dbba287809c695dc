"""What `benchmarks/peers.py` makes of what was measured; nothing is timed here."""

import pytest

from benchmarks.peer_environment import reason
from benchmarks.peer_programs.stages import Stage, Task, measure, upcoming
from benchmarks.peer_run import estimate, objects_in
from benchmarks.peers import PEERS, cells


def test_a_round_of_everybody_is_the_median():
    stages = [Stage(100, 9.0), Stage(1000, 1.0), Stage(1000, 5.0), Stage(1000, 2.0)]
    assert estimate(stages, 1000) == (2.0, 1000)


def test_fewer_are_extrapolated_per_user():
    assert estimate([Stage(100, 9.0), Stage(400, 2.0)], 1000) == (5.0, 400)


@pytest.mark.parametrize(
    ("last", "full_rounds", "left", "users"),
    [
        (Stage(100, 0.01), 0, 100, 1000),  # ten times as many
        (Stage(5_000, 1), 0, 100, 10_000),  # no more than there are
        (Stage(1000, 10), 0, 100, 7000),  # what fits, with some to spare
        (Stage(1000, 10), 0, 20, 0),  # not twice as many: it would tell nothing
        (Stage(9000, 9), 0, 100, 10_000),  # everybody, although not twice as many
        (Stage(10_000, 1), 1, 100, 10_000),  # again
        (Stage(10_000, 1), 3, 100, 0),  # often enough
        (Stage(10_000, 80), 1, 100, 0),  # no time for another
    ],
)
def test_how_many_take_part_next(last, full_rounds, left, users):
    assert upcoming(last, full_rounds, 10_000, left) == users


def test_rounds_grow_until_everybody_took_part():
    now, asked, said = [0.0], [], []

    def run_round(users):
        asked.append(users)
        now[0] += users / 1000

    measure(run_round, Task("", 2500, 60.0, ""), lambda: now[0], said.append)
    assert asked == [100, 100, 1000, 2500, 2500, 2500]
    assert [stage.users for stage in said] == asked[1:]
    assert estimate(said, 2500).seconds == pytest.approx(2.5)


def test_what_is_not_a_json_object_is_passed_over():
    assert objects_in('WARNING\n3\n[1]\n{"users": 1}\n{broken\n') == [{"users": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [("ERROR: no such version\nnotice\n\n", "ERROR: no such version"), ("a\nb\n", "b"), ("", "it does not say why")],
)
def test_the_line_that_says_why(text, said):
    assert reason(text) == said


def test_rows_of_the_table():
    row = {"name": "x", "proves": "nothing", "seconds": 3.0, "measured_users": 10, "peak_memory_mb": 12.3}
    assert cells(row, 10, 0.5) == ("3", "6", "12", "nothing")
    assert cells(row, 20, 0.5)[0] == "3 (from 10 users)"
    assert cells(row, 10, None)[1] == "-"
    assert cells(row, 10, 0.002)[1] == "1,500"
    assert cells({"name": "x", "why_not": "not installed"}, 10, 0.5) == ("-", "-", "-", "not installed")


def test_every_peer_has_a_program_and_says_what_it_proves():
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    assert all(peer.proves and peer.program for peer in PEERS)
