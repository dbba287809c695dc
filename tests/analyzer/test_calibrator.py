"""Calibration: exact on expected counts, its noise as announced, and less of it with the likelihood.

Statistical limits are five standard errors (false alarm 6e-7).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels import sampled
from scipy.stats import chi2

from apes.analyzer.calibrator import (
    CodedInverse,
    ContinuousInverse,
    Signs,
    Unbiased,
    likelihood_statistic,
    report_statistic,
)
from apes.analyzer.expected import law_at_zero, padded, pooled_channel
from apes.budgets import make_budgets
from apes.client.client import Client
from apes.client.one_bit import OneBit
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, Place
from apes.data import partition
from apes.errors import ProtocolError
from apes.mathematics.laws import ClipLaplace
from apes.mathematics.levels import level_values
from apes.mathematics.randomness import SimulationSource
from apes.messages import CountedBatch, PermutedBatch, SummedBatch
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.shuffler.shuffle import LevelCounter

CLIP = 0.1
STATISTICS = [report_statistic, likelihood_statistic]
every_statistic = pytest.mark.parametrize("statistic", STATISTICS, ids=lambda f: f.__name__)
every_number_of_levels = pytest.mark.parametrize("levels", [2, 3, 16, 255, 256])


def coded(levels, statistic, channel=pooled_channel):
    return CodedInverse(CLIP, lambda budgets: channel(budgets, levels), statistic)


def expected_counts(channel, x, users):
    """n p for users who all have the update x: between two levels it is rounded to one of them at random."""
    place = (x / CLIP + 1) / 2 * (channel.shape[0] - 1)
    lower = np.minimum(np.floor(place).astype(int), channel.shape[0] - 2)
    share = (place - lower)[:, None]
    return users * ((1 - share) * channel[lower] + share * channel[lower + 1])


@every_statistic
@every_number_of_levels
@pytest.mark.parametrize(
    "law", sampled(["uniform2", "uniform3", "gauss1", "constant:0.01", "constant:20", "grid:0.05:50"], 3)
)
def test_expected_counts_give_the_update_back(law, levels, statistic):
    budgets = make_budgets(law, 500, 1)
    x = np.concatenate([level_values(levels, CLIP), np.linspace(-CLIP, CLIP, 77), [1e-9, -1e-5]])
    batch = CountedBatch(expected_counts(pooled_channel(budgets, levels), x, 500), budgets)
    assert np.abs(coded(levels, statistic).estimate(batch).mean - x).max() <= 1e-6


def test_continuous_expectations_give_the_update_back():
    budgets = make_budgets("uniform3", 500, 1)
    x = np.linspace(-CLIP, CLIP, 77)
    mean = ClipLaplace(x[:, None], budgets, CLIP).mean().mean(axis=1)
    assert np.abs(ContinuousInverse(CLIP).estimate(SummedBatch(mean, budgets)).mean - x).max() <= 1e-6
    values = np.repeat(mean[:, None], 500, axis=1).astype(np.float32)
    assert np.abs(ContinuousInverse(CLIP).estimate(PermutedBatch(values, budgets)).mean - x).max() <= 1e-6


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    low=st.floats(0.01, 20),
    high=st.floats(0.01, 20),
    levels=st.sampled_from([2, 3, 16, 255, 256]),
    kept=st.sampled_from([1.0, 0.5, 0.2]),
)
@every_statistic
def test_statistics_are_odd_and_monotone(statistic, low, high, levels, kept):
    channel = pooled_channel(np.linspace(low, high, 30), levels)
    channel = padded(channel, np.full(levels, kept), law_at_zero(channel))
    psi = statistic(channel)
    assert np.isfinite(psi).all()
    assert (psi == -psi[::-1]).all()
    assert (np.diff(psi) >= 0).all()
    assert (np.diff(channel @ psi) > 0).all()  # else it could not be inverted


@every_statistic
@every_number_of_levels
def test_outside_its_range_an_estimate_is_clipped(levels, statistic):
    counts = np.zeros((2, levels), dtype=np.int64)
    counts[0, 0] = counts[1, -1] = 50
    mean = coded(levels, statistic).estimate(CountedBatch(counts, make_budgets("uniform2", 50, 1))).mean
    assert mean.tolist() == [-CLIP, CLIP]


def test_continuous_estimates_are_clipped_too():
    batch = SummedBatch(np.array([-CLIP, CLIP]), np.ones(50))
    assert ContinuousInverse(CLIP).estimate(batch).mean.tolist() == [-CLIP, CLIP]


USERS, REPEATS = 2_000, 4_000


def noise_of(calibrator, randomizer):
    """Standard deviation of the estimate over many coordinates at which everybody's update is 0."""
    budgets = make_budgets("uniform3", USERS, 1)
    zeros = np.zeros((USERS, REPEATS), dtype=np.float32)
    values = randomizer.draw(zeros, randomizer.prepare(budgets), Place(0, 0), SimulationSource(3))
    estimate = calibrator.estimate(PermutedBatch(values.T, budgets))
    assert estimate.standard_error == calibrator.standard_error(budgets)
    assert abs(estimate.mean.mean()) <= 5 * estimate.standard_error / np.sqrt(REPEATS)
    return estimate.mean.std(), estimate.standard_error


@pytest.mark.parametrize(
    ("calibrator", "randomizer"),
    [
        (ContinuousInverse(CLIP), ContinuousClipLaplace(CLIP)),
        (Signs(CLIP), OneBit(CLIP, 1.0)),
        *(
            pytest.param(
                coded(levels, statistic),
                CodedClipLaplace(CLIP, levels),
                marks=[pytest.mark.exhaustive] if levels in (3, 16) else [],
            )
            for levels in (2, 3, 16, 256)
            for statistic in STATISTICS
        ),
    ],
)
def test_standard_error_is_what_is_observed(calibrator, randomizer):
    observed, announced = noise_of(calibrator, randomizer)
    limit = 5 / np.sqrt(2 * REPEATS)  # standard error of a standard deviation, relative
    assert abs(observed / announced - 1) <= limit
    assert abs(observed / (0.9 * announced) - 1) > limit


def test_one_bit_is_unbiased_wherever_the_mean_is():
    """Users' updates differ, and their budgets too; the means of 400 coordinates are all met."""
    rng, budgets = np.random.default_rng(4), np.random.default_rng(5).uniform(0.2, 4, 20_000)
    centre = np.linspace(-0.9, 0.9, 400) * CLIP
    updates = (centre + rng.uniform(-0.1, 0.1, (budgets.size, 400)) * CLIP).astype(np.float32)
    randomizer, calibrator = OneBit(CLIP, 3.0), Signs(CLIP)
    assert np.linalg.norm(updates, axis=1).max() < 3.0
    values = randomizer.draw(updates, randomizer.prepare(budgets), Place(0, 0), SimulationSource(3))
    estimate = calibrator.estimate(PermutedBatch(values.T, budgets))
    # What is estimated is the mean with weights tanh(e / 2), the same thing where updates do not look at budgets.
    mean = np.average(updates, axis=0, weights=np.tanh(budgets / 2))
    # The error is largest at 0; over all coordinates its square is at most chi-square.
    assert ((estimate.mean - mean) ** 2).sum() / estimate.standard_error**2 < chi2.isf(1e-6, 400)
    slope = float(estimate.mean @ mean / (mean @ mean))
    assert abs(slope - 1) < 5 * estimate.standard_error / np.linalg.norm(mean) < 0.1


def test_one_bit_at_its_ends():
    budgets = np.array([1.0, 2.0, 3.0, 4.0])
    estimate = Signs(CLIP).estimate(CountedBatch(np.array([[0, 4], [4, 0], [2, 2], [1, 3]]), budgets))
    most = CLIP / np.tanh(budgets / 2).mean()
    assert estimate.mean == pytest.approx([most, -most, 0, most / 2])
    assert estimate.standard_error == pytest.approx(most / 2)


def exact_variance(statistic, channel, updates):
    """Variance of the estimate for users with these updates (independent of their budgets), times n."""
    psi, values = statistic(channel), level_values(channel.shape[0], CLIP)
    curve, square = channel @ psi, channel @ psi**2
    noise = np.interp(updates, values, square) - np.interp(updates, values, curve) ** 2
    centre, step = updates.mean(), values[1] - values[0]
    slope = (np.interp(centre + step, values, curve) - np.interp(centre - step, values, curve)) / (2 * step)
    return noise.mean() / slope**2


@pytest.mark.parametrize("law", ["uniform2", "uniform3"])
@pytest.mark.parametrize("centre", [0.0, 0.05, 0.1, -0.2])
@pytest.mark.parametrize("scatter", [0.0, 0.1, 0.4, 0.8])
def test_likelihood_is_less_noisy_near_zero(law, centre, scatter):
    channel = pooled_channel(make_budgets(law, 10_000, 1), 256)
    updates = CLIP * np.clip(centre + scatter * np.random.default_rng(0).normal(size=5_000), -1, 1)
    likelihood, inverse = (exact_variance(s, channel, updates) for s in (likelihood_statistic, report_statistic))
    assert likelihood < 0.95 * inverse


@pytest.mark.parametrize("law", ["uniform2", "uniform3"])
@every_number_of_levels
def test_likelihood_announces_less_noise(law, levels):
    budgets = make_budgets(law, 1_000, 1)
    likelihood, inverse = (coded(levels, s).standard_error(budgets) for s in (likelihood_statistic, report_statistic))
    # Of two or three levels there is but one odd statistic, up to its size.
    assert likelihood < 0.95 * inverse if levels > 3 else likelihood == pytest.approx(inverse, rel=1e-12)


def test_unbiased_takes_the_mean_as_it_is():
    calibrator, budgets = Unbiased(lambda budgets: float(budgets.sum())), np.array([1.0, 2.0, 5.0, 8.0])
    values = np.array([[0.5, 1.5, -1.0, 3.0], [0.0, 0.0, 0.0, 0.25]], dtype=np.float32)
    for batch in (PermutedBatch(values, budgets), SummedBatch(np.array([1.0, 0.0625]), budgets)):
        assert calibrator.estimate(batch).mean.tolist() == [1.0, 0.0625]
        assert calibrator.estimate(batch).standard_error == 8.0


COUNTED = CountedBatch(np.full((3, 16), 2), np.ones(32))
CODES = PermutedBatch(np.zeros((3, 32), dtype=np.uint8), np.ones(32))
CONTINUOUS = PermutedBatch(np.zeros((3, 32), dtype=np.float32), np.ones(32))
SUMMED = SummedBatch(np.zeros(3), np.ones(32))


@pytest.mark.parametrize(
    ("calibrator", "batch", "message"),
    [
        (coded(16, report_statistic), SUMMED, "have 16 levels; the batch does not"),
        (coded(17, report_statistic), COUNTED, "have 17 levels; the batch does not"),
        (coded(2, report_statistic), PermutedBatch(CODES.values + np.uint8(2), CODES.budgets), "have 2 levels"),
        (ContinuousInverse(CLIP), COUNTED, "are continuous; the batch holds levels"),
        (ContinuousInverse(CLIP), CODES, "are continuous; the batch holds levels"),
        (Unbiased(lambda budgets: 0.0), COUNTED, "are continuous; the batch holds levels"),
        (Unbiased(lambda budgets: 0.0), CODES, "are continuous; the batch holds levels"),
        pytest.param(*(coded(16, report_statistic), CONTINUOUS, "have 16 levels; the batch does not")),
    ],
)
def test_a_batch_of_another_plan(calibrator, batch, message):
    with pytest.raises(ProtocolError, match=f"^this plan's reports {message}"):
        calibrator.estimate(batch)


MODEL = LogisticRegression(784, 10)


def mean_update(people, weights, users):
    """The users' mean clipped update: what the calibration estimates."""
    update = MODEL.updates(weights, people.block(0, users))
    return np.clip(update.astype(np.float64), -CLIP, CLIP).mean(axis=0)


def estimates(people, weights, users, draws):
    """Estimates by both calibrations from the same batches: (calibration, draw, coordinate)."""
    client = Client(MODEL, CodedClipLaplace(CLIP))
    calibrators = [coded(256, likelihood_statistic), coded(256, report_statistic)]
    found = np.empty((2, draws, weights.size))
    for draw in range(draws):
        source = SimulationSource(77, draw)
        counter = LevelCounter(users, weights.size, 256, source)
        for start in range(0, users, 125):
            for report in client.reports(weights, people.block(start, start + 125), source):
                counter.add(report)
        batch = counter.release()
        found[:, draw] = [calibrator.estimate(batch).mean for calibrator in calibrators]
    return found


def real_estimates(mnist, law, steps, draws):
    """Estimates and truth for 2,000 users with 6 images each, after some exact gradient steps."""
    users = 2_000
    order, offsets = partition(mnist.train_labels[: 6 * users], users, "iid", 1)
    budgets = make_budgets(law, users, 1)
    people = People(mnist.train_images[order], mnist.train_labels[order], offsets, budgets)
    weights = MODEL.start().astype(np.float32)
    for _ in range(steps):
        weights -= np.float32(2) * mean_update(people, weights, users).astype(np.float32)
    return estimates(people, weights, users, draws), mean_update(people, weights, users)


def variance_ratio(found):
    likelihood, inverse = found.var(axis=1, ddof=1).mean(axis=1)
    return likelihood / inverse


@pytest.mark.exhaustive
@pytest.mark.mnist
@pytest.mark.parametrize("steps", [0, 6])
def test_likelihood_is_better_on_real_gradients(mnist, steps):
    """Measured: variance 0.90 of the paper's at both models, mean squared error 0.93 and 0.94."""
    found, truth = real_estimates(mnist, "uniform2", steps, draws=40)
    ratio = variance_ratio(found)
    assert ratio < 0.95, f"variance is {ratio:.4f} of the paper's after {steps} steps"
    likelihood, inverse = ((found - truth) ** 2).mean(axis=(1, 2))
    assert likelihood < 1.03 * inverse, f"squared error is {likelihood / inverse:.4f} of the paper's, {steps} steps"


@pytest.mark.exhaustive
@pytest.mark.mnist
@pytest.mark.parametrize("steps", [0, 6])
def test_likelihood_is_less_noisy_on_real_gradients_under_larger_budgets(mnist, steps):
    """Only the variance: with so little noise, what scattered updates bend the curve by decides the squared error.

    Both calibrations have that bias, the likelihood's is larger: its squared error is 1.09 and 1.17 of the paper's.
    """
    ratio = variance_ratio(real_estimates(mnist, "uniform3", steps, draws=6)[0])
    assert ratio < 0.95, f"variance is {ratio:.4f} of the paper's after {steps} steps"
