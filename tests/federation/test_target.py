"""A federation with a target: the shuffler releases no round that would pass it, and the run ends with what it has."""

import json

import numpy as np
import pytest
from local_federation import LocalFederation, few_people, small_federation
from parties import apes as command
from parties import new_run, take, worst_of

import apes
from apes.storage.database import read_database
from apes.wire.release import Release

DEVICES, ROUNDS, LEVELS = 2, 3, 16


@pytest.fixture(scope="module")
def figures():
    """What one and two rounds of the federation cost, by its budgets and the Gaussians that a filter counts in."""
    delta, exposure = 1 / (10 * DEVICES), apes.Exposure(worst_of(few_people(DEVICES).budgets, DEVICES), 15, LEVELS)
    # A thousandth of delta is set aside for a thousand times the rounds.
    cost = exposure.cost(1e-3 * delta / (1e3 * ROUNDS * 15))
    return [cost.times(rounds).epsilon(delta) for rounds in (1, 2)]


def trained(folder, target):
    """A federation with this target after its analyzer has come to the end."""
    small_federation(folder, rounds=ROUNDS, vaults=DEVICES, target_epsilon=target)
    with LocalFederation(folder) as federation:
        federation.train()
    return federation


def released(federation):
    """The releases in the shuffler's ledger, by round."""
    rows = read_database(federation.shuffler.ledger, "select round, release from rounds")
    return {number: Release.decode(release) for number, release in rows}


def answered(federation):
    """The rounds that each vault answered."""
    return [[row[0] for row in vault.rows("select round from answers order by round")] for vault in federation.vaults]


def test_a_target_below_the_first_round(figures, tmp_path):
    federation = trained(tmp_path / "f", 0.9 * figures[0])
    code, output, errors = command("federation", "up", federation.layout.folder, "--json")
    said = "apes: not even one round keeps within target_epsilon: the shuffler refused (target): round 1 would bring"
    assert (code, output) == (2, "")
    assert said in errors
    assert released(federation) == {}
    assert read_database(federation.shuffler.ledger, "select * from participants") == []
    # Everybody had reported: it is the shuffler that let nothing through.
    assert answered(federation) == DEVICES * [[1]]
    run = federation.layout.analyzer / "run"
    assert not (run / "model.npz").exists()
    assert not (run / "private/checkpoint.npz").exists()
    assert not list((run / "rounds").iterdir())
    assert json.loads((run / "private/summary.json").read_text())["rounds"] == 0
    # It is over, and said so without starting anything.
    assert not federation.layout.processes.exists()


@pytest.mark.service
def test_a_target_between_the_first_two_rounds(figures, tmp_path):
    target = sum(figures) / 2
    assert figures[0] < 0.99 * target < 0.99 * 0.99 * figures[1]
    federation = trained(tmp_path / "f", target)
    code, output, errors = command("federation", "up", federation.layout.folder, "--json")
    assert code == 0, errors
    summary, releases = json.loads(output), released(federation)
    assert list(releases) == [1]
    assert answered(federation) == DEVICES * [[1, 2]]
    assert (summary["rounds"], summary["participants_by_round"]) == (1, [DEVICES])
    certified = summary["certified"]
    # The target, but for what the filter sets aside.
    assert 0.999 * target < certified["epsilon"] <= target
    assert certified["road"] == "adaptive"
    assert certified["mu"] > 0
    assert certified["epsilon_by_round"] == pytest.approx(figures[:1], rel=1e-5)
    run = new_run(federation.layout)
    take(run, apes.CountedBatch(releases[1].counts, few_people(DEVICES).budgets))
    assert federation.model() == run.model().tobytes()
    assert not np.array_equal(run.model(), new_run(federation.layout).model())
