"""The convergence bounds: moments against integration and sampling, and the bounds against the real stages."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from typer.testing import CliRunner

from apes.analyzer.calibrator import ContinuousInverse
from apes.analyzer.expected import continuous_response
from apes.cli.main import app
from apes.errors import ParameterError, RegimeError
from apes.mathematics.laws import ClipLaplace
from apes.messages import SummedBatch
from apes.paper.convergence.bound import Assumptions, convergence_bound
from apes.paper.convergence.calibration_error import calibration_error, report_slope
from apes.paper.convergence.published import PublishedAssumptions, published_bound, published_noise
from apes.paper.convergence.trial import STEP, ConvergenceTrial, run_trial

C = 0.1
EPSILONS = (0.05, 1.0, 5.0, 20.0)
LOCATIONS = (-1.0, -0.3, 0.0, 0.7, 1.0)
BUDGETS = np.linspace(0.05, 1, 1000)


def report_moments(g, epsilon, clip):
    """Bias, variance and mean square E[(z - g)^2] of a report on input g."""
    law = ClipLaplace(g, epsilon, clip)
    bias = law.mean() - g
    return bias, law.var(), law.var() + bias**2


def integral(function, g, epsilon):
    """Mean of a function of the report, by quadrature of the density as it is defined."""

    def weight(z):
        return np.exp(-abs(z - g) * epsilon / (2 * C))

    def over(integrand):
        return sum(quad(integrand, *ends, epsabs=0, epsrel=1e-12)[0] for ends in ((-C, g), (g, C)) if ends[0] < ends[1])

    return over(lambda z: function(z) * weight(z)) / over(weight)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("share", LOCATIONS)
def test_moments_are_those_of_the_density(epsilon, share):
    g = share * C
    bias, variance, second = report_moments(g, epsilon, C)
    mean = integral(lambda z: z + C, g, epsilon) - C
    assert bias == pytest.approx(mean - g, rel=1e-9, abs=1e-12)
    assert variance == pytest.approx(integral(lambda z: (z - mean) ** 2, g, epsilon), rel=1e-9)
    assert second == pytest.approx(integral(lambda z: (z - g) ** 2, g, epsilon), rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_moments_are_those_of_samples(epsilon):
    n = 200_000
    z = ClipLaplace(0.7 * C, epsilon, C).rvs(n, np.random.default_rng(1)) - 0.7 * C
    bias, variance, second = report_moments(0.7 * C, epsilon, C)
    assert abs(z.mean() - bias) < 5 * np.sqrt(variance / n)
    assert abs((z**2).mean() - second) < 5 * (z**2).std() / np.sqrt(n)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_appendix_b_with_its_misprints_mended_is_the_law_at_the_clip(epsilon):
    x, scale = 1 / np.expm1(epsilon), 2 * C / epsilon
    bias, variance, second = report_moments(C, epsilon, C)
    assert second == pytest.approx((-4 * C**2 - 8 * C**2 / epsilon) * x + 8 * C**2 / epsilon**2, rel=1e-9)
    assert bias == pytest.approx(2 * C * x - scale, rel=1e-9)
    assert variance == pytest.approx(scale**2 - 4 * C**2 * x * (1 + x), rel=1e-9)
    assert (report_moments(np.linspace(-C, C, 201), epsilon, C)[2] <= second * (1 + 1e-12)).all()


def test_appendix_b_as_printed_has_negative_second_moments():
    x = 1 / np.expm1(1.0)
    assert (-4 * C**2 - 8 * C) * x + 8 * C**2 == pytest.approx(-0.40886, abs=1e-5)
    assert (-4 * C**2 - 8 * C**2) * x + 2 * C**2 == pytest.approx(-0.04984, abs=1e-5)
    assert (-8 * C**2 - 32 * C**2) * x - 8 * C**2 * x**2 + 4 * C**2 == pytest.approx(-0.21989, abs=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_slope_is_the_derivative_of_the_mean_and_vanishes_at_the_clip(epsilon):
    g, h = np.linspace(0, 0.99 * C, 100), 1e-6 * C
    difference = (ClipLaplace(g + h, epsilon, C).mean() - ClipLaplace(g - h, epsilon, C).mean()) / (2 * h)
    slope = report_slope(g, epsilon, C)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
    assert (np.diff(slope) < 0).all()
    assert report_slope(C, epsilon, C) == 0


@pytest.mark.parametrize("budgets", [BUDGETS, np.full(50, 5.0), np.array([0.05, 20.0])], ids=["grid", "equal", "apart"])
@pytest.mark.parametrize("reach", [0.25, 0.9])
def test_constants_of_calibration_bound_what_they_say(budgets, reach):
    error = calibration_error(budgets, C, reach * C)
    inputs, expected, _ = continuous_response(budgets, C)
    near = np.abs(inputs) <= reach * C
    for x, at in zip(inputs[near][::25], expected[near][::25], strict=True):
        other = inputs != x
        chords = (expected[other] - at) / (inputs[other] - x)
        assert chords.min() >= error.chord * (1 - 1e-6)
        # The remainder that makes the bias: |(y - x) - D / M'(x)| <= bend D^2 / slope, in range.
        D, steep = expected[other] - at, report_slope(x, budgets, C).mean()
        assert (np.abs(inputs[other] - x - D / steep) <= error.bend * D**2 / error.slope + 1e-6 * C).all()
    grid = np.linspace(-reach * C, reach * C, 999)
    largest = ClipLaplace(grid[:, None], np.unique(budgets), C).var().max(axis=0)
    assert error.variance >= largest.mean() * (1 - 1e-12)
    assert error.variance <= C**2 / 3


@pytest.mark.parametrize("scatter", [0.0, 0.03])
def test_offset_of_the_mean_report_is_below_its_bound(scatter):
    """Users with large budgets on one side, with small ones on the other: the worst case, and a random one."""
    error = calibration_error(BUDGETS, C, 0.25 * C)
    rng = np.random.default_rng(2)
    for signs in (np.where(BUDGETS > np.median(BUDGETS), 1, -1), rng.choice([-1, 1], BUDGETS.size)):
        g = 0.1 * C + (0.1 + scatter) * C * signs
        x = g.mean()
        offset = abs((ClipLaplace(g, BUDGETS, C).mean() - ClipLaplace(np.full_like(g, x), BUDGETS, C).mean()).mean())
        assert offset <= error.mismatch * g.std()


TRIALS = {
    "uniform2": ConvergenceTrial(users=4_000, rounds=30, seeds=6, dimensions=10),
    "different optima": ConvergenceTrial(users=4_000, rounds=15, seeds=4, dimensions=10, scatter=0.03),
    "few users": ConvergenceTrial(users=1_000, rounds=15, seeds=4, dimensions=10),
    "large budgets": ConvergenceTrial(budgets="constant:3", users=400, rounds=30, seeds=6, dimensions=10),
}


@pytest.fixture(scope="module", params=TRIALS.values(), ids=TRIALS)
def trial(request):
    return request.param, run_trial(request.param)


@pytest.mark.service
def test_measured_loss_is_below_the_bound_after_every_round(trial):
    settings, result = trial
    assert result.left == 0
    assert result.is_within
    assert result.measured.shape == result.bound.shape == (settings.rounds + 1,)
    assert result.measured[0] == pytest.approx(result.bound[0])


@pytest.mark.service
@pytest.mark.parametrize("name", ["uniform2", "large budgets"])
def test_a_bound_with_a_tenth_of_the_noise_is_violated(name):
    settings = replace(TRIALS[name], start=0.0)  # from the optimum: there is nothing but noise
    result = run_trial(settings)
    assert result.is_within
    too_small = replace(settings.error(), variance=settings.error().variance / 100)
    wrong = convergence_bound(settings.assumptions(), too_small, STEP, settings.rounds, result.measured[0])
    assert (result.measured - 5 * result.standard_error > wrong)[1:].any()


def test_a_run_that_leaves_the_region_counts_as_nothing():
    result = run_trial(ConvergenceTrial(users=40, rounds=20, seeds=2, dimensions=10))
    assert result.left == 2
    assert result.measured[-1] == 0
    assert result.is_within


def test_trial_is_reproducible_and_where_the_optima_differ_nothing_is_published():
    settings = ConvergenceTrial(users=100, rounds=3, seeds=2, dimensions=3, scatter=0.01)
    first, second = run_trial(settings), run_trial(settings)
    np.testing.assert_array_equal(first.measured, second.measured)
    assert first.published is None


def test_the_published_theorem_is_exceeded_on_a_problem_that_meets_its_assumptions():
    """f = |w|^2 / 2 for everybody, one round from the optimum: docs/convergence.md, section 4."""
    d, step, budgets = 7_850, 0.2, np.full(4, 0.1)
    reports = ClipLaplace(0.0, 0.1, C).rvs((4, d), np.random.default_rng(3))
    estimate = ContinuousInverse(C).estimate(SummedBatch(reports.mean(axis=0), budgets)).mean
    risen = step**2 * (estimate**2).sum() / 2
    assumptions = PublishedAssumptions(1.0, 1.0, step * C * np.sqrt(d), 1 / step, step)
    published = published_bound(assumptions, budgets, C, 1, 0.0)[1]
    assert published == pytest.approx(17.4 * C**2, rel=0.01)
    assert risen == pytest.approx(151 * C**2, rel=0.02)
    proved = convergence_bound(Assumptions(1.0, 1.0, d), calibration_error(budgets, C, step * C), step, 1, 0.0)[1]
    assert risen <= proved


SMALL = ["converge", "--users", "400", "--rounds", "3", "--seeds", "2", "--dimensions", "3"]


@pytest.mark.service
def test_command_prints_measured_and_bounds_and_draws(tmp_path):
    picture = tmp_path / "converge.png"
    done = CliRunner().invoke(app, [*SMALL, "--plot", str(picture)])
    assert done.exit_code == 0
    assert "proved bound   published (not a bound)" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_prints_one_json_object():
    done = CliRunner().invoke(app, [*SMALL, "--json", "--scatter", "0.01"])
    answer = json.loads(done.stdout)
    assert len(answer["measured"]) == len(answer["bound"]) == 4
    assert answer["published"] is None
    assert answer["is_within"]


def test_command_fails_loudly_if_the_bound_is_exceeded(monkeypatch):
    def lowered(trial, progress):
        return replace(run_trial(trial), bound=np.zeros(trial.rounds + 1))

    monkeypatch.setattr("apes.paper.convergence.trial.run_trial", lowered)
    done = CliRunner().invoke(app, SMALL)
    assert done.exit_code == 1
    assert "BOUND EXCEEDED" in done.output


@pytest.mark.parametrize("wrong", [["--users", "5"], ["--budgets", "constant:1e-40"], ["--clip", "0"]])
def test_command_refuses_in_one_line(wrong):
    done = CliRunner().invoke(app, [*SMALL, *wrong])
    assert done.exit_code == 2
    assert done.output.strip().startswith("apes: ")
    assert len(done.output.strip().splitlines()) == 1


def test_published_coefficients_and_noise():
    a1, a2, a3 = PublishedAssumptions(2.0, 1.0, 3.0, 8.0, 0.25, 1.5).coefficients()
    assert a1 == pytest.approx(1 + 2 * (0.375 - 1) / 8 + 2 * 2 * 1.5 * 1.25 / 80 + 2 * 2 * 1.5**2 * 1.25**2 / 100)
    assert a2 == pytest.approx(3 * (1 / 8 + 1.5 * 2 * 1.25 / 10))
    assert a3 == 1
    # The appendix's last line drops a negative term: larger than the law's. Never more than 14/3 C^2.
    x = 1 / np.expm1(1.0)
    assert published_noise([1.0, 3.0], C) < C**2 * (-8 * x + 8 * x**2 + 24)
    assert published_noise([1e-6], C) == pytest.approx(14 / 3 * C**2, rel=1e-5)


@pytest.mark.service
def test_bound_falls_with_users_and_with_the_step_and_is_never_worse_than_saturation():
    assumptions = Assumptions(1.0, 0.5, 10, dissimilarity=1.1)
    few, many = (calibration_error(np.full(n, 0.5), C, 0.2 * C) for n in (1_000, 100_000))
    late = [convergence_bound(assumptions, error, 0.2, 500, 1.0)[-1] for error in (few, many)]
    assert late[1] < late[0] / 50
    assert convergence_bound(assumptions, many, 0.02, 5_000, 1.0)[-1] < late[1]
    saturated = 10 * (1.2 * C) ** 2 / (2 * 0.5)
    hopeless = calibration_error(np.full(4, 1e-6), C, 0.2 * C)
    assert convergence_bound(assumptions, hopeless, 0.2, 500, 0.0)[-1] == pytest.approx(saturated)
    unlike = replace(assumptions, dissimilarity=1e6)
    assert convergence_bound(unlike, many, 0.2, 500, 0.0)[-1] == pytest.approx(saturated)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Assumptions(0.0, 0.1, 1),
        lambda: Assumptions(1.0, 1.1, 1),
        lambda: Assumptions(1.0, float("nan"), 1),
        lambda: Assumptions(1.0, 0.5, 0),
        lambda: Assumptions(1.0, 0.5, 1, dissimilarity=0.9),
        lambda: Assumptions(1.0, 0.5, 1, scatter=-1.0),
        lambda: PublishedAssumptions(1.0, 0.5, 0.0, 1.0, 0.1),
        lambda: PublishedAssumptions(1.0, 0.5, 1.0, float("inf"), 0.1),
        lambda: PublishedAssumptions(1.0, 0.5, 1.0, 1.0, -0.1),
        lambda: calibration_error([0.0], C, 0.5 * C),
        lambda: calibration_error([1.0], 0.0, 0.5 * C),
        lambda: calibration_error([1.0], C, 0.0),
        lambda: report_slope(2 * C, 1.0, C),
        lambda: published_noise([], C),
        lambda: ConvergenceTrial(users=1_001),
        lambda: ConvergenceTrial(seeds=0),
        lambda: ConvergenceTrial(scatter=0.1),
        lambda: ConvergenceTrial(start=0.2),
        lambda: ConvergenceTrial(dimensions=0),
        lambda: ConvergenceTrial(rounds=0),
        lambda: ConvergenceTrial(clip=float("nan")),
        lambda: bound(step=0.0),
        lambda: bound(rounds=0),
        lambda: bound(gap=-1.0),
        lambda: bound(gap=float("inf")),
    ],
)
def test_values_out_of_range_are_refused(make):
    with pytest.raises(ParameterError):
        make()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: bound(step=1.01), "step"),
        (lambda: calibration_error([1.0], C, C), "reach"),
        (lambda: calibration_error([1e-40], C, 0.5 * C), "budgets"),
        (lambda: published_bound(PublishedAssumptions(1.0, 0.5, 1.0, 1.0, 1.0), [1.0], C, 1, 1.0), "a1"),
    ],
)
def test_cases_the_theorems_do_not_cover_are_refused(make, what):
    with pytest.raises(RegimeError, match=what):
        make()


def bound(step=0.5, rounds=1, gap=1.0):
    return convergence_bound(Assumptions(1.0, 0.5, 2), calibration_error([1.0], C, 0.5 * C), step, rounds, gap)
