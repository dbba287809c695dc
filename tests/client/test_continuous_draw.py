"""Continuous draws: each report is the quantile of its own uniform number, and follows the law.

`apes.laws` is the oracle: it is written apart from these loops and checked on its own.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from apes.client.continuous_draw import draw_clip_laplace, draw_laplace
from apes.laws import ClipLaplace, Laplace
from apes.randomness import Purpose, SimulationSource

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
    """The uniform numbers of a row: Philox4x32-10 at index c // 2, first or second half, the upper 53 bits."""
    c = np.arange(first, first + width, dtype=np.uint64)
    c0, c1, c2, c3 = c // 2, 0 * c, 0 * c + np.uint64(user), 0 * c + STREAM
    for n in range(10):
        k0, k1 = (int(word) + n * step for word, step in zip(SOURCE.key, (0x9E3779B9, 0xBB67AE85), strict=True))
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = p1 // 2**32 ^ c1 ^ np.uint64(k0 % 2**32), p0 // 2**32 ^ c3 ^ np.uint64(k1 % 2**32)
        c1, c3 = p1 % 2**32, p0 % 2**32
    bits = np.where(c % 2 == 0, c0 * 2**32 + c1, c2 * 2**32 + c3) >> np.uint64(11)
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
