"""Extremes: one line that names parameter, range and value, or a bound that holds; never a traceback."""

import json
import math
import warnings
from itertools import product

import numpy as np
import pytest
from levels import sampled
from typer.testing import CliRunner

import apes
from apes.cli.main import app

BUDGETS = np.full(20, 1.0)


@pytest.fixture(autouse=True)
def loud():
    """What overflows is not hidden."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def accountant(**changes):
    return apes.Accountant(**({"delta": 1e-5, "expected_rounds": 4} | changes))


@pytest.mark.parametrize("digits", [6, 18, 30, 308, 400, 5000])
def test_rounds_have_an_end(digits):
    rounds = 10**digits + 1
    said = r"rounds must be in \[1, 1000000\], got "
    for ask in (
        lambda: apes.certify(BUDGETS, delta=1e-5, rounds=rounds),
        lambda: accountant(expected_rounds=rounds),
        lambda: accountant().charge(apes.Exposure(BUDGETS, 5, 2), rounds),
        lambda: apes.Terms(rounds=rounds),
        lambda: apes.Plan(rounds=rounds),
    ):
        with pytest.raises(apes.ParameterError, match=said) as refused:
            ask()
        assert len(str(refused.value)) < 120


def test_rounds_have_an_end_also_in_parts():
    endless, exposure = accountant(), apes.Exposure(np.full(2000, 0.01), 1, 2)
    endless.charge(exposure, 10**6)
    with pytest.raises(apes.ParameterError, match=r"rounds charged in all must be in \[1, 1000000\], got 1000001"):
        endless.charge(exposure)
    assert endless.rounds == 10**6


@pytest.mark.parametrize(
    ("delta", "said"),
    [(1e-101, r"\[1e-100, 1\)"), (5e-324, r"\[1e-100, 1\)"), (0, r"\[1e-100, 1\)"), (1.0, r"\[1e-100, 1\)")],
)
def test_deltas_have_an_end(delta, said):
    for target in (None, 1.0):
        with pytest.raises(apes.ParameterError, match=f"delta must be in {said}, got {delta}"):
            accountant(delta=delta, target=target)


@pytest.mark.parametrize("target", [1e-300, 1e-9, 1e8, 1e300])
def test_whatever_the_target_is_it_is_one(target):
    """A filter for more lets no less pass, and what passes keeps to it."""
    limited, exposure = accountant(target=target), apes.Exposure(np.full(5000, 0.01 if target > 1 else 1e-9), 3, 2)
    limited.charge(exposure, 4)
    assert limited.guarantee.epsilon <= target
    assert limited.limit.mu_squared >= accountant(target=min(target, 100.0)).limit.mu_squared > 0


@pytest.mark.service
@pytest.mark.parametrize(("levels", "budget"), sampled(list(product([3, 2, 256, None], [5e-324, 1e-13])), keep=1))
def test_tiny_budgets(budget, levels):
    for others in ([budget] * 3, [budget, budget, 1.0]):
        plain = apes.certify(others, delta=1e-6, levels=levels, dimensions=2, rounds=2)
        first = apes.certify(others, delta=1e-6, levels=levels, dimensions=8, top_b_first=2)
        for guarantee in (plain, first):
            assert 0 <= guarantee.of(budget).epsilon <= 4 * budget * (1 + 1e-6)
            assert 0 <= guarantee.lower <= guarantee.epsilon <= 4 * max(others) * (1 + 1e-6)
    # Whoever reports next to nothing hides others as well as whoever reports nothing at all: within the precision.
    noise = apes.certify([1e-9, 1e-9, 1.0], delta=1e-6, levels=levels, dimensions=2, rounds=2).epsilon
    assert plain.epsilon == pytest.approx(noise, rel=1e-4)


@pytest.mark.parametrize("budgets", [[1e300, 1.0], [1.7e308] * 2, [5e-324, 1e308]])
@pytest.mark.parametrize("levels", [2, 3, 256, None])
def test_huge_budgets(budgets, levels):
    guarantee = apes.certify(budgets, delta=1e-6, levels=levels, dimensions=4)
    assert guarantee.epsilon >= 4e300
    assert (guarantee.why_not_certified is None) == (guarantee.epsilon < math.inf)
    assert guarantee.delta_at(1e308) <= 1


@pytest.mark.parametrize(
    ("norm", "clip", "like"), [(1e200, 1.0, None), (1e300, 1e-300, None), (1e-300, 1e300, 1e-9), (3.0, 1.0, None)]
)
def test_norms_of_all_sizes(norm, clip, like):
    """Beyond sqrt(d) C a norm bounds nothing; close to none, nothing is told."""
    asked, same = (accountant() for _ in range(2))
    epsilon = asked.charge(apes.Exposure(BUDGETS, 5, 2, clip=clip, norm=norm))
    assert epsilon <= same.charge(apes.Exposure(BUDGETS, 5, 2, norm=like))
    assert like is not None or asked.spent.mu_squared == pytest.approx(same.spent.mu_squared)


def account(*options):
    done = CliRunner().invoke(app, ["account", "--users", "60", *options, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr.strip()


@pytest.mark.service
@pytest.mark.parametrize(
    "options",
    sampled(
        [
            "--norm 1e200 --clip 1 --dimensions 10",
            "--budgets constant:1e-310 --dimensions 3 --levels 2",
            "--budgets constant:1e-310 --dimensions 3 --levels 16",
            "--rounds 1000000 --dimensions 1000000000000 --levels 2",
        ],
        keep=2,
    ),
)
def test_commands_answer(options):
    code, said, problem = account(*options.split())
    assert code == 0, problem
    certified = json.loads(said)["certified"]
    assert 0 <= certified["round"]["epsilon"] <= certified["total"]["epsilon"] < math.inf


@pytest.mark.service
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rounds", "1000000000000000000"), "--rounds must be in [1, 1000000], got 1000000000000000000"),
        (("--dimensions", "10000000000000"), "--dimensions must be in [1, 1000000000000], got 10000000000000"),
    ],
)
def test_commands_refuse_in_one_line(options, said):
    assert account(*options) == (2, "", f"apes: {said}")
