"""The audit: silent on the real pipeline, loud on pipelines that are weaker than certified."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner
from weaker import lets_values_through, run_at

from apes.audit.attack import Attack, audited_epsilon, clopper_pearson, error_rates
from apes.audit.audit import AuditResult, audit
from apes.audit.trials import Attacked
from apes.budgets import make_budgets
from apes.cli.main import app
from apes.errors import ParameterError
from apes.terms.terms import Terms

SMALL = {"dimensions": 3, "trials": 2000, "levels": 16, "delta": 1e-5, "seed": 3}
# Audits of one user at 1.0: what 200,000 trials show of it, the worst of six seeds being 0.972, 0.955, 0.886, 0.835.
LONE = {"dimensions": 1, "trials": 200_000, "delta": 1e-6, "seed": 1}
SERVICE = pytest.mark.service
EXHAUSTIVE = pytest.mark.exhaustive


def apes_audit(budgets, *, levels=256, **options):
    return audit(Terms(levels=levels), budgets, **options)


@pytest.mark.parametrize(
    ("budgets", "dimensions", "trials", "levels", "delta"),
    [
        pytest.param([1.0], 2, 20_000, 256, 1e-6, marks=SERVICE),
        ([2.0, 0.5], 2, 20_000, 2, 1e-6),
        pytest.param([1.0] * 20, 10, 5000, 256, 1e-5, marks=EXHAUSTIVE),
        pytest.param([1.0] * 20, 10, 10_000, 3, 0.01, marks=SERVICE),
        pytest.param([5.0] + [0.1] * 30, 5, 5000, 17, 1e-3, marks=SERVICE),
        pytest.param(make_budgets("uniform2", 200, 1), 20, 2000, 256, 1e-5, marks=SERVICE),
        ([60.0, 40.0], 2, 1000, 256, 1e-6),
        ([1e-9] * 3, 2, 1000, 256, 1e-6),
        pytest.param([1.0] * 3, 7850, 4, 256, 1e-6, marks=SERVICE),
    ],
    ids=["alone", "pair", "twenty", "twenty, large delta", "one careless", "uniform2", "huge", "tiny", "wide"],
)
def test_certificates_stand_the_audit(budgets, dimensions, trials, levels, delta):
    result = apes_audit(np.array(budgets), dimensions=dimensions, trials=trials, levels=levels, delta=delta, seed=1)
    assert 0 <= result.coordinate_audited <= result.coordinate_certified
    assert 0 <= result.user_audited <= result.user_certified
    assert result.passed


@pytest.mark.service
@pytest.mark.parametrize("levels", [2, 4])
@pytest.mark.parametrize("budget", [pytest.param(0.5, marks=EXHAUSTIVE), 1.0, 2.0])
def test_a_lone_users_budget_is_found_to_5_percent(levels, budget):
    # A smaller budget takes more trials: the relative error falls like 1 / (budget sqrt(trials)).
    trials = {"trials": 800_000 if budget < 1 else 200_000}
    result = apes_audit(np.array([budget]), levels=levels, **{**LONE, **trials})
    assert 0.95 * budget < result.coordinate_audited <= budget


@pytest.mark.parametrize(
    ("levels", "claimed"),
    [(2, 0.97), (4, 0.95), pytest.param(16, 0.88, marks=SERVICE), pytest.param(256, 0.8, marks=SERVICE)],
    ids=lambda value: str(value),
)
def test_a_lone_user_run_at_a_larger_budget_than_claimed_is_found_out(monkeypatch, levels, claimed):
    assert apes_audit(np.array([claimed]), levels=levels, **LONE).passed
    run_at(monkeypatch, lambda budgets: budgets / claimed)
    result = apes_audit(np.array([claimed]), levels=levels, **LONE)
    assert not result.passed
    assert result.coordinate_audited > result.coordinate_certified


@pytest.mark.parametrize("n", [pytest.param(2, marks=SERVICE), pytest.param(3, marks=EXHAUSTIVE)])
def test_a_few_users_run_at_a_budget_10_percent_too_large_are_found_out(monkeypatch, n):
    options = {"dimensions": 2, "trials": 500_000, "levels": 2, "delta": 1e-6, "seed": 1}
    assert apes_audit(np.full(n, 0.9), **options).passed
    run_at(monkeypatch, lambda budgets: budgets / 0.9)
    result = apes_audit(np.full(n, 0.9), **options)
    assert not result.passed


def test_a_breach_at_the_user_level_alone_is_found_out():
    # Coordinates that are fine one by one, and too many of them.
    none = Attack(10, (), ())
    sound = AuditResult(10, 2, 0.1, 0.999, 0.5, 1.0, 0.5, 1.0, none, none)
    assert sound.passed
    assert not dataclasses.replace(sound, user_audited=1.1).passed
    assert not dataclasses.replace(sound, coordinate_audited=1.1).passed
    assert not dataclasses.replace(sound, coordinate_audited=math.nan).passed


def test_the_user_level_finds_a_larger_budget_too(monkeypatch):
    run_at(monkeypatch, lambda budgets: budgets / 0.9)
    result = apes_audit(np.array([0.9]), **{**LONE, "dimensions": 2, "levels": 2})
    assert result.user_audited > result.user_certified > 1.7


def test_the_victim_is_the_least_careful():
    """Whose budget is 2 among people of 0.1; an attack on one of those would find next to nothing."""
    result = apes_audit(np.array([0.1, 2.0, 0.1]), dimensions=1, trials=40_000, levels=2, delta=1e-6, seed=1)
    assert result.passed
    assert 1.0 < result.coordinate_audited


def test_a_clip_that_lets_values_through_is_found_out(monkeypatch):
    assert apes_audit(np.array([1.0]), **{**LONE, "trials": 20_000, "levels": 2}).passed
    lets_values_through(monkeypatch)
    result = apes_audit(np.array([1.0]), **{**LONE, "trials": 20_000, "levels": 2})
    assert not result.passed
    assert result.coordinate_audited > 1.7 * result.coordinate_certified


@pytest.mark.parametrize("n", [pytest.param(5, marks=SERVICE), pytest.param(20, marks=EXHAUSTIVE)])
def test_in_a_crowd_a_large_delta_finds_out_what_a_tiny_one_cannot(monkeypatch, n):
    options = {"dimensions": 10, "trials": 10_000, "seed": 1}
    assert apes_audit(np.full(n, 0.5), delta=0.02, **options).passed
    run_at(monkeypatch, lambda budgets: 2 * budgets)
    tiny, large = (apes_audit(np.full(n, 0.5), delta=delta, **options) for delta in (1e-5, 0.02))
    assert tiny.coordinate_audited < 1.1 * tiny.coordinate_certified
    assert tiny.user_audited < tiny.user_certified
    assert not large.passed
    assert large.coordinate_audited > 1.5 * large.coordinate_certified
    assert large.user_audited > 1.1 * large.user_certified


@pytest.mark.exhaustive
def test_others_who_do_not_perturb_do_not_hide_anybody(monkeypatch):
    budgets = np.full(100, 0.5)
    budgets[37] = 1.0
    options = {"dimensions": 5, "trials": 2000, "levels": 17, "delta": 1e-5, "seed": 1}
    assert apes_audit(budgets, **options).passed
    run_at(monkeypatch, lambda budgets: np.where(budgets == 1.0, 1.0, 60.0))
    result = apes_audit(budgets, **options)
    assert not result.passed
    assert result.coordinate_audited > 0.5 > 2 * result.coordinate_certified


@pytest.mark.parametrize(
    ("n", "delta", "trials"),
    [pytest.param(5, 0.01, 400_000, marks=EXHAUSTIVE), pytest.param(10, 0.005, 100_000, marks=SERVICE)],
)
def test_in_a_crowd_the_attack_reaches_60_percent_of_the_certificate(n, delta, trials):
    result = apes_audit(np.full(n, 0.5), dimensions=10, trials=trials, levels=2, delta=delta, seed=1)
    # The crowd hides: the certificate is far below the local budget, and the attack comes close to it all the same.
    assert result.coordinate_certified < 0.8 * 0.5
    assert 0.6 * result.coordinate_certified < result.coordinate_audited <= result.coordinate_certified
    assert 0.6 * result.user_certified < result.user_audited <= result.user_certified


def test_the_error_rates_are_those_of_trials_that_the_attack_was_not_tuned_on():
    # Scores of the first half would all be right; in the second half one in four is wrong in either world.
    one = np.concatenate([np.ones(100), np.tile([1.0, 1.0, 1.0, 0.0], 25)])
    attack = error_rates(one, 1 - one)
    assert attack == Attack(100, (25, 100), (25, 0))


def test_a_lone_users_error_rates_are_those_of_the_mechanism():
    attack = apes_audit(np.array([1.0]), **{**LONE, "levels": 2}).coordinate_attack
    assert attack.trials == 100_000
    assert list(attack.alarms) == sorted(attack.alarms)
    wrong = 1 / (1 + math.exp(1.0))
    # One report of two levels: one threshold is of use; 5 standard errors.
    rates = np.array([attack.alarms[0], attack.misses[0]]) / attack.trials
    assert np.abs(rates - wrong).max() < 5 * math.sqrt(wrong * (1 - wrong) / attack.trials)


@pytest.mark.service
def test_the_command_fails_loudly(monkeypatch, tmp_path):
    options = ["audit", "--users", "1", "--budgets", "constant:0.9", "--levels", "2", "--trials", "200000"]
    options += ["--dimensions", "1", "--plot", str(tmp_path / "audit.png")]
    passed = CliRunner().invoke(app, options)
    assert (passed.exit_code, passed.stdout.splitlines()[-1]) == (0, "certified >= audited")
    run_at(monkeypatch, lambda budgets: budgets / 0.9)
    failed = CliRunner().invoke(app, options)
    assert (failed.exit_code, failed.stdout.splitlines()[-1]) == (1, "certified < audited")
    assert "AUDIT FAILED: the pipeline reveals more than is certified" in failed.stderr
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def laws_of_counts(n, budget, levels):
    """Law of the counts in each world, by going through all reports; the levels have a middle one."""

    def law(j):
        weights = np.exp(-budget * np.abs(np.arange(levels) - j) / (levels - 1))
        return weights / weights.sum()

    laws = ({}, {})
    centre = law(levels // 2)
    for reports in itertools.product(range(levels), repeat=n):
        counts = tuple(np.bincount(reports, minlength=levels))
        others = math.prod(centre[k] for k in reports[1:])
        for world, end in zip(laws, (levels - 1, 0), strict=True):
            world[counts] = world.get(counts, 0.0) + law(end)[reports[0]] * others
    return laws


def exact_epsilon(laws, delta):
    """Smallest epsilon with sum of (P - exp(epsilon) P')_+ <= delta, by bisection."""
    one, other = laws
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        excess = sum(max(0.0, one[counts] - math.exp(middle) * other[counts]) for counts in one)
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("n", "delta"),
    [
        pytest.param(2, 0.01, marks=SERVICE),
        pytest.param(4, 0.05, marks=EXHAUSTIVE),
        pytest.param(6, 0.02, marks=EXHAUSTIVE),
    ],
)
def test_the_attack_on_a_crowd_comes_close_to_the_exact_divergence(n, delta):
    exact = exact_epsilon(laws_of_counts(n, 2.0, 3), delta)
    result = apes_audit(np.full(n, 2.0), dimensions=1, trials=300_000, levels=3, delta=delta, seed=1)
    assert 0.9 * exact < result.coordinate_audited <= exact


@pytest.mark.parametrize("trials", [1, 7, 1000, 500_000])
@pytest.mark.parametrize("failure", [1.25e-4, 0.025, 0.3])
def test_clopper_pearson_agrees_with_scipy(trials, failure):
    hits = np.unique([0, 1, trials // 3, trials - 1, trials])
    lower, upper = clopper_pearson(hits, trials, failure)
    for k, low, high in zip(hits, lower, upper, strict=True):
        interval = binomtest(int(k), trials).proportion_ci(1 - 2 * failure, method="exact")
        assert (low, high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def randomized_response(epsilon, trials, rng):
    truth = rng.random((2, trials)) < 1 / (1 + math.exp(-epsilon))
    return truth[0].astype(float), 1.0 - truth[1]


def test_the_bound_is_seldom_above_the_truth():
    # At most 5e-4 of the audits may be: 5 of 400 or more have a probability of 2e-6.
    rng = np.random.default_rng(1)
    bounds = [audited_epsilon(*randomized_response(1.0, 1000, rng), 1e-9) for _ in range(400)]
    assert sum(bound > 1.0 for bound in bounds) < 5
    # Power: a mechanism 40 % too weak, which 1000 trials can see now and then.
    weaker = [audited_epsilon(*randomized_response(1.4, 1000, rng), 1e-9) for _ in range(400)]
    assert sum(bound > 1.0 for bound in weaker) > 100


def test_either_direction_is_found():
    rng = np.random.default_rng(1)
    # Scores of 1 occur in one world only, so that world shows itself; from the other side there is little to see.
    one, other = (rng.random(4000) < 0.05).astype(float), np.zeros(4000)
    assert audited_epsilon(one, other, 1e-6) > 2
    assert audited_epsilon(-other, -one, 1e-6) > 2


def test_nothing_is_found_where_there_is_nothing():
    rng = np.random.default_rng(1)
    assert audited_epsilon(rng.random(4000), rng.random(4000), 1e-6) == 0
    assert audited_epsilon(np.zeros(2), np.zeros(2), 1e-6) == 0


def test_the_trials_that_choose_the_threshold_are_not_those_that_test_it():
    halves = np.repeat([1.0, 0.0], 2000)
    assert audited_epsilon(halves, np.zeros(4000), 1e-6) == 0
    assert audited_epsilon(np.stack([halves, halves], axis=1), np.zeros((4000, 2)), 1e-6) == 0
    assert audited_epsilon(np.ones(4000), np.zeros(4000), 1e-6) > 5


def test_delta_is_taken_off():
    one, other = np.tile([1.0, 0.0], 1000), np.zeros(2000)
    found = [audited_epsilon(one, other, delta) for delta in (1e-6, 0.1, 0.4, 0.6)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[1] > found[2] > found[3] == 0


@pytest.mark.service
def test_same_seed_same_result():
    budgets = np.linspace(0.5, 2, 5)
    first = apes_audit(budgets, **SMALL)
    assert apes_audit(budgets, **SMALL) == first
    assert apes_audit(budgets, **{**SMALL, "seed": 4}) != first


def test_every_trial_draws_anew():
    attacked = Attacked(Terms(levels=4), 4, np.ones(3), 4000, 1)
    assert attacked.at_once == 2
    batches = [attacked.run(world, number, 2)[0] for world in (0, 1) for number in range(5)]
    assert [batch.counts.shape for batch in batches] == [(8000, 4)] * 10
    trials = np.concatenate([batch.counts for batch in batches]).reshape(20, -1)
    assert len({trial.tobytes() for trial in trials}) == 20
    # Two batches of three uniform reports on four levels agree with probability 1/16; 6 standard errors on top.
    agreeing = [(a.reshape(-1, 4) == b.reshape(-1, 4)).all(axis=1).sum() for a, b in itertools.combinations(trials, 2)]
    assert max(agreeing) < 250 + 6 * math.sqrt(250)


def test_the_result_says_what_was_asked():
    seen = []
    result = apes_audit(np.ones(2), **SMALL, progress=lambda done, total: seen.append((done, total)))
    assert (result.trials, result.dimensions, result.delta, result.confidence) == (2000, 3, 1e-5, 0.999)
    assert seen == sorted(seen)
    assert seen[-1] == (4000, 4000)
    assert result.passed is True


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": 0},
        {"dimensions": 2**15 + 1},
        {"trials": 1},
        {"trials": 2**23 + 1},
        {"trials": 10.5},
        {"levels": 1},
        {"levels": 257},
        {"levels": "continuous"},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"seed": -1},
        {"seed": 2**64},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(change):
    with pytest.raises(ParameterError, match=next(iter(change))):
        apes_audit(np.ones(2), **{**SMALL, **change})


@pytest.mark.parametrize("budgets", [[], [0.0], [math.nan], [[1.0]]], ids=str)
def test_budgets_out_of_range_are_refused(budgets):
    with pytest.raises(ParameterError, match="budgets"):
        apes_audit(np.array(budgets), **SMALL)


@pytest.mark.service
def test_a_tiny_delta_is_composed():
    result = apes_audit(np.ones(2), **{**SMALL, "delta": 1e-13})
    assert result.passed
    assert 2 < result.user_certified <= 3 * (1 + 1e-12)
