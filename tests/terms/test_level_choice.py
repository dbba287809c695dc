"""The choice of levels and clip: caps reach the target, and errors are those of the real randomizer."""

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.accounting.exposure import Exposure
from apes.accounting.planner import Goal
from apes.analyzer.calibrator import CodedInverse, adaptive_statistic
from apes.analyzer.expected import pooled_channel
from apes.budgets import make_budgets
from apes.cli.main import app
from apes.client.randomizer import CodedClipLaplace, Place
from apes.errors import ParameterError
from apes.mathematics.randomness import SimulationSource
from apes.messages import PermutedBatch
from apes.terms.level_choice import LEVELS, LevelChoice, Offer, choose_levels, standard_error

pytestmark = pytest.mark.service

BUDGETS = make_budgets("uniform2", 5000, 1)
GOAL = Goal(epsilon=0.3, delta=1e-6, rounds=1, exposure=Exposure(BUDGETS, 100))


@pytest.fixture(scope="module")
def choice():
    return choose_levels(GOAL, levels=(64, 128, 256))


@pytest.mark.service
def test_every_number_of_levels_reaches_the_target(choice):
    assert [(offer.levels, offer.bits) for offer in choice.offers] == [(64, 6), (128, 7), (256, 8)]
    for offer in choice.offers:
        goal = replace(GOAL, exposure=replace(GOAL.exposure, levels=offer.levels))
        assert offer.epsilon == goal.cost(np.minimum(BUDGETS, offer.cap)) <= 0.3
        assert offer.error == standard_error(np.minimum(BUDGETS, offer.cap), offer.levels)
        assert offer.error > 1.01 * standard_error(BUDGETS, offer.levels)
    # Under one budget fewer levels reveal more, so their cap is lower.
    caps = [offer.cap for offer in choice.offers]
    assert 0 < caps[0] < caps[1] < caps[2] < BUDGETS.max()
    assert choice.best.error == min(offer.error for offer in choice.offers)


@pytest.mark.parametrize("levels", LEVELS)
def test_the_predicted_error_is_that_of_the_real_randomizer(levels):
    clip, repeats = 0.3, 4000
    budgets = np.minimum(make_budgets("uniform2", 2000, 1), 0.6)
    randomizer = CodedClipLaplace(clip, levels)
    updates = np.zeros((budgets.size, repeats), dtype=np.float32)
    values = randomizer.draw(updates, randomizer.prepare(budgets), Place(0, 0), SimulationSource(5))
    calibrator = CodedInverse(clip, lambda e: pooled_channel(e, levels), adaptive_statistic)
    observed = calibrator.estimate(PermutedBatch(values.T, budgets)).mean.std()
    predicted = LevelChoice((Offer(levels, 1, 0.6, 1.0, standard_error(budgets, levels)),)).errors([clip])[0, 0]
    limit = 5 / np.sqrt(2 * repeats)  # standard error of a standard deviation, relative
    assert abs(observed / predicted - 1) <= limit
    assert abs(observed / (0.9 * predicted) - 1) > limit


def test_errors_shrink_with_the_crowd_and_grow_with_the_clip(choice):
    assert standard_error(np.full(400, 0.5), 4) == pytest.approx(standard_error(np.full(100, 0.5), 4) / 2)
    one, two = choice.errors([0.1, 0.2]).T
    assert two == pytest.approx(2 * one)
    with pytest.raises(ParameterError, match="clip"):
        choice.errors([0.0])


def test_of_two_levels_the_error_is_that_of_randomized_response():
    assert standard_error(np.full(50, 1.0), 2) == pytest.approx(1 / (math.sqrt(50) * math.tanh(0.5)))


def test_an_offer_out_of_reach_is_never_the_best():
    none = Offer(2, 1, None, None, math.inf, "more users")
    some = Offer(4, 2, 0.1, 0.5, 3.0)
    assert LevelChoice((none, some)).best is some
    assert LevelChoice((none,)).best.advice == "more users"
    assert choose_levels(Goal(1e-7, 1e-9, 4, Exposure(np.ones(2), 50)), levels=(16,)).best.cap is None


@pytest.mark.service
def test_command(tmp_path, monkeypatch):
    # Few levels take their time to certify.
    monkeypatch.setattr("apes.cli.plan.choose_levels", partial(choose_levels, levels=(64, 256)))
    command = ["plan", "--target-epsilon", "0.3", "--delta", "1e-6", "--users", "5000", "--dimensions", "100"]
    command += ["--rounds", "1", "--solve"]
    picture = tmp_path / "levels.png"
    done = CliRunner().invoke(app, [*command, "levels", "--clip", "0.1,0.2", "--plot", str(picture), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["solve"], result["feasible"], result["clips"]) == ("levels", True, [0.1, 0.2])
    best = min(result["trade"], key=lambda offer: offer["error"])
    assert (result["answer"], result["cap"]) == (best["levels"], best["cap"])
    assert best["errors"] == pytest.approx([0.1 * best["error"], 0.2 * best["error"]])
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["levels", "--clip", "0.1,many"], "clip must be numbers"),
        (["levels", "--clip", "0"], "clip must be in (0, inf)"),
        (["cap", "--clip", "0.1"], "clip must be left out"),
        (["cap", "--cap", "0.5"], "cap must be left out to solve for it"),
        (["rounds", "--cap", "nan"], "cap must be in (0, inf), got nan"),
        (["users", "--budgets", "file:none.csv"], "cannot read the budgets in none.csv"),
        (["cap", "--rounds", "1000000000000"], "rounds must be in [1, 1000000], got 1000000000000"),
        (["rounds", "--users", "1000000000000"], "users must be in [1, 10000000], got 1000000000000"),
        (["cap", "--dimensions", "1" + 40 * "0"], "dimensions must be in [1, 1000000000000]"),
    ],
)
def test_bad_input(options, said):
    done = CliRunner().invoke(app, ["plan", "--target-epsilon", "1", "--delta", "1e-6", "--solve", *options])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
