"""Plans reach their target, on the safe side, and a little more would not."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from levels import sampled
from typer.testing import CliRunner

from apes import ParameterError, make_budgets
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certify
from apes.accounting.planner import Goal, curve_around, fewest_users, largest_cap, most_rounds
from apes.cli.main import app

BUDGETS = make_budgets("uniform2", 2000, 1)
GOAL = Goal(epsilon=1.0, delta=1e-6, rounds=4, exposure=Exposure(BUDGETS, 200, 4))


@pytest.mark.service
def test_largest_cap():
    answer = largest_cap(GOAL)
    assert answer.epsilon == GOAL.cost(np.minimum(BUDGETS, answer.value)) <= 1.0
    assert GOAL.cost(np.minimum(BUDGETS, answer.value * 1.002)) > 1.0


def test_no_cap_is_needed():
    goal = Goal(epsilon=100.0, delta=1e-6, rounds=1, exposure=Exposure(BUDGETS, 2, 16))
    assert largest_cap(goal).value == BUDGETS.max()


@pytest.mark.service
@pytest.mark.parametrize("population", sampled([lambda n: np.full(n, 0.5), lambda n: np.linspace(0.05, 1, n)], keep=1))
def test_fewest_users(population):
    answer = fewest_users(population, GOAL)
    assert answer.epsilon == GOAL.cost(population(answer.value)) <= 1.0
    assert GOAL.cost(population(answer.value - 1)) > 1.0


@pytest.mark.service
def test_the_luck_of_a_small_draw_is_passed_over():
    # The first user, with a budget of 0.1, reaches the goal alone; no population of 2 to 40 does.
    def population(n):
        return np.append(0.1, np.full(n - 1, 2.0))

    goal = Goal(epsilon=4.0, delta=1e-6, rounds=1, exposure=Exposure(population(1), 4, 2))
    assert goal.cost(population(1)) <= 4.0
    answer = fewest_users(population, goal)
    assert answer.value > 2
    assert goal.cost(population(answer.value - 1)) > 4.0


@pytest.mark.service
def test_one_user_may_be_enough():
    assert fewest_users(lambda n: np.full(n, 0.1), replace(GOAL, rounds=1, exposure=Exposure(BUDGETS, 2, 4))).value == 1


def random_question(number):
    """What is solved for, a population of any size by a law, and a target that takes some search."""
    rng = np.random.default_rng(number)
    solve = ("cap", "users", "rounds")[number % 3]
    law = str(rng.choice(["uniform1", "uniform2", "uniform3", "gauss2", "mixgauss3", "grid:0.1:2", "constant:0.7"]))
    users, dimensions, rounds = int(10 ** rng.uniform(3, 4)), int(rng.integers(2, 60)), int(rng.integers(1, 12))
    delta, levels = 10.0 ** -rng.uniform(3, 8), (256, None)[rng.integers(2)]

    def population(n):
        return make_budgets(law, n, number)

    goal = Goal(1.0, delta, rounds, Exposure(population(users), dimensions, levels))
    # A cap below the largest budget; more users than there are, or fewer; a few rounds, or dozens.
    typical = replace(goal, rounds=1).cost(population(users)) if solve == "rounds" else goal.cost(population(users))
    factor = {"cap": rng.uniform(0.1, 0.9), "users": rng.uniform(0.4, 2.0), "rounds": rng.uniform(1.1, 6.0)}[solve]
    return solve, population, replace(goal, epsilon=float(typical * factor))


def searched_and_next_worse(solve, population, goal):
    """The answer, and budgets and rounds at the answer and at the next worse value."""
    budgets = goal.exposure.budgets
    if solve == "cap":
        answer = largest_cap(goal)
        places = answer.value, 1.002 * answer.value
        return answer, [(np.minimum(budgets, cap), goal.rounds) for cap in places]
    if solve == "users":
        answer = fewest_users(population, goal)
        return answer, [(population(n), goal.rounds) for n in (answer.value, answer.value - 1)]
    answer = most_rounds(goal)
    return answer, [(budgets, rounds) for rounds in (answer.value, answer.value + 1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(20))
def test_plans_invert_the_accountant(number):
    solve, population, goal = random_question(number)
    answer, settings = searched_and_next_worse(solve, population, goal)
    sizes = {"dimensions": goal.exposure.charged, "levels": goal.exposure.levels}
    costs = [certify(budgets, delta=goal.delta, rounds=rounds, **sizes).epsilon for budgets, rounds in settings]
    assert answer.epsilon == costs[0] <= goal.epsilon
    assert costs[1] > goal.epsilon


def test_most_rounds():
    goal = replace(GOAL, epsilon=5.0, rounds=1)
    answer = most_rounds(goal)
    assert answer.value >= 2
    assert answer.epsilon == replace(goal, rounds=answer.value).cost(BUDGETS) <= 5.0
    assert replace(goal, rounds=answer.value + 1).cost(BUDGETS) > 5.0


@pytest.mark.service
def test_progress_goes_from_nothing_to_all():
    seen = []
    most_rounds(replace(GOAL, epsilon=1.1), lambda done, total: seen.append((done, total)))
    assert all(0 <= done <= total == 100 for done, total in seen)
    assert seen == sorted(seen)
    assert seen[-1] == (100, 100)


def test_curve():
    curve = curve_around(lambda cap: cap**2, 0.5, 1.0, is_whole=False)
    assert list(curve.places) == sorted(curve.places)
    assert (min(curve.places), max(curve.places)) == pytest.approx((0.0625, 1.0))
    assert dict(zip(curve.places, curve.epsilons, strict=True))[0.5] == 0.25
    whole = curve_around(lambda rounds: rounds, 3, math.inf, is_whole=True)
    assert whole.places == tuple(int(place) for place in whole.places)
    assert (whole.places[0], whole.places[-1], 3.0 in whole.places) == (1, 24, True)


@pytest.mark.service
def test_what_cannot_be_reached_says_what_could():
    impossible = replace(GOAL, epsilon=0.01)
    answer = most_rounds(impossible)
    assert (answer.value, answer.epsilon) == (None, None)
    assert "one round alone costs" in answer.advice
    cap = float(re.search("cap the budgets at ([0-9.e-]+)", answer.advice)[1])
    assert replace(impossible, rounds=1).cost(np.minimum(BUDGETS, 0.99 * cap)) <= 0.01


def test_what_no_cap_and_no_crowd_can_reach():
    tiny = Goal(epsilon=1e-6, delta=1e-9, rounds=4, exposure=Exposure(np.full(2, 1.0), 200, 256))
    capped = largest_cap(tiny)
    assert (capped.value, "even a cap of 1e-06 costs" in capped.advice) == (None, True)
    crowd = fewest_users(lambda n: np.array([1.0]), tiny)
    assert (crowd.value, "10,000,000 users still cost" in crowd.advice) == (None, True)


@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"epsilon": float("nan")}, {"delta": 0}, {"rounds": 0}])
def test_bad_goals(bad):
    with pytest.raises(ParameterError):
        Goal(**{"epsilon": 1.0, "delta": 1e-6, "rounds": 1, "exposure": Exposure(BUDGETS, 5)} | bad)
    with pytest.raises(ParameterError, match="levels"):
        Exposure(BUDGETS, 5, levels=1)


@pytest.mark.service
def test_command(tmp_path):
    command = [
        "plan",
        "--delta",
        "1e-6",
        "--users",
        "1100",
        "--dimensions",
        "20",
        "--rounds",
        "2",
        "--levels",
        "4",
        "--json",
    ]

    def run(*more):
        return CliRunner(env={"COLUMNS": "120"}).invoke(app, [*command, *more])

    done = run("--target-epsilon", "0.3", "--solve", "cap", "--plot", str(tmp_path / "cap.png"))
    result = json.loads(done.stdout)
    assert (done.exit_code, result["feasible"], result["solve"]) == (0, True, "cap")
    assert 0 < result["certified"]["epsilon"] <= 0.3
    assert (tmp_path / "cap.png").read_bytes().startswith(b"\x89PNG")
    hopeless = run("--target-epsilon", "0.001", "--solve", "rounds")
    assert hopeless.exit_code == 1
    assert json.loads(hopeless.stdout)["advice"]
    dense, sparse = (
        json.loads(run("--target-epsilon", "2", "--solve", "rounds", "--framework", name).stdout)["answer"]
        for name in ("apes", "s-apes-first")
    )
    assert dense < sparse
    padded = run("--target-epsilon", "1", "--solve", "levels", "--framework", "s-apes-threshold")
    assert (padded.exit_code, "framework must be one without padding" in padded.stderr) == (2, True)
    unknown = run("--target-epsilon", "1", "--solve", "luck")
    assert (unknown.exit_code, "solve must be one of cap, users, rounds, levels; got" in unknown.stderr) == (2, True)
