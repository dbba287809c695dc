"""A federation with a target, as real processes: the shuffler releases no round that would pass it."""

import json

import numpy as np
import pytest
from parties import apes as command
from parties import new_run, take, worst_of

import apes
from apes.federation.subject import Subject
from apes.federation.trial.layout import Layout
from apes.federation.trial.setup import set_up
from apes.storage.database import read_database
from apes.wire.release import Release

pytestmark = pytest.mark.slow
DEVICES, ROUNDS, LEVELS = 2, 3, 16
PEOPLE = apes.Simulation(users=DEVICES, budgets="grid:0.5:1", features="pixels")


@pytest.fixture(scope="module")
def tiny(small_digits):
    """Four pixels of a few digits in three classes: 15 coordinates, so that certificates take a moment."""
    train, test = small_digits.train_labels < 3, small_digits.test_labels < 3
    middle = slice(400, 404)
    return apes.Dataset(
        "digits",
        small_digits.train_images[train][:100, middle],
        small_digits.train_labels[train][:100],
        small_digits.test_images[test][:, middle],
        small_digits.test_labels[test],
        "made for the tests",
        classes=3,
    )


@pytest.fixture(scope="module")
def figures(tiny):
    """What one and two rounds of the federation cost, by its budgets and the Gaussians that a filter counts in."""
    delta, exposure = 1 / (10 * DEVICES), apes.Exposure(worst_of(PEOPLE.people(tiny).budgets, DEVICES), 15, LEVELS)
    # A thousandth of delta is set aside for a thousand times the rounds.
    cost = exposure.cost(1e-3 * delta / (1e3 * ROUNDS * 15))
    return [cost.times(rounds).epsilon(delta) for rounds in (1, 2)]


def up(folder, tiny, target):
    """Make a federation with this target, and let it run."""
    plan = apes.Plan(rounds=ROUNDS, levels=LEVELS, target_epsilon=target)
    set_up(folder, plan, Subject.of_images(PEOPLE, tiny), PEOPLE.people(tiny), DEVICES, colluding=0)
    try:
        return Layout(folder), command("federation", "up", folder, "--json")
    finally:
        assert command("federation", "down", folder)[0] == 0


def released(layout):
    """The releases in the shuffler's ledger, by round."""
    rows = read_database(layout.shuffler / "ledger.sqlite", "select round, release from rounds")
    return {number: Release.decode(release) for number, release in rows}


def answered(layout):
    """The rounds that each vault answered."""
    ledgers = [layout.vault(number) / "ledger.sqlite" for number in range(1, DEVICES + 1)]
    return [[row[0] for row in read_database(ledger, "select round from answers order by round")] for ledger in ledgers]


def test_a_target_below_the_first_round(tiny, figures, tmp_path):
    layout, (code, output, errors) = up(tmp_path / "f", tiny, 0.9 * figures[0])
    said = "apes: not even one round keeps within target_epsilon: the shuffler refused (target): round 1 would bring"
    assert (code, output) == (2, "")
    assert said in errors
    assert released(layout) == {}
    assert read_database(layout.shuffler / "ledger.sqlite", "select * from participants") == []
    # Everybody had reported: it is the shuffler that let nothing through.
    assert answered(layout) == DEVICES * [[1]]
    run = layout.analyzer / "run"
    assert not (run / "model.npz").exists()
    assert not (run / "checkpoint.npz").exists()
    assert json.loads((run / "summary.json").read_text())["rounds"] == 0
    # It is over, and says so again without starting anything.
    assert command("federation", "up", layout.folder)[0] == 2
    assert not layout.processes.exists() or json.loads(layout.processes.read_text()) == {}


def test_a_target_between_the_first_two_rounds(tiny, figures, tmp_path):
    target = sum(figures) / 2
    assert figures[0] < 0.99 * target < 0.99 * 0.99 * figures[1]
    layout, (code, output, errors) = up(tmp_path / "f", tiny, target)
    assert code == 0, errors
    summary, releases = json.loads(output), released(layout)
    assert list(releases) == [1]
    assert answered(layout) == DEVICES * [[1, 2]]
    assert (summary["rounds"], summary["participants_by_round"]) == (1, [DEVICES])
    certified = summary["certified"]
    # The target, but for what the filter sets aside.
    assert 0.999 * target < certified["epsilon"] <= target
    assert certified["road"] == "adaptive"
    assert certified["mu"] > 0
    assert certified["epsilon_by_round"] == pytest.approx(figures[:1], rel=1e-5)
    run = new_run(layout)
    take(run, apes.CountedBatch(releases[1].counts, PEOPLE.people(tiny).budgets))
    with np.load(layout.analyzer / "run" / "model.npz") as stored:
        np.testing.assert_array_equal(stored["weights"], run.model())
