"""Randomizers: what they check, what they keep, and that they pass every parameter on."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from apes.client.draws.coded import draw_codes
from apes.client.draws.continuous import draw_clip_laplace, draw_laplace
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise, NoNoise, Place
from apes.errors import ParameterError
from apes.mathematics.randomness import Purpose, SimulationSource, SystemSource
from apes.mathematics.thresholds import acceptance_thresholds

SOURCE = SimulationSource(31, 4)
BUDGETS = np.array([0.5, 2.0, 8.0])
# Adding a randomizer here adds the tests of what all have in common.
RANDOMIZERS = [
    CodedClipLaplace(0.1, 16),
    CodedClipLaplace(0.1),
    ContinuousClipLaplace(0.1),
    LaplaceNoise(0.1),
    NoNoise(),
]
every_randomizer = pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
every_noise = pytest.mark.parametrize("randomizer", RANDOMIZERS[:-1], ids=str)


def updates_of(users, width, seed=1):
    return np.random.default_rng(seed).normal(0, 0.1, (users, width)).astype(np.float32)


def drawn(randomizer, updates, place=Place(3, 5), source=SOURCE, budgets=BUDGETS):  # noqa: B008 - immutable
    return randomizer.draw(updates, randomizer.prepare(budgets), place, source)


@pytest.mark.parametrize("cls", [CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise])
@pytest.mark.parametrize("clip", [0.0, -0.1, math.nan, math.inf, "wide", None])
def test_invalid_clip(cls, clip):
    with pytest.raises(ParameterError, match=rf"clip must be .* got {clip!r}"):
        cls(clip)


@pytest.mark.parametrize("levels", [0, 1, 257, 16.0, True, None])
def test_invalid_levels(levels):
    with pytest.raises(ParameterError, match=rf"levels must be .* got {levels!r}"):
        CodedClipLaplace(0.1, levels)


@every_randomizer
def test_randomizers_are_immutable(randomizer):
    with pytest.raises(FrozenInstanceError):
        randomizer.clip = 1.0


@every_randomizer
def test_the_same_address_gives_the_same_reports(randomizer):
    updates = updates_of(3, 40)
    before = updates.copy()
    first = drawn(randomizer, updates)
    assert first.shape == updates.shape
    assert first.dtype == (np.uint8 if isinstance(randomizer, CodedClipLaplace) else np.float32)
    assert first.tobytes() == drawn(randomizer, updates).tobytes()
    assert updates.tobytes() == before.tobytes()


@every_noise
def test_user_coordinate_purpose_round_and_seed_all_change_the_reports(randomizer):
    updates = updates_of(3, 40)
    reports = [drawn(randomizer, updates)]
    for place in (Place(4, 5), Place(3, 6), Place(3, 5, Purpose.PADDING)):
        reports.append(drawn(randomizer, updates, place))
    for source in (SimulationSource(31, 5), SimulationSource(32, 4), SimulationSource(31 + 2**32, 4)):
        reports.append(drawn(randomizer, updates, source=source))
    assert len({report.tobytes() for report in reports}) == 7


@every_noise
def test_a_block_is_its_parts(randomizer):
    updates = updates_of(3, 41)
    whole = drawn(randomizer, updates)
    parts = [drawn(randomizer, updates[:, a:b], Place(3, 5 + a)) for a, b in ((0, 6), (6, 7), (7, 41))]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()
    rows = [drawn(randomizer, updates[u : u + 1], Place(3 + u, 5), budgets=BUDGETS[u : u + 1]) for u in range(3)]
    assert np.concatenate(rows).tobytes() == whole.tobytes()


def padded(randomizer, width=40, place=Place(3, 5, Purpose.PADDING), source=SOURCE, budgets=BUDGETS):  # noqa: B008
    return randomizer.padding(randomizer.prepare(budgets), width, place, source)


@every_randomizer
def test_padding_is_a_block_of_reports_and_its_parts(randomizer):
    whole = padded(randomizer, 41)
    assert whole.shape == (3, 41)
    assert whole.dtype == drawn(randomizer, updates_of(3, 41)).dtype
    parts = [padded(randomizer, b - a, Place(3, 5 + a, Purpose.PADDING)) for a, b in ((0, 6), (6, 7), (7, 41))]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()
    rows = [padded(randomizer, 41, Place(3 + u, 5, Purpose.PADDING), budgets=BUDGETS[u : u + 1]) for u in range(3)]
    assert np.concatenate(rows).tobytes() == whole.tobytes()


@every_noise
def test_user_coordinate_purpose_round_and_seed_all_change_the_padding(randomizer):
    places = (Place(3, 5, Purpose.PADDING), Place(4, 5, Purpose.PADDING), Place(3, 6, Purpose.PADDING), Place(3, 5))
    sources = (SimulationSource(31, 5), SimulationSource(32, 4), SimulationSource(31 + 2**32, 4))
    blocks = [padded(randomizer, place=place) for place in places]
    blocks += [padded(randomizer, source=source) for source in sources]
    assert len({block.tobytes() for block in blocks}) == 7


@every_randomizer
def test_padding_has_the_law_of_reports_on_zero(randomizer):
    """Their variances agree to 5 standard errors, and those of a budget 10 % smaller do not."""
    width, budgets = 400_000, np.array([4.0, 8.0, 20.0])
    reports = drawn(randomizer, np.zeros((3, width), dtype=np.float32), budgets=budgets)
    right, wrong = padded(randomizer, width, budgets=budgets), padded(randomizer, width, budgets=0.9 * budgets)
    for row, own, weak in zip(reports, right, wrong, strict=True):
        assert gap(row, own) <= 5
        assert gap(row, weak) > 5 or isinstance(randomizer, NoNoise)


def gap(one, other):
    """Difference of the mean squared distances from the pooled mean of two samples, in standard errors."""
    centre = np.concatenate([one, other]).mean(dtype=np.float64)
    a, b = (one - centre) ** 2, (other - centre) ** 2
    spread = np.sqrt(a.var() / a.size + b.var() / b.size)
    return abs(a.mean() - b.mean()) / spread if spread else 0.0


@every_randomizer
def test_memory_order_does_not_matter(randomizer):
    updates = updates_of(3, 40)
    expected = drawn(randomizer, updates).tobytes()
    assert drawn(randomizer, np.asfortranarray(updates)).tobytes() == expected
    assert drawn(randomizer, np.repeat(updates, 2, axis=1)[:, ::2]).tobytes() == expected


@every_randomizer
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_updates_that_are_not_finite(randomizer, value):
    updates = updates_of(3, 40)
    updates[1, 7] = value
    with pytest.raises(ParameterError, match=rf"updates\[1, 7\] must be finite, got {value}"):
        drawn(randomizer, updates)


def test_device_refuses_updates_that_are_not_finite():
    updates = updates_of(1, 4)
    updates[0, 2] = np.nan
    with pytest.raises(ParameterError, match=r"updates\[0, 2\] must be finite, got nan"):
        CodedClipLaplace(0.1, 16).draw_on_device(updates, BUDGETS[:1], SystemSource())


def test_tables_are_the_thresholds_read_only_and_kept():
    coded = CodedClipLaplace(0.1, 16)
    tables = coded.prepare(BUDGETS)
    assert (tables == acceptance_thresholds(BUDGETS, 16)).all()
    with pytest.raises(ValueError, match="read-only"):
        tables[0, 0] = 0
    assert coded.prepare(BUDGETS.copy()) is tables
    assert CodedClipLaplace(3.0, 16).prepare(BUDGETS) is tables  # the clip has no part in them
    assert CodedClipLaplace(0.1, 17).prepare(BUDGETS).shape == (3, 17)
    assert (coded.prepare(BUDGETS[::-1]) == tables[::-1]).all()


@pytest.mark.parametrize("levels", [2, 3, 16, 255, 256])
def test_tables_are_those_of_the_budgets(levels):
    """Whichever the number of levels; those of budgets 10 % larger are others."""
    tables = CodedClipLaplace(0.1, levels).prepare(BUDGETS)
    assert (tables == acceptance_thresholds(BUDGETS, levels)).all()
    assert (tables[:, 1:] != acceptance_thresholds(1.1 * BUDGETS, levels)[:, 1:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_budgets_of_another_type_mean_the_same(dtype):
    """Their bytes do not: two float32 eights, read as one float64, are a budget of 131072."""
    budgets = np.array([8, 8, 2], dtype=dtype)
    expected = acceptance_thresholds(np.array([8.0, 8.0, 2.0]), 16)
    assert CodedClipLaplace(0.1, 16).prepare(budgets).tolist() == expected.tolist()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_invalid_budgets_have_no_tables(bad):
    with pytest.raises(ParameterError, match=rf"budgets\[1\] must be in \(0, inf\), got {bad}"):
        CodedClipLaplace(0.1, 16).prepare(np.array([1.0, bad]))


LOOPS = [
    (CodedClipLaplace(0.1, 16), draw_codes, np.uint8),
    (ContinuousClipLaplace(0.1), draw_clip_laplace, np.float32),
    (LaplaceNoise(0.1), draw_laplace, np.float32),
]


@pytest.mark.parametrize(("randomizer", "loop", "dtype"), LOOPS, ids=[str(case[0]) for case in LOOPS])
def test_a_draw_is_its_loop_with_clip_budgets_and_address(randomizer, loop, dtype):
    """The loops' laws have tests of their own; what is left is that they are called rightly."""
    updates = updates_of(3, 40)
    tables = acceptance_thresholds(BUDGETS, 16) if loop is draw_codes else BUDGETS
    for purpose in Purpose:
        expected = np.empty(updates.shape, dtype=dtype)
        loop(updates, tables, 0.1, (11, 6, SOURCE.stream(purpose)), SOURCE.key, expected)
        assert drawn(randomizer, updates, Place(11, 6, purpose)).tobytes() == expected.tobytes()


def test_draw_on_device_uses_clip_levels_and_each_budget():
    coded, n = CodedClipLaplace(0.5, 9), 2000
    updates = np.asfortranarray(np.tile(np.float32([-0.5, 0.0, 0.5]), (2, n // 2)))
    codes = coded.draw_on_device(updates, np.array([60.0, 0.001]), SystemSource())
    assert codes.shape == updates.shape
    assert codes.dtype == np.uint8
    # 7.5 nats a step: the first user's reports stay, but for one in 900; the second user's are nearly uniform.
    assert np.mean(codes[0].reshape(-1, 3) == [0, 4, 8]) > 0.98
    assert np.mean(codes[1].reshape(-1, 3) == [0, 4, 8]) == pytest.approx(1 / 9, abs=6 * 0.006)
    assert codes[1].max() == 8
    assert (codes != coded.draw_on_device(updates, np.array([60.0, 0.001]), SystemSource())).any()


def test_no_noise_returns_a_copy():
    updates = updates_of(2, 10)
    report = NoNoise().draw(updates, NoNoise().prepare(BUDGETS), Place(0, 0), SOURCE)
    assert report.tobytes() == updates.tobytes()
    assert not np.shares_memory(report, updates)
    assert NoNoise().clip == math.inf


def test_place_is_for_reports_unless_said_otherwise():
    assert Place(1, 2) == Place(1, 2, Purpose.REPORT)
    with pytest.raises(FrozenInstanceError):
        Place(1, 2).first_user = 3
