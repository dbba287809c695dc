"""Plans reach their target, on the safe side, and a little more would not."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from apes import ParameterError, make_budgets
from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import certify
from apes.accounting.planner import Goal, fewest_users, largest_cap, most_rounds

GOAL = Goal(epsilon=1.0, delta=1e-6, dimensions=50, rounds=4, levels=16)
BUDGETS = make_budgets("uniform2", 500, 1)


def test_largest_cap():
    answer = largest_cap(BUDGETS, GOAL)
    assert answer.epsilon == GOAL.cost(np.minimum(BUDGETS, answer.value)) <= 1.0
    assert GOAL.cost(np.minimum(BUDGETS, answer.value * 1.002)) > 1.0


def test_no_cap_is_needed():
    goal = Goal(epsilon=100.0, delta=1e-6, dimensions=2, rounds=1, levels=16)
    assert largest_cap(BUDGETS, goal).value == BUDGETS.max()


def test_fewest_users():
    def population(n):
        return np.linspace(0.05, 1, n)

    answer = fewest_users(population, GOAL)
    assert answer.epsilon == GOAL.cost(population(answer.value)) <= 1.0
    assert GOAL.cost(population(int(answer.value * 0.995))) > 1.0


def test_most_rounds():
    goal = Goal(epsilon=5.0, delta=1e-6, dimensions=50, rounds=1, levels=16)
    answer = most_rounds(BUDGETS, goal)
    accountant = Accountant(BUDGETS, 50, answer.value + 1, 1e-6, 16)
    assert answer.value >= 2
    assert accountant.epsilon_after(answer.value) <= 5.0 * 1.001
    assert accountant.epsilon_after(answer.value + 1) > 5.0 * 0.999


def test_what_cannot_be_reached_says_what_could():
    impossible = Goal(epsilon=0.01, delta=1e-6, dimensions=50, rounds=4, levels=16)
    answer = most_rounds(BUDGETS, impossible)
    assert (answer.value, answer.epsilon) == (None, None)
    assert "one round alone costs" in answer.advice


@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"epsilon": float("nan")}, {"delta": 0}, {"rounds": 0}, {"levels": 1}])
def test_bad_goals(bad):
    with pytest.raises(ParameterError):
        Goal(**{"epsilon": 1.0, "delta": 1e-6, "dimensions": 5, "rounds": 1} | bad)


def test_accountant_adds_up_like_certify():
    accountant = Accountant(BUDGETS, 50, 4, 1e-6, 16)
    spent = [accountant.epsilon_after(rounds) for rounds in (1, 2, 3, 4)]
    assert spent == sorted(spent)
    assert spent[-1] == certify(BUDGETS, delta=1e-6, dimensions=50, rounds=4, levels=16).epsilon
    limited = Accountant(BUDGETS, 50, 4, 1e-6, 16, target=spent[1])
    assert [limited.allows(rounds) for rounds in (1, 2, 3)] == [True, True, False]
    with pytest.raises(ParameterError, match="rounds"):
        accountant.epsilon_after(5)


def test_command(tmp_path):
    command = [sys.executable, "-m", "apes", "plan", "--delta", "1e-6", "--users", "200", "--dimensions", "20"]
    command += ["--rounds", "2", "--json"]
    environment = dict(os.environ, COLUMNS="120")

    def run(*more):
        return subprocess.run([*command, *more], capture_output=True, text=True, cwd=tmp_path, env=environment)

    done = run("--target-epsilon", "1", "--solve", "cap")
    result = json.loads(done.stdout)
    assert (done.returncode, result["feasible"], result["solve"]) == (0, True, "cap")
    assert 0 < result["certified"]["epsilon"] <= 1
    hopeless = run("--target-epsilon", "0.001", "--solve", "rounds")
    assert hopeless.returncode == 1
    assert json.loads(hopeless.stdout)["advice"]
    unknown = run("--target-epsilon", "1", "--solve", "luck")
    assert (unknown.returncode, "solve must be one of cap, users, rounds" in unknown.stderr) == (2, True)
