"""Sparsifiers: which reports are kept (exactly), and the law of what replaces them (statistically).

Every statistical limit has a false-alarm rate of 1e-6; beside each test stands a wrong law that it rejects.
"""

from dataclasses import FrozenInstanceError, dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, Place
from apes.client.sparsifier import RandomB, Threshold, TopB
from apes.errors import ParameterError
from apes.mathematics.laws import ClipLaplace
from apes.mathematics.levels import level_probabilities
from apes.mathematics.randomness import Purpose, SimulationSource

CLIP = 0.1
SOURCE = SimulationSource(11, 2)
exact = settings(derandomize=True, deadline=None, max_examples=60)


def limit(degrees):
    return chi2.isf(1e-6, degrees)


def distance(counts, probabilities):
    """Pearson's chi-square of counts against a law."""
    expected = counts.sum() * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


@dataclass
class Marker:
    """A randomizer whose padding can be told from every report: it draws one value that no report has."""

    mark: int | float
    clip: float = CLIP
    prepared: list = field(default_factory=list)

    def prepare(self, budgets):
        self.prepared.append(budgets)
        return budgets

    def padding(self, tables, width, place, source):
        assert place.purpose == Purpose.PADDING
        return np.full(
            (tables.shape[0], width), self.mark, dtype=np.uint8 if isinstance(self.mark, int) else np.float32
        )


def levels_without_the_last(rng, levels, shape):
    return rng.integers(0, levels - 1, shape).astype(np.uint8)


def kept_of(sparsifier, values, levels=256, source=SOURCE, place=None):
    """Which reports a sparsifier keeps; those must be unchanged. Level K - 1 and the value 9 mark padding."""
    is_coded = values.dtype == np.uint8
    marker = Marker(levels - 1 if is_coded else 9.0)
    tables = np.ones((values.shape[0], levels if is_coded else 1))
    result = sparsifier.apply(values.copy(), tables, marker, place or Place(0, 0), source)
    kept = result != marker.mark
    assert result.dtype == values.dtype
    assert (result[kept] == values[kept]).all()
    return kept


def sizes_of(values, levels):
    return np.abs(2.0 * values - (levels - 1)) if values.dtype == np.uint8 else np.abs(values)


@exact
@given(
    seed=st.integers(0, 99),
    levels=st.sampled_from([3, 4, 16, 255, 256]),
    width=st.integers(1, 60),
    part=st.floats(0, 1),
)
@pytest.mark.parametrize("kind", [TopB, RandomB])
def test_b_reports_of_every_user_are_kept(kind, seed, levels, width, part):
    rng = np.random.default_rng(seed)
    b = max(1, round(part * width))
    for values in (
        levels_without_the_last(rng, levels, (7, width)),
        rng.uniform(-CLIP, CLIP, (7, width)).astype(np.float32),
    ):
        kept = kept_of(kind(b), values, levels)
        assert (kept.sum(axis=1) == b).all()
        if kind is TopB:
            sizes = sizes_of(values, levels)
            for row, size in zip(kept, sizes, strict=True):
                assert b == width or size[row].min() >= size[~row].max()


def choice_distance(chosen, b, width):
    """Chi-square with width - 1 degrees of freedom: how evenly b of width places are chosen by many users."""
    share = b / width
    variance = chosen.size / width * share * (1 - share) * width / (width - 1)
    return float(((chosen.sum(axis=0) - chosen.shape[0] * share) ** 2).sum() / variance)


def favoured(kept):
    """The same choice, but place 0 chosen 10 % more often."""
    biased = kept.copy()
    biased[np.flatnonzero(~kept[:, 0])[: round(0.1 * kept[:, 0].sum())], 0] = True
    return biased


@pytest.mark.parametrize("ends", [(0, 0), (0, 14)], ids=["equal levels", "equal sizes"])
def test_ties_are_broken_without_favour(ends):
    users, width, b, levels = 60_000, 20, 5, 15
    values = np.random.default_rng(3).choice(np.array(ends, np.uint8), (users, width))
    centre = levels // 2
    kept = TopB(b).apply(values, np.ones((users, levels)), Marker(centre), Place(0, 0), SOURCE) != centre
    assert (kept.sum(axis=1) == b).all()
    assert choice_distance(kept, b, width) <= limit(width - 1)
    assert choice_distance(favoured(kept), b, width) > limit(width - 1)


def test_ties_fill_up_behind_the_larger_reports():
    values = np.full((500, 12), 5, dtype=np.uint8)
    values[:, 3], values[:, 9] = 0, 1  # sizes 15, 13 and ten times 5, of 16 levels
    kept = kept_of(TopB(4), values, levels=16)
    assert kept[:, [3, 9]].all()
    assert 0 < kept[:, 0].sum() < 500


def test_random_b_chooses_all_subsets_alike():
    users, width, b = 40_000, 5, 2
    values = np.tile(np.arange(width, dtype=np.uint8), (users, 1))  # sizes must not matter
    kept = kept_of(RandomB(b), values)
    # There are as many ways to choose three of five.
    assert (kept.sum(axis=1) == b).all()
    names, counts = np.unique(kept @ 2 ** np.arange(width), return_counts=True)
    assert names.size == 10
    assert distance(counts, np.full(10, 0.1)) <= limit(9)
    uneven = np.array([1.1, *[8.9 / 9] * 9]) / 10
    assert distance(counts, uneven) > limit(9)


def test_which_reports_random_b_keeps_says_nothing_about_them():
    """Kept reports and those that are padded have one law: the choice is drawn with randomness of its own."""
    users, width, levels = 4_000, 50, 16
    randomizer, sparsifier = CodedClipLaplace(CLIP, levels), RandomB(width // 2)
    tables = randomizer.prepare(np.full(users, 4.0))
    reports = randomizer.draw(np.zeros((users, width), dtype=np.float32), tables, Place(0, 0), SOURCE)

    def unlikeness(place):
        """How far kept and padded reports are apart if those are kept that are chosen at this place."""
        kept = np.empty(reports.shape, dtype=bool)
        sparsifier._choose(reports, tables, place.address(SOURCE, reports.shape), SOURCE.key, kept)
        return kept, two_sample(np.stack([np.bincount(reports[part], minlength=levels) for part in (kept, ~kept)]))

    chosen, apart = unlikeness(Place(0, 0, Purpose.CHOICE))
    assert apart <= limit(levels - 1)
    result = sparsifier.apply(reports.copy(), tables, randomizer, Place(0, 0), SOURCE)
    assert (result[chosen] == reports[chosen]).all()
    assert (result[~chosen] != reports[~chosen]).any()
    _, apart = unlikeness(Place(0, 0, Purpose.REPORT))
    assert apart > limit(levels - 1)


def law_at_zero(epsilon, levels):
    table = level_probabilities(np.array([epsilon]), levels)[0]
    return (table[(levels - 1) // 2] + table[levels // 2]) / 2


def padding_counts(sparsifier, budgets, levels, width=400_000):
    """Levels that replace the reports of each user when all reports are small, but the first."""
    randomizer = CodedClipLaplace(CLIP, levels)
    values = np.full((len(budgets), width), levels // 2, dtype=np.uint8)
    values[:, 0] = 0
    result = sparsifier.apply(values, randomizer.prepare(np.array(budgets)), randomizer, Place(0, 0), SOURCE)
    assert (result[:, 0] == 0).all()
    return np.array([np.bincount(row[1:], minlength=levels) for row in result])


@pytest.mark.parametrize("levels", [8, 15])
def test_top_b_pads_with_perturbed_zeros_of_the_users_own_budget(levels):
    budgets = [2.0, 6.0]
    for counts, epsilon in zip(padding_counts(TopB(1), budgets, levels), budgets, strict=True):
        assert distance(counts, law_at_zero(epsilon, levels)) <= limit(levels - 1)
        for wrong in (0.9 * epsilon, 1.1 * epsilon):
            assert distance(counts, law_at_zero(wrong, levels)) > limit(levels - 1)


def test_padding_of_continuous_reports():
    width, budgets = 200_000, np.array([8.0, 20.0])
    values = np.zeros((2, width), dtype=np.float32)
    values[:, 0] = CLIP
    randomizer = ContinuousClipLaplace(CLIP)
    largest_gap = np.sqrt(np.log(2 / 1e-6) / (2 * (width - 1)))  # Massart 1990
    for sparsifier, laws in ((TopB(1), budgets), (Threshold(0.5, 12.0), [12.0, 12.0])):
        result = sparsifier.apply(values, randomizer.prepare(budgets), randomizer, Place(0, 0), SOURCE)
        for row, epsilon in zip(result, laws, strict=True):
            padding, ranks = np.sort(row[1:]), (np.arange(width - 1) + 0.5) / (width - 1)
            assert row[0] == np.float32(CLIP)
            padding = np.clip(padding.astype(np.float64), -CLIP, CLIP)
            assert np.abs(ClipLaplace(0.0, epsilon, CLIP).cdf(padding) - ranks).max() <= largest_gap
            assert np.abs(ClipLaplace(0.0, 0.9 * epsilon, CLIP).cdf(padding) - ranks).max() > largest_gap


@exact
@given(seed=st.integers(0, 99), levels=st.sampled_from([3, 8, 11, 256]), tau=st.sampled_from([0, 0.2, 0.5, 0.8, 1]))
def test_threshold_keeps_exactly_the_large_reports(seed, levels, tau):
    rng = np.random.default_rng(seed)
    codes = levels_without_the_last(rng, levels, (5, 40))
    assert (kept_of(Threshold(tau), codes, levels) == (sizes_of(codes, levels) >= tau * (levels - 1))).all()
    values = rng.uniform(-CLIP, CLIP, (5, 40)).astype(np.float32)
    values[0, :3] = [tau * CLIP, -tau * CLIP, np.nextafter(np.float32(tau * CLIP), np.float32(-1))]
    kept = kept_of(Threshold(tau), values)
    assert kept[0, :3].tolist() == [True, True, tau == 0]
    assert (kept == (np.abs(values) >= np.float32(tau * CLIP))).all()


def two_sample(counts):
    """Chi-square of two rows of counts being drawn from one law."""
    pooled = counts.sum(axis=0) / counts.sum()
    return sum(distance(row, pooled) for row in counts)


def test_padding_of_a_threshold_does_not_depend_on_the_users_budget():
    levels = 8
    counts = padding_counts(Threshold(0.9, 4.0), [0.05, 8.0], levels)
    assert two_sample(counts) <= limit(levels - 1)
    for row in counts:
        assert distance(row, law_at_zero(4.0, levels)) <= limit(levels - 1)
        assert distance(row, law_at_zero(4.4, levels)) > limit(levels - 1)
    own = padding_counts(TopB(1), [4.0, 4.4], levels)  # the same test on padding with the users' own budgets
    assert two_sample(own) > limit(levels - 1)


@pytest.mark.parametrize("randomizer", [CodedClipLaplace(CLIP, 16), ContinuousClipLaplace(CLIP)])
def test_threshold_acts_on_each_report_alone(randomizer):
    """Same report, same randomness: same result, whatever the budget, the other users and the other coordinates.

    With the padding's law being one for all, this is why it commutes with the shuffle: permuting users before or
    after it gives the same law.
    """
    rng = np.random.default_rng(5)
    budgets, sparsifier = np.linspace(0.05, 8, 6), Threshold(0.6, 4.0)
    updates = rng.uniform(-CLIP, CLIP, (6, 50)).astype(np.float32)
    values = randomizer.draw(updates, randomizer.prepare(budgets), Place(0, 0), SOURCE)

    def apply(block, own, first_user=0, first_coordinate=0):
        place = Place(first_user, first_coordinate)
        return sparsifier.apply(block, randomizer.prepare(own), randomizer, place, SOURCE)

    result = apply(values, budgets)
    assert (result != values).any()
    assert (apply(values, budgets[::-1].copy()) == result).all()
    others = values.copy()
    others[1:] = values[:-1]
    assert (apply(others, budgets)[0] == result[0]).all()
    for user in range(6):
        assert (apply(values[user : user + 1], budgets[user : user + 1], user) == result[user]).all()
        for c in (0, 7, 49):
            alone = apply(values[user : user + 1, c : c + 1].copy(), budgets[user : user + 1], user, c)
            assert alone[0, 0] == result[user, c]
    assert (apply(values, budgets, first_user=6) != result).any()  # other users have randomness of their own


@pytest.mark.parametrize("sparsifier", [TopB(50), RandomB(50), Threshold(0.0)])
def test_keeping_everything_changes_nothing(sparsifier):
    values = np.random.default_rng(0).integers(0, 255, (3, 50)).astype(np.uint8)
    assert kept_of(sparsifier, values).all()


def test_who_needs_the_whole_update():
    assert TopB(1).needs_whole_update
    assert RandomB(1).needs_whole_update
    assert not Threshold(0.5).needs_whole_update


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopB(0), r"^b must be in \[1, inf\), got 0$"),
        (lambda: RandomB(-1), r"^b must be in \[1, inf\), got -1$"),
        (lambda: TopB(2.5), r"^b must be a whole number, got 2.5$"),
        (lambda: Threshold(-0.1), r"^tau must be in \[0, 1\], got -0.1$"),
        (lambda: Threshold(1.1), r"^tau must be in \[0, 1\], got 1.1$"),
        (lambda: Threshold(np.nan), r"^tau must be in \[0, 1\], got nan$"),
        (lambda: Threshold(0.5, 0.0), r"^padding_epsilon must be in \(0, 44\], got 0.0$"),
        (lambda: Threshold(0.5, 44.1), r"^padding_epsilon must be in \(0, 44\], got 44.1$"),
        (lambda: Threshold(0.5, np.nan), r"^padding_epsilon must be in \(0, 44\], got nan$"),
    ],
)
def test_invalid_parameters(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


@pytest.mark.parametrize("kind", [TopB, RandomB])
def test_more_reports_to_keep_than_there_are(kind):
    with pytest.raises(ParameterError, match=r"^b must be"):
        kept_of(kind(7), np.zeros((2, 5), dtype=np.uint8))


def test_ties_of_continuous_reports_are_broken_without_favour():
    users, width, b = 60_000, 20, 5
    signs = np.random.default_rng(7).choice(np.array([-1, 1], np.float32), (users, width))
    kept = kept_of(TopB(b), CLIP * signs)
    assert choice_distance(kept, b, width) <= limit(width - 1)
    assert choice_distance(favoured(kept), b, width) > limit(width - 1)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 1e-3, CLIP])
def test_neighbouring_continuous_reports_are_told_apart(value):
    """The smallest difference there is between two reports decides, however small they are."""
    larger = np.nextafter(np.float32(value), np.float32(1))
    values = np.full((50, 11), value, dtype=np.float32)
    values[:, 3], values[:, 8] = larger, -larger
    assert (kept_of(TopB(2), values).sum(axis=0) == [0, 0, 0, 50, 0, 0, 0, 0, 50, 0, 0]).all()


@pytest.mark.parametrize("randomizer", [CodedClipLaplace(CLIP, 16), ContinuousClipLaplace(CLIP)])
@pytest.mark.parametrize("sparsifier", [TopB(12), RandomB(12), Threshold(0.6)], ids=str)
def test_any_split_of_the_users_gives_the_same_reports(sparsifier, randomizer):
    """With 16 levels and 50 coordinates every user's cut is tied."""
    budgets = np.linspace(0.05, 8, 9)
    updates = np.random.default_rng(2).normal(0, CLIP, (9, 50)).astype(np.float32)

    def result(a, b):
        tables, place = randomizer.prepare(budgets[a:b]), Place(20 + a, 0)
        values = randomizer.draw(updates[a:b], tables, place, SOURCE)
        return sparsifier.apply(values, tables, randomizer, place, SOURCE).tobytes()

    for cuts in ([0, 1, 9], [0, 4, 5, 9], list(range(10))):
        assert b"".join(result(a, b) for a, b in pairwise(cuts)) == result(0, 9)


def test_sparsifiers_leave_what_they_are_given():
    values = np.random.default_rng(1).integers(0, 16, (4, 30)).astype(np.uint8)
    before, randomizer = values.copy(), CodedClipLaplace(CLIP, 16)
    for sparsifier in (TopB(5), RandomB(5), Threshold(0.6)):
        sparsifier.apply(values, randomizer.prepare(np.ones(4)), randomizer, Place(0, 0), SOURCE)
        assert (values == before).all()


def test_sparsifiers_are_values():
    assert TopB(3) == TopB(3) != TopB(4)
    assert TopB(3) != RandomB(3)
    assert repr(TopB(3)) == "TopB(b=3)"
    with pytest.raises(FrozenInstanceError):
        RandomB(3).b = 4
