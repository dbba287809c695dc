"""Continuous draws: each report is the quantile of its own uniform number, and follows the law.

`apes.mathematics.laws` is the oracle: it is written apart from these loops and checked on its own.
"""

from dataclasses import replace
from itertools import pairwise

import cipher_words
import mpmath
import numpy as np
import pytest

from apes.client.draws.continuous import (
    _add_noise,
    _centred_uniforms,
    _invert_extreme,
    _invert_tails,
    _signed_tails,
    draw_clip_laplace,
    draw_clip_laplace_at_zero,
    draw_laplace,
)
from apes.mathematics.chacha import room_for
from apes.mathematics.laws import ClipLaplace, Laplace
from apes.mathematics.randomness import Purpose, SimulationSource

SOURCE = SimulationSource(2**35 + 5, 2)
STREAM = SOURCE.stream(Purpose.REPORT)
# The law of each loop; adding a loop here adds its tests.
DRAWS = {draw_clip_laplace: ClipLaplace, draw_laplace: Laplace}
every_draw = pytest.mark.parametrize("draw", DRAWS, ids=["clip_laplace", "laplace"])


def drawn(draw, updates, budgets, clip, first_user=0, first=0):
    updates = np.ascontiguousarray(updates, dtype=np.float32)
    out = np.full(updates.shape, np.nan, dtype=np.float32)
    draw(updates, np.asarray(budgets, dtype=np.float64), clip, (first_user, first, STREAM), SOURCE.key, out)
    return out


def uniforms(user, first, width):
    """The uniform numbers of a row: the upper 53 bits of each coordinate's number."""
    bits = cipher_words.numbers(SOURCE.run_key.material, first, width, 0, user, STREAM) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) / 2**53


@every_draw
@pytest.mark.parametrize(
    "epsilon",  # also next to where the loop changes its formula, and where exp(-epsilon) is no number any more
    [1e-9, 5e-5, 9.99e-5, 1.01e-4, 1e-3, 0.05, 0.5, 1.0, 8.0, 50.0, 300.0, 699.0, 701.0, 740.0, 800.0, 1e4, 1e12],
)
def test_a_report_is_the_quantile_of_its_uniform_number(draw, epsilon):
    clip, width, user, first = 0.1, 4000, 12, 4001
    locations = np.resize(np.float32([-0.1, -0.0999, -0.05, 0.0, 1e-6, 0.03, 0.0999, 0.1, 5.0, -3e38]), width)
    reports = drawn(draw, [locations], [epsilon], clip, user, first)[0]
    inside = np.clip(locations.astype(np.float64), -clip, clip)
    law = DRAWS[draw](inside, epsilon, clip)
    exact = law.ppf(uniforms(user, first, width))
    # Half a unit of float32, and the loop's own rounding: 1e-16 / epsilon on the scale of the noise.
    tolerance = 2.0**-24 * np.abs(exact) + 1e-11 * clip * (1 if draw is draw_clip_laplace else law.scale / clip)
    assert (np.abs(reports - exact) <= tolerance).all()


@every_draw
@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 1.0), (3.0, 0.3), (8.0, 0.0), (20.0, -0.5)])
def test_reports_follow_the_law_and_the_test_sees_ten_percent(draw, epsilon, share):
    clip, n = 3.0, 600_000
    law = DRAWS[draw](clip * share, epsilon, clip)
    # Massart 1990: P(sup |F_n - F| > t) <= 2 exp(-2 n t^2) for every n; here 1e-6.
    limit = np.sqrt(np.log(2 / 1e-6) / (2 * n))
    updates = np.full((1, n), clip * share)
    assert ks_distance(law, drawn(draw, updates, [epsilon], clip)[0]) <= limit
    for factor in (0.9, 1.1):
        assert ks_distance(law, drawn(draw, updates, [factor * epsilon], clip)[0]) > limit
        assert ks_distance(replace(law, epsilon=factor * epsilon), drawn(draw, updates, [epsilon], clip)[0]) > limit


def ks_distance(law, sample):
    u, n = np.sort(law.cdf(sample.astype(np.float64))), len(sample)
    return max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())


@pytest.mark.parametrize("clip", [0.1, 1.0, 3.0])
def test_clip_laplace_stays_inside_the_clip(clip):
    """Inside up to float32, which may round C itself away from zero."""
    updates = np.random.default_rng(1).normal(0, 2 * clip, (4, 100_000))
    reports = drawn(draw_clip_laplace, updates, [1e-6, 0.5, 8.0, 1e9], clip)
    assert np.abs(reports).max() <= np.float32(clip)
    assert (np.abs(reports[0]) > 0.999 * clip).any()


def test_laplace_leaves_the_clip():
    reports = drawn(draw_laplace, np.zeros((1, 10_000)), [1.0], 0.1)
    assert np.mean(np.abs(reports) > 0.1) == pytest.approx(np.exp(-0.5), abs=5 * 0.005)


@every_draw
def test_splitting_a_block_changes_nothing(draw):
    users, width, clip = 4, 151, 0.3
    budgets = np.array([1e-5, 0.5, 8.0, 50.0])
    updates = np.random.default_rng(2).normal(0, clip, (users, width))
    whole = drawn(draw, updates, budgets, clip, 90, 7)
    rng = np.random.default_rng(3)
    for _ in range(20):
        cuts = [0, *sorted(rng.choice(width + 1, 6).tolist()), width]
        parts = [drawn(draw, updates[:, a:b], budgets, clip, 90, 7 + a) for a, b in pairwise(cuts)]
        assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()
    single = [drawn(draw, updates[u : u + 1], budgets[u : u + 1], clip, 90 + u, 7) for u in range(users)]
    assert np.concatenate(single).tobytes() == whole.tobytes()
    assert (drawn(draw, updates, budgets, clip, 91, 7) != whole).all()
    assert (drawn(draw, updates, budgets, clip, 90, 8) != whole).all()


def test_centred_uniforms_are_the_uniform_numbers_exactly():
    centred = np.empty(1000)
    _centred_uniforms(np.uint64(12), 7, STREAM, SOURCE.key, room_for(7, 1000, 128), centred)
    assert ((1 + centred) / 2 == uniforms(12, 7, 1000)).all()
    assert ((centred * 2**53) % 2 == 1).all()
    assert (np.abs(centred) < 1).all()


# The outermost draws there are, and those next to the centre.
ENDS = np.array([-1 + 2.0**-53, -1 + 3 * 2.0**-53, -(2.0**-53), 2.0**-53, 1 - 3 * 2.0**-53, 1 - 2.0**-53])


def test_laplace_reaches_its_last_quantiles():
    noise = np.empty(ENDS.size, dtype=np.float32)
    _add_noise(np.zeros(ENDS.size, np.float32), 2.0, 1.0, ENDS, noise)
    # 1 - |c| is the mass of both tails.
    tails = np.log(2.0) * np.array([53, 53 - np.log2(3)])
    assert noise[:2] == pytest.approx(-2 * tails, rel=2.0**-23)
    assert noise[-2:] == pytest.approx(2 * tails[::-1], rel=2.0**-23)
    assert noise[2:4] == pytest.approx([-(2.0**-52), 2.0**-52], rel=2.0**-23)


@pytest.mark.parametrize("epsilon", [1.01e-4, 0.05, 1.0, 8.0, 50.0, 300.0, 699.0])
@pytest.mark.parametrize("share", [-1.0, -0.7, 0.0, 1e-6, 0.4, 1.0])
def test_clip_laplace_reaches_its_last_quantiles(epsilon, share):
    location = np.full(ENDS.size, 3 * share, dtype=np.float32)
    fast, any_budget = np.empty((2, ENDS.size), dtype=np.float32)
    tails = ENDS.copy()
    _signed_tails(location, epsilon, 3.0, tails)
    _invert_tails(location, epsilon, 3.0, tails, fast)
    _invert_extreme(location, epsilon, 3.0, ENDS, any_budget)
    exact = exact_quantiles(float(location[0]), epsilon, 3.0)
    assert np.abs(fast - exact).max() <= 3 * (2.0**-24 + 1e-11)
    # The general loop takes 1 - |y|, which loses the last bits of the tails: half a bit of log(1 - |y|) at the end.
    assert np.abs(any_budget - exact).max() <= 3 * (2.0**-24 + 1e-11) + 6 / epsilon * np.log(2)
    assert np.abs(any_budget).max() <= 3.0


def exact_quantiles(g, epsilon, clip):
    """Quantiles at (1 + c) / 2 for the c in ENDS, from the distribution function solved in 100 digits."""
    with mpmath.workdps(100):
        lam, reports = 2 * mpmath.mpf(clip) / mpmath.mpf(epsilon), []
        near, far = mpmath.exp((-clip - mpmath.mpf(g)) / lam), mpmath.exp((mpmath.mpf(g) - clip) / lam)
        for c in ENDS:
            mass = (1 + mpmath.mpf(float(c))) / 2 * (2 - near - far)
            is_below = mass <= 1 - near
            z = lam * mpmath.log(mass + near) if is_below else -lam * mpmath.log(2 - near - mass)
            reports.append(float(g + z))
    return np.array(reports)


@pytest.mark.parametrize("epsilon", [1.01e-4, 0.05, 1.0, 8.0, 50.0, 699.0])
def test_both_loops_of_clip_laplace_agree(epsilon):
    """The fast one and the one for every budget, on the same draws."""
    width, clip = 3001, 0.1
    locations = np.random.default_rng(8).normal(0, clip, width).astype(np.float32)
    draws, reports = np.empty(width), np.empty((2, width), dtype=np.float32)
    _centred_uniforms(np.uint64(3), 0, STREAM, SOURCE.key, room_for(0, width, 128), draws)
    _invert_extreme(locations, epsilon, clip, draws, reports[0])
    _signed_tails(locations, epsilon, clip, draws)
    _invert_tails(locations, epsilon, clip, draws, reports[1])
    assert np.abs(reports[0] - reports[1]).max() <= clip * (2.0**-23 + 1e-11)


@pytest.mark.parametrize("first", [0, 1, 8191])
def test_draws_at_zero_are_those_of_updates_of_zero_to_the_bit(first):
    budgets = np.array([1e-9, 1e-4, 0.05, 0.5, 1.0, 3.0, 44.0, 699.0, 701.0, 1e6])
    out = np.full((budgets.size, 1001), np.nan, dtype=np.float32)
    draw_clip_laplace_at_zero(budgets, 0.1, (7, first, STREAM), SOURCE.key, out)
    general = drawn(draw_clip_laplace, np.zeros(out.shape), budgets, 0.1, 7, first)
    # All but the sign of a draw that rounds to 0.
    assert (out == general).all()
    assert np.abs(out).max() <= np.float32(0.1)
