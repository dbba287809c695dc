"""Collectors: what is released is the same for every order of the blocks, and tells nobody's place.

Limits of the statistical tests have a false-alarm rate of 1e-6; what is not shuffled fails the same tests.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from apes.analyzer.calibrator import CodedInverse, likelihood_statistic, report_statistic
from apes.analyzer.expected import pooled_channel
from apes.errors import ApesError, ParameterError, ProtocolError
from apes.mathematics.randomness import SimulationSource
from apes.messages import Report
from apes.shuffler.shuffle import Adder, LevelCounter, Permuter

SOURCE = SimulationSource(4, 2)
LEVELS = 16
exact = settings(derandomize=True, deadline=None, max_examples=60)

COLLECTORS = {
    "counter": (lambda users, d: LevelCounter(users, d, LEVELS, SOURCE), np.uint8),
    "coded permuter": (lambda users, d: Permuter(users, d, SOURCE, np.uint8), np.uint8),
    "permuter": (lambda users, d: Permuter(users, d, SOURCE), np.float32),
    "adder": (lambda users, d: Adder(users, d, SOURCE), np.float32),
}
every_collector = pytest.mark.parametrize(("make", "dtype"), COLLECTORS.values(), ids=COLLECTORS)


def reports_of(values, user_cuts=(), coordinate_cuts=()):
    """Split users x coordinates into blocks."""
    rows = sorted({0, values.shape[0], *(cut % values.shape[0] for cut in user_cuts)})
    columns = sorted({0, values.shape[1], *(cut % values.shape[1] for cut in coordinate_cuts)})
    budgets = budgets_of(values.shape[0])
    return [Report(values[a:b, c:e], budgets[a:b], a, c) for a, b in pairwise(rows) for c, e in pairwise(columns)]


def budgets_of(users):
    return np.linspace(0.05, 3, users)


def random_values(dtype, users, d, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == np.uint8:
        return rng.integers(0, LEVELS, (users, d)).astype(np.uint8)
    return rng.normal(0, 3, (users, d)).astype(np.float32)


def collect(collector, reports):
    for report in reports:
        collector.add(report)
    return collector.release()


def payload(batch):
    """What a batch says, as bytes."""
    return b"".join(np.ascontiguousarray(field).tobytes() for field in vars(batch).values())


@exact
@given(
    users=st.integers(1, 30),
    d=st.sampled_from([1, 5, 130]),
    user_cuts=st.lists(st.integers(0, 30), max_size=4),
    coordinate_cuts=st.lists(st.integers(0, 130), max_size=3),
    order=st.randoms(use_true_random=False),
)
@every_collector
def test_order_and_size_of_blocks_do_not_matter(make, dtype, users, d, user_cuts, coordinate_cuts, order):
    values = random_values(dtype, users, d)
    whole = collect(make(users, d), reports_of(values))
    reports = reports_of(values, user_cuts, coordinate_cuts)
    # Users come in any order; a user's own parts follow one another.
    ranks = {first: order.random() for first in {report.first_user for report in reports}}
    reports.sort(key=lambda report: (ranks[report.first_user], report.first_coordinate))
    assert payload(collect(make(users, d), reports)) == payload(whole)


@every_collector
def test_threads_do_not_matter(make, dtype):
    users, d = 600, 130
    values = random_values(dtype, users, d)
    whole = collect(make(users, d), reports_of(values))
    collector = make(users, d)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(collector.add, reports_of(values, range(0, users, 7))))
    assert payload(collector.release()) == payload(whole)


@every_collector
def test_parts_gathered_elsewhere_do_not_matter(make, dtype):
    """Three workers of the shuffler, one of them idle: what they bring back makes up the same batch."""
    users, d = 30, 130
    values = random_values(dtype, users, d)
    whole = collect(make(users, d), reports_of(values))
    total, parts = make(users, d), []
    for blocks in ([0, 2], [], [1, 3, 4]):
        worker = make(users, d)
        for block in blocks:
            for report in reports_of(values, range(0, users, 6), [50])[2 * block : 2 * block + 2]:
                worker.add(report)
        parts.append(pickle.loads(pickle.dumps(worker.part())))
    for part in parts[::-1]:
        total.join(part, budgets_of(users))
    assert payload(total.release()) == payload(whole)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        again, (first, second, third) = make(users, d), (parts[place] for place in order)
        again.join(first.plus(second.plus(third)), budgets_of(users))
        assert payload(again.release()) == payload(whole)
    with pytest.raises(ProtocolError, match="users who have reported already"):
        parts[0].plus(parts[0])
    incomplete = make(users, d)
    incomplete.join(parts[0], budgets_of(users))
    with pytest.raises(ProtocolError, match=f"^user 6 reported 0 of {d} coordinates$"):
        incomplete.release()
    with pytest.raises(ProtocolError, match="users who have reported already"):
        incomplete.join(parts[0], budgets_of(users))


def test_counts_of_a_part_are_as_narrow_as_its_users_allow():
    parts = []
    for start, stop in ((0, 200), (200, 400), (400, 66_000)):
        worker = LevelCounter(66_000, 2, 2, SOURCE, range(start, stop))
        for first in range(start, stop, 60_000):
            last = min(first + 60_000, stop)
            worker.add(Report(np.ones((last - first, 2), dtype=np.uint8), np.ones(last - first), first, 0))
        parts.append(worker.part())
    assert [part.values.dtype for part in parts] == [np.uint8, np.uint8, np.uint32]
    few = parts[1].plus(parts[0])
    assert (few.values.dtype, few.spans) == (np.uint16, (range(400),))
    everybody = few.plus(parts[2])
    assert (everybody.values.dtype, everybody.values.tolist()) == (np.uint32, [[0, 66_000]] * 2)


def test_a_part_of_users_who_are_not_done_is_refused():
    worker = LevelCounter(10, 3, 2, SOURCE, range(4, 8))
    worker.add(Report(np.zeros((2, 2), dtype=np.uint8), np.ones(2), 5, 0))
    with pytest.raises(ProtocolError, match=r"^user 5 reported 2 of 3 coordinates$"):
        worker.part()
    with pytest.raises(ProtocolError, match=r"report from users 3\.\.4 of 4"):
        worker.add(Report(np.zeros((2, 3), dtype=np.uint8), np.ones(2), 3, 0))


@every_collector
def test_budgets_are_released_in_an_order_of_their_own(make, dtype):
    users = 50
    released = collect(make(users, 3), reports_of(random_values(dtype, users, 3))).budgets
    assert np.sort(released).tolist() == budgets_of(users).tolist()
    assert (released != budgets_of(users)).any()


def test_the_order_of_budgets_is_that_of_no_coordinate():
    users = 50
    senders = np.tile(np.arange(users, dtype=np.float32)[:, None], (1, 3))
    batch = collect(Permuter(users, 3, SOURCE), reports_of(senders))
    assert all((np.sort(order) == np.arange(users)).all() for order in batch.values)
    assert all((budgets_of(users)[order.astype(int)] != batch.budgets).any() for order in batch.values)


def test_counts_are_bincounts():
    values = random_values(np.uint8, 300, 70)
    counts = collect(LevelCounter(300, 70, LEVELS, SOURCE), reports_of(values, [50, 99], [13])).counts
    assert counts.dtype == np.int64
    assert (counts == [np.bincount(column, minlength=LEVELS) for column in values.T]).all()


@exact
@given(order=st.permutations(range(40)))
def test_counts_carry_no_user_order(order):
    values = random_values(np.uint8, 40, 30)
    counts = collect(LevelCounter(40, 30, LEVELS, SOURCE), reports_of(values)).counts
    again = collect(LevelCounter(40, 30, LEVELS, SOURCE), reports_of(values[order])).counts
    assert (counts == again).all()


@pytest.mark.parametrize("block", [1_000, 9_999, 65_535])
def test_tallies_are_emptied_before_they_overflow(block):
    users, d = 3 * 65_536, 2
    values = np.full((users, d), 3, dtype=np.uint8)
    counts = collect(LevelCounter(users, d, LEVELS, SOURCE), reports_of(values, range(0, users, block))).counts
    assert (counts == np.where(np.arange(LEVELS) == 3, users, 0)).all()


def test_a_block_larger_than_a_tally_is_refused():
    values = np.zeros((65_536, 1), dtype=np.uint8)
    with pytest.raises(ProtocolError, match="at most 65535 users, got 65536"):
        collect(LevelCounter(65_536, 1, 2, SOURCE), reports_of(values))


def test_permuting_and_counting_give_the_same_estimate():
    users, d, levels = 700, 300, 256
    values = np.random.default_rng(1).integers(0, levels, (users, d)).astype(np.uint8)
    counted = collect(LevelCounter(users, d, levels, SOURCE), reports_of(values, [100], [77]))
    permuted = collect(Permuter(users, d, SOURCE, np.uint8), reports_of(values, [5, 200]))
    assert (permuted.values.T != values).mean() > 0.9
    assert (permuted.counted(levels).counts == counted.counts).all()
    for statistic in (report_statistic, likelihood_statistic):
        calibrator = CodedInverse(0.1, lambda budgets: pooled_channel(budgets, levels), statistic)
        one, other = calibrator.estimate(counted), calibrator.estimate(permuted)
        assert one.mean.tobytes() == other.mean.tobytes()
        assert one.standard_error == other.standard_error


def released_values(users, d, **options):
    """Users sorted by what they report: user u reports u in every coordinate."""
    values = np.repeat(np.arange(users, dtype=np.float32)[:, None], d, axis=1)
    return collect(Permuter(users, d, SOURCE, **options), reports_of(values)).values


def correlations(rows, reference):
    """Correlation of each row with a reference, in standard deviations of what a random order gives."""
    rows = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    reference = (reference - reference.mean()) / reference.std()
    return rows @ reference / reference.size * np.sqrt(reference.size - 1)


def test_the_batch_carries_no_user_order():
    users, d = 2_000, 400
    limit = norm.isf(1e-6 / (2 * d))
    rows = released_values(users, d)
    assert (np.sort(rows, axis=1) == np.arange(users)).all()
    assert np.abs(correlations(rows, np.arange(users))).max() <= limit
    unshuffled = np.tile(np.arange(users), (d, 1))
    assert np.abs(correlations(unshuffled, np.arange(users))).min() > limit


def test_budgets_are_not_aligned_with_reports():
    users, d = 2_000, 400
    values = np.repeat(budgets_of(users).astype(np.float32)[:, None], d, axis=1)
    batch = collect(Permuter(users, d, SOURCE), reports_of(values))
    limit = norm.isf(1e-6 / (2 * d))
    assert np.abs(correlations(batch.values, batch.budgets)).max() <= limit
    assert abs(correlations(batch.budgets[None], budgets_of(users)).item()) <= norm.isf(1e-6 / 2)
    aligned = budgets_of(users)[np.argsort(np.argsort(batch.values[0]))]  # were they to share a coordinate's order
    assert np.abs(correlations(batch.values, aligned)).max() > limit


def uniform_distance(places, cells):
    counts = np.bincount(places, minlength=cells)
    return ((counts - places.size / cells) ** 2).sum() * cells / places.size


def test_coordinates_are_permuted_independently():
    users, d = 10, 60_000
    places = np.argmax(released_values(users, d) == 0, axis=1)  # where user 0's report lands
    assert uniform_distance(places, users) <= chi2.isf(1e-6, users - 1)
    pairs, limit = places[::2] * users + places[1::2], chi2.isf(1e-6, users**2 - 1)
    assert uniform_distance(pairs, users**2) <= limit
    one_permutation = places[::2] * users + places[::2]
    assert uniform_distance(one_permutation, users**2) > limit


def test_threads_do_not_change_the_permutations():
    one = released_values(20, 31, threads=1)
    for threads in (2, 5, 40):
        assert (released_values(20, 31, threads=threads) == one).all()


def test_sums_are_exact_to_the_fixed_point():
    values = random_values(np.float32, 500, 40)
    mean = collect(Adder(500, 40, SOURCE), reports_of(values, [99], [7])).mean
    assert np.abs(mean - values.astype(np.float64).mean(axis=0)).max() <= 2.0**-33 + 1e-15


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**30, 2.0**25])
def test_what_cannot_be_added_up(bad):
    values = np.zeros((100, 3), dtype=np.float32)
    values[0, 0] = 2.0**23  # below 2^30 / 100
    values[57, 2] = bad
    with pytest.raises(ParameterError, match=r"^updates must be finite and within \+-1.07e\+07 to be added up$"):
        collect(Adder(100, 3, SOURCE), reports_of(values))


@every_collector
def test_somebody_or_something_is_missing(make, dtype):
    values = random_values(dtype, 6, 8)
    for reports, message in (
        (reports_of(values, [2])[:1], "user 2 reported 0 of 8 coordinates"),
        (reports_of(values, [2], [5])[:3], "user 2 reported 5 of 8 coordinates"),
        (reports_of(values) + reports_of(values, [2])[1:], "report on coordinates 0..7 of 8 is not what comes next .*"),
        ([], "user 0 reported 0 of 8 coordinates"),
    ):
        with pytest.raises(ProtocolError, match=f"^{message}$"):
            collect(make(6, 8), reports)


@every_collector
def test_reports_that_do_not_belong(make, dtype):
    values, budgets = random_values(dtype, 2, 3), np.ones(2)
    for report, message in (
        (Report(values, budgets, 5, 0), r"^report from users 5..6 of 6$"),
        (Report(values, budgets, -1, 0), r"^report from users -1..0 of 6$"),
        (Report(values, budgets[:1], 0, 0), r"^report of 2 users whose budgets are not 2 numbers"),
        (Report(values, budgets * np.nan, 0, 0), r"^report of 2 users whose budgets are not 2 numbers"),
        (Report(values, budgets, 0, 6), r"^report on coordinates 6..8 of 8 is not what comes next"),
        (Report(values, budgets, 0, -1), r"^report on coordinates -1..1 of 8 is not what comes next"),
        (Report(values, budgets, 0, 2), r"^report on coordinates 2..4 of 8 is not what comes next"),
        (Report(values[0], budgets, 0, 0), r"^a report is users x coordinates, got shape \(3,\)$"),
        (Report(values[:, :0], budgets, 0, 0), r"^a report is users x coordinates, got shape \(2, 0\)$"),
    ):
        with pytest.raises(ProtocolError, match=message):
            make(6, 8).add(report)


@pytest.mark.parametrize("name", ["counter", "coded permuter", "permuter"])
def test_reports_of_another_type(name):
    make, dtype = COLLECTORS[name]
    wrong = random_values(np.float32 if dtype == np.uint8 else np.uint8, 2, 3)
    with pytest.raises(ProtocolError, match=f"reports are .* got {wrong.dtype}$"):
        make(2, 3).add(Report(wrong, np.ones(2), 0, 0))


@pytest.mark.parametrize("level", [LEVELS, 255])
def test_levels_past_the_last(level):
    values = np.zeros((2, 3), dtype=np.uint8)
    values[1, 2] = level
    with pytest.raises(ProtocolError, match=r"^a report holds a level past 15$"):
        LevelCounter(2, 3, LEVELS, SOURCE).add(Report(values, np.ones(2), 0, 0))


@every_collector
def test_one_half_reported_twice_is_not_the_whole(make, dtype):
    half = Report(random_values(dtype, 2, 4), np.ones(2), 0, 0)
    with pytest.raises(ProtocolError):
        collect(make(2, 8), [half, half])


@every_collector
def test_nobody_reports_twice_in_company(make, dtype):
    """Not in a block, nor in a worker's part, with people who have not reported yet."""
    values, budgets = random_values(dtype, 4, 3), budgets_of(4)
    collector, worker = make(4, 3), make(4, 3)
    collector.add(Report(values[:2], budgets[:2], 0, 0))
    worker.add(Report(values[1:], budgets[1:], 1, 0))
    with pytest.raises(ProtocolError, match="is not what comes next from its users"):
        collector.add(Report(values[1:], budgets[1:], 1, 0))
    with pytest.raises(ProtocolError, match="users who have reported already"):
        collector.join(worker.part(), budgets)
    collector.add(Report(values[2:], budgets[2:], 2, 0))
    assert payload(collector.release()) == payload(collect(make(4, 3), reports_of(values)))


@pytest.mark.parametrize("budget", [0.0, -1.0, np.nan, np.inf])
def test_budgets_of_a_report_are_numbers_above_zero(budget):
    collector = LevelCounter(2, 3, LEVELS, SOURCE)
    with pytest.raises(ProtocolError, match=r"whose budgets are not 2 numbers in \(0, inf\)"):
        collector.add(Report(np.zeros((2, 3), dtype=np.uint8), np.array([1.0, budget]), 0, 0))


@pytest.mark.parametrize("change", [-1, 1])
def test_counts_of_a_part_add_up_to_its_users(change):
    """In every coordinate: what a worker says wrongly of one of them is seen."""
    worker = LevelCounter(5, 3, LEVELS, SOURCE)
    worker.add(Report(np.zeros((5, 3), dtype=np.uint8), np.ones(5), 0, 0))
    part = worker.part()
    part.values[2, 0] = 5 + change
    with pytest.raises(ProtocolError, match="counts of a part do not add up to the 5 users who reported it"):
        LevelCounter(5, 3, LEVELS, SOURCE).join(part, np.ones(5))


def test_a_permuted_batch_counts_any_number_of_users():
    batch = collect(Permuter(70_000, 1, SOURCE, np.uint8), reports_of(np.full((70_000, 1), 2, dtype=np.uint8)))
    counted = batch.counted(3)
    assert counted.counts.dtype == np.int64
    assert counted.counts.tolist() == [[0, 0, 70_000]]
    assert counted.budgets.tobytes() == batch.budgets.tobytes()


@pytest.mark.parametrize("name", ["counter", "adder"])
def test_a_refused_report_was_not_received(name):
    make, dtype = COLLECTORS[name]
    collector, good = make(3, 2), random_values(dtype, 3, 2)
    collector.add(Report(good[:2], np.ones(2), 0, 0))
    bad = np.full((1, 2), 255, dtype=np.uint8) if dtype == np.uint8 else np.full((1, 2), np.nan, dtype=np.float32)
    with pytest.raises(ApesError):
        collector.add(Report(bad, np.ones(1), 2, 0))
    with pytest.raises(ProtocolError, match="user 2 reported 0 of 2"):
        collector.release()
