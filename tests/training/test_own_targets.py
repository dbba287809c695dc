"""Personal targets: whoever would pass the own one is left out, the others go on; by budgets alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import apes
from apes.cli.main import app

RNG = np.random.default_rng(1)
ROWS = RNG.random((1200, 5), dtype=np.float32)
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(int)
BUDGETS = np.repeat([0.1, 0.5, 1.0], [700, 350, 150])
PLAN = apes.Plan(clip=0.1, rounds=12, delta=1e-5, target_epsilon="own:0.45")
MODEL = apes.LogisticRegression(5, 2)


def people(rows=ROWS, labels=LABELS):
    return apes.People.from_arrays(rows, labels, budgets=BUDGETS, test=(ROWS, LABELS))


@pytest.fixture(scope="module")
def limited():
    reached = []
    return apes.train(MODEL, people(), PLAN, after_round=reached.append), reached


def sizes(run):
    return [exposure.budgets.size for exposure in run.exposures]


def test_nobody_passes_their_own_target_and_the_others_go_on(limited):
    run, _ = limited
    for budget in (0.1, 0.5, 1.0):
        assert 0 < run.guarantee.of(budget).epsilon <= 0.45 * budget
    # The boldest leave first: what they add up to grows faster than their budgets.
    assert sizes(run) == sorted(sizes(run), reverse=True)
    assert len(set(sizes(run))) > 1
    left = run.exposures[-1].budgets.max()
    assert left < 1.0
    free = apes.train(MODEL, people(), replace(PLAN, target_epsilon=None))
    assert free.guarantee.of(1.0).epsilon > 0.45
    # One more round with everybody would have passed somebody's target.
    rounds = sizes(run).count(1200) + 1
    boldest = apes.certify(BUDGETS, delta=1e-5, dimensions=MODEL.dimensions, rounds=rounds).epsilon
    assert boldest > 0.45


def test_who_is_left_out_does_not_depend_on_data(limited):
    other = apes.train(MODEL, people(1 - ROWS, 1 - LABELS), PLAN)
    assert sizes(other) == sizes(limited[0])
    assert other.model_sha256 != limited[0].model_sha256


def test_a_resumed_run_leaves_out_the_same(limited):
    run, reached = limited
    for progress in (reached[0], reached[-2]):
        again = apes.train(MODEL, people(), PLAN, resume=progress)
        assert sizes(again) == sizes(run)
        assert again.model_sha256 == run.model_sha256


def test_out_of_reach_for_everybody():
    with pytest.raises(apes.BudgetExceeded, match="not even one round"):
        apes.train(MODEL, people(), replace(PLAN, target_epsilon="own:1e-6"))


@pytest.mark.parametrize("target", ["own:", "own:0", "own:-1", "own:nan", "own:inf", "mine:2", "zzz"])
def test_wrong_targets(target):
    with pytest.raises(apes.ParameterError, match="target_epsilon must be a number or own:FACTOR"):
        apes.Plan(target_epsilon=target)


def test_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    budgets = tmp_path / "b.csv"
    budgets.write_text("\n".join(map(str, np.repeat([0.1, 1.0], 150))))
    options = ["--users", "300", "--rounds", "3", "--budgets", f"file:{budgets}", "--target-epsilon", "own:17"]
    done = CliRunner().invoke(app, ["train", *options, "--out", "run", "--json"])
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)["certified"]
    for group in said["by_budget"]:
        assert group["epsilon"] <= 17 * group["budget"]
    again = CliRunner().invoke(app, ["account", "--run", "run", "--plot", "run/account.png", "--json"])
    certified = json.loads(again.stdout)["certified"]
    assert certified["epsilon_by_round"] == said["epsilon_by_round"]
    # Everybody's own, and those who had left are in it.
    assert certified["by_budget"] == said["by_budget"]
    assert [group["users"] for group in certified["by_budget"]] == [150, 150]
    assert (tmp_path / "run" / "account.png").read_bytes().startswith(b"\x89PNG")
    refused = CliRunner().invoke(app, ["train", *options[:-1], "own:0.001", "--out", "other"])
    assert (refused.exit_code, (tmp_path / "other").exists()) == (2, False)
