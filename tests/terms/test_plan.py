"""The plan refuses what does not fit together, and the stages and the event come from the same fields."""

import dataclasses

import numpy as np
import pytest

from apes import ParameterError, Plan
from apes.accounting.exposure import budgets_digest


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"framework": "ape"}, r"framework must be one of .*'ape'"),
        ({"users": 0}, r"users must be in \[1, inf\), got 0"),
        ({"users": 2.5}, r"users must be a whole number, got 2.5"),
        ({"rounds": 0}, r"rounds must be in \[1, inf\), got 0"),
        ({"clip": 0.0}, r"clip must be in \(0, inf\), got 0.0"),
        ({"clip": float("nan")}, r"clip must be in \(0, inf\), got nan"),
        ({"clip": float("inf")}, r"clip must be in \(0, inf\), got inf"),
        ({"levels": 1}, r"levels must be in \[2, 256\], got 1"),
        ({"levels": 257}, r"levels must be in \[2, 256\], got 257"),
        ({"levels": "fine"}, r"levels must be one of continuous; got 'fine'"),
        ({"framework": "unis", "levels": 256}, r"levels must be left out"),
        ({"update": "newton"}, r"update must be one of"),
        ({"mu": 0.1}, r"mu must be left out"),
        ({"update": "fedprox", "mu": -1.0}, r"mu must be in"),
        ({"update": "fedprox", "local_epochs": 0}, r"local_epochs must be in"),
        ({"learning_rate": 0.0}, r"learning_rate must be in"),
        ({"momentum": 1.0}, r"momentum must be in"),
        ({"decay": -0.1}, r"decay must be in"),
        ({"averaging": float("nan")}, r"averaging must be in"),
        ({"calibration": "magic"}, r"calibration must be one of"),
        ({"framework": "pldp", "calibration": "inverse"}, r"calibration must be left out"),
        ({"levels": "continuous", "calibration": "likelihood"}, r"calibration must be inverse"),
        ({"keep": 0.2}, r"keep must be left out"),
        ({"framework": "s-apes", "keep": 0.0}, r"keep must be in"),
        ({"framework": "s-apes", "sparsifier": "best"}, r"sparsifier must be one of"),
        ({"seed": -1}, r"seed must be in"),
        ({"seed": 2**64}, r"seed must be in"),
    ],
    ids=str,
)
def test_bad_choices_name_parameter_range_and_value(choice, said):
    with pytest.raises(ParameterError, match=said) as caught:
        Plan(**choice)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_papers_setting():
    plan = Plan()
    assert (plan.framework, plan.budgets, plan.users, plan.rounds, plan.clip) == ("apes", "uniform2", 10_000, 40, 0.1)
    assert plan.coded_levels == 256


def test_fingerprint_changes_with_every_field():
    changes = {
        "framework": "s-apes", "budgets": "uniform1", "users": 9, "rounds": 9, "clip": 0.2, "levels": 16,
        "data": "mnist", "split": "label", "normalise": "unit-norm", "update": "fedprox", "learning_rate": 0.3,
        "momentum": 0.1, "decay": 0.1, "averaging": 1.0, "calibration": "inverse", "seed": 2,
    }  # fmt: skip
    prints = {Plan().fingerprint} | {dataclasses.replace(Plan(), **{k: v}).fingerprint for k, v in changes.items()}
    assert len(prints) == len(changes) + 1


def test_event_says_what_the_stages_do():
    plan = Plan(framework="s-apes-threshold", users=50, clip=0.25, levels=32)
    budgets = plan.population_budgets()
    event = plan.event(3, budgets, 70)
    assert (event.round, event.users, event.dimensions, event.levels, event.clip) == (3, 50, 70, 32, 0.25)
    assert (event.mechanism, event.shuffled, event.sparsifier) == ("clip-laplace", True, "threshold")
    assert (event.smallest_budget, event.largest_budget) == (budgets.min(), budgets.max())
    assert event.budgets_sha256 == budgets_digest(np.random.default_rng(1).permutation(budgets))
    assert event.budgets_sha256 != budgets_digest(budgets * 1.0000001)


def test_default_step_shrinks_with_the_noise():
    rates = [
        Plan(framework="unis", budgets=f"constant:{e}").optimizer(np.full(10_000, e)).learning_rate
        for e in (0.05, 0.1, 0.5, 5.0)
    ]
    assert rates == sorted(rates)
    assert rates[-1] == 4.0
    # 2C sqrt(2) / e / sqrt(n) is the noise of the mean Laplace report.
    assert rates[0] == pytest.approx(0.018 / (0.2 * 2**0.5 / 0.05 / 100))
