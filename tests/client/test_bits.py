"""Reports of one bit: the exact law of the flips, and what comes out of simulation and device.

Statistical limits have a false-alarm rate of 1e-6; beside each stands a law 10 % off that is rejected.
"""

from fractions import Fraction
from itertools import product

import cipher_words
import mpmath
import numpy as np
import pytest
from levels import sampled
from scipy.stats import norm as normal

from apes import LogisticRegression, Terms
from apes.client.client import DeviceClient
from apes.client.clip import GRID, MOST_COORDINATES, clip_norm, norm_limit
from apes.client.draws.bits import _compare, draw_bits, draw_bits_on_device
from apes.client.draws.coded import TIE
from apes.client.one_bit import OneBit
from apes.client.randomizer import Place
from apes.errors import ParameterError
from apes.mathematics.randomness import Purpose, SimulationSource, SystemSource
from apes.mathematics.thresholds import flip_thresholds
from apes.population import UserBlock

SOURCE = SimulationSource(31, 4)
LIMIT = normal.isf(0.5e-6)
BUDGETS = [1e-9, 1e-6, 0.001, 0.05, 0.3, 1.0, np.log(3), 2.5, 7.0, 20.0, 40.0]


def allows(flip, budget):
    """Whether a flip of probability F / 2^64 makes a bit epsilon-LDP: (2^64 - F) / F <= exp(epsilon)."""
    with mpmath.workdps(60):
        return mpmath.mpf(2**64 - flip) <= flip * mpmath.exp(mpmath.mpf(budget))


@pytest.mark.parametrize("budget", [*BUDGETS, *sampled(np.geomspace(1e-9, 40, 200), keep=20)])
def test_flips_are_private_and_no_likelier_than_needed(budget):
    flip = int(flip_thresholds(np.array([budget]))[0])
    assert allows(flip, budget)
    assert not allows(flip - 1, budget)


@pytest.mark.parametrize("budget", [5e-324, 1e-300, 1e-15, 44.0, 44.4, 100.0, 1e300])
def test_flips_at_the_ends(budget):
    flip = int(flip_thresholds(np.array([budget]))[0])
    assert 1 <= flip <= 2**63
    assert flip == 2**63 if budget < 1e-14 else allows(flip, min(budget, 50.0))


def test_the_law_of_a_report_is_private_for_any_two_updates():
    """P(1 | k) in fractions: it increases with k, and from end to end by a factor of at most exp(epsilon)."""
    for budget in BUDGETS:
        flip = Fraction(int(flip_thresholds(np.array([budget]))[0]), 2**64)
        laws = [Fraction(GRID + k, 2 * GRID) * (1 - 2 * flip) + flip for k in (-GRID, -GRID + 1, -1, 0, 1, 99, GRID)]
        assert laws == sorted(laws)
        with mpmath.workdps(60):
            low, high = (mpmath.mpf(law.numerator) / law.denominator for law in (laws[0], laws[-1]))
            assert high <= mpmath.exp(mpmath.mpf(budget)) * low


def signs_of(value, width, norm, clip=1.0):
    """The update (value, ..., value), and the k that it becomes."""
    update = np.full((1, width), value, dtype=np.float32)
    steps = np.empty(width, dtype=np.int32)
    clip_norm(update[0], clip, norm_limit(norm, clip), steps)
    return update, int(steps[0])


def in_simulation(update, norm, flip):
    bits = np.empty(update.shape, dtype=np.uint8)
    address = Place(3, 0).address(SOURCE, update.shape)
    assert draw_bits(update, np.array([flip]), 1.0, norm_limit(norm, 1.0), address, SOURCE.key, bits)
    return bits


def on_device(update, norm, flip):
    return draw_bits_on_device(update, np.array([flip]), 1.0, norm_limit(norm, 1.0), SystemSource())


def distance(bits, step, flip):
    """Of the number of ones from its mean under the law of a report on k = step, in standard deviations."""
    p = (GRID + step) / (2 * GRID) * (1 - 2 * flip / 2**64) + flip / 2**64
    return abs(bits.sum(dtype=np.int64) - bits.size * p) / np.sqrt(bits.size * p * (1 - p))


LAWS = list(product([(-5.0, 1e9), (0.8, 1e9), (9.0, 1800.0)], [0.5, 1.0, 4.0]))


@pytest.mark.parametrize("drawn", [in_simulation, on_device])
@pytest.mark.parametrize(("place", "budget"), sampled(LAWS, keep=3))
def test_bits_have_their_law(drawn, place, budget):
    """On the clip, inside, and on the norm: four million coordinates at once."""
    value, norm = place
    update, step = signs_of(value, MOST_COORDINATES, norm)
    flip = flip_thresholds(np.array([budget]))[0]
    assert distance(drawn(update, norm, flip), step, int(flip)) < LIMIT
    assert distance(drawn(update, norm, np.uint64(0.9 * int(flip))), step, int(flip)) > LIMIT


def test_reports_of_one_bit_are_flipped_as_the_budgets_say():
    """The randomizer itself, in simulation and on a device: each user's own budget, and no other."""
    budgets, randomizer = np.array([0.5, 2.0]), OneBit(1.0, 1e9)
    assert (randomizer.prepare(budgets) == flip_thresholds(budgets)).all()
    updates = np.full((2, 600_000), 5.0, dtype=np.float32)
    simulated = randomizer.draw(updates, randomizer.prepare(budgets), Place(3, 0), SOURCE)
    for bits in (simulated, randomizer.draw_on_device(updates, budgets, SystemSource())):
        for own, budget in zip(bits, budgets, strict=True):
            right, weak, strong = (int(flip_thresholds(np.array([f * budget]))[0]) for f in (1.0, 1.1, 0.9))
            assert distance(own, GRID, right) < LIMIT
            assert min(distance(own, GRID, weak), distance(own, GRID, strong)) > LIMIT


@pytest.mark.parametrize("drawn", [in_simulation, on_device])
def test_rounding_is_random_and_no_coordinate_dearer_than_another(drawn):
    """Where nothing is flipped (F = 1), a bit is 1 with probability (N + k) / 2N: each coordinate by its own k."""
    width = 1 << 20
    update = np.linspace(-1, 1, width, dtype=np.float32)[None]
    bits = drawn(update, 1e9, np.uint64(1)).reshape(16, -1)
    p = (1 + update.astype(np.float64).reshape(16, -1)) / 2
    z = (bits.sum(axis=1) - p.sum(axis=1)) / np.sqrt((p * (1 - p)).sum(axis=1))
    assert np.abs(z).max() < normal.isf(0.5e-6 / 16)
    assert abs(bits.sum() - 1.01 * p.sum()) > LIMIT * np.sqrt((p * (1 - p)).sum())


def one_by_one(update, flip, norm, user=3):
    """The draws of a simulation as their description says, in Python's integers; and how many are near a tie."""
    steps = np.empty(update.size, dtype=np.int32)
    clip_norm(update, 1.0, norm_limit(norm, 1.0), steps)
    stream, gain = SOURCE.stream(Purpose.REPORT), 2**64 - 2 * int(flip)
    material = SOURCE.run_key.material
    words = cipher_words.words(material, 0, update.size // 2 + 1, 0, user, stream)
    near, bits = 0, []
    for c, (k, word) in enumerate(zip(steps.tolist(), np.repeat(words, 2).tolist(), strict=False)):
        half, limit = word >> 16 if c % 2 else word % 2**16, 2**84 + k * gain
        if is_near := abs(half - (limit >> 69)) <= 1:
            a, b, d = cipher_words.block(material, c, int(TIE), user, stream)[:3]
            bits.append((half << 69) + (d >> 27 << 64) + (a << 32) + b < limit)
        else:
            bits.append(half < limit >> 69)
        near += is_near and half == limit >> 69
    return bits, near


@pytest.mark.parametrize("budget", sampled([1e-9, 0.001, 40.0, 9.0, 0.3], keep=2))
def test_simulated_bits_are_those_of_their_words(budget):
    update = np.random.default_rng(1).normal(0, 0.5, (1, 600_003)).astype(np.float32)
    flip = flip_thresholds(np.array([budget]))[0]
    expected, ties = one_by_one(update[0], flip, 300.0)
    assert ties > 1
    assert in_simulation(update, 300.0, flip)[0].tolist() == expected


@pytest.mark.parametrize("step", [-GRID, -GRID + 1, -12345, -1, 0, 1, 7, 54321, GRID - 1, GRID])
@pytest.mark.parametrize("budget", [1e-9, 0.05, 1.0, 7.0, 40.0])
def test_what_floating_point_decides_is_right(step, budget):
    """For all 2^16 first halves: what is not left open is what all 85 bits say, whichever the others are."""
    gain = np.uint64(2**64 - 2 * int(flip_thresholds(np.array([budget]))[0]))
    halves, bits = np.arange(1 << 16, dtype=np.uint16), np.empty(1 << 16, dtype=np.uint8)
    _compare(np.full(1 << 16, step, dtype=np.int32), halves, gain, bits)
    limit = 2**84 + step * int(gain)
    whole, rest = limit >> 69, limit % 2**69
    surely_one = np.flatnonzero(bits == 1)
    surely_zero = np.flatnonzero(bits == 0)
    assert (surely_one < whole).all()
    assert (surely_zero >= whole + (rest > 0)).all()
    assert (bits == 2).sum() <= 3


def test_a_tie_is_decided_by_further_bits():
    """With an F whose leading bits are 0, what is nearly always 1 is 0 as often as its further bits say."""
    width = 1 << 18
    update = np.full((1, width), 5.0, dtype=np.float32)
    assert (in_simulation(update, 1e9, np.uint64(2**53 - 1)) == 0).sum() > 0
    counts = [(in_simulation(update, 1e9, np.uint64(flip)) == 0).sum() for flip in (1, 2**52, 2**53 - 1)]
    expected = np.array([0, width / 4096, width / 2048])
    assert (np.abs(counts - expected) <= LIMIT * np.sqrt(expected)).all()


class CountingSource(SystemSource):
    """The system's source, with a record of every request."""

    def __init__(self):
        self.requests = []

    def words(self, *shape):
        self.requests.append(shape)
        return SystemSource().words(*shape)


def test_a_device_asks_for_the_same_randomness_whatever_the_data():
    width, requests = 600_000, []
    rng = np.random.default_rng(1)
    for update in (np.zeros(width), np.full(width, 3e38), rng.normal(0, 1, width), np.eye(1, width)[0]):
        source = CountingSource()
        OneBit(1.0, 2.0).draw_on_device(update[None].astype(np.float32), np.array([1.0]), source)
        requests.append(source.requests)
    assert all(asked == requests[0] for asked in requests)
    assert sum(2 * shape[1] for shape in requests[0]) == 2 * width


class FixedSource(SystemSource):
    """Hands out the words that it was given."""

    def __init__(self, words):
        object.__setattr__(self, "fixed", np.array(words, dtype=np.uint64))

    def words(self, *shape):
        return self.fixed.reshape(shape)


def test_a_device_compares_exactly():
    """r < N + k and U < F, at equality and one below; of the rounding's word the low 21 bits count."""
    update, flip = np.zeros((1, 4), dtype=np.float32), np.uint64(12345)
    rounding = [GRID - 1, GRID, (7 << 21) + GRID - 1, GRID]
    flips = [12345, 12345, 12344, 12344]
    bits = draw_bits_on_device(update, np.array([flip]), 1.0, norm_limit(1.0, 1.0), FixedSource([rounding, flips]))
    assert bits.tolist() == [[1, 0, 0, 1]]


def test_blocks_do_not_matter():
    updates = np.random.default_rng(2).normal(0, 0.1, (5, 999)).astype(np.float32)
    budgets, randomizer = np.linspace(0.1, 3, 5), OneBit(0.1, 1.5)
    whole = randomizer.draw(updates, randomizer.prepare(budgets), Place(7, 0), SOURCE)
    assert set(np.unique(whole)) == {0, 1}
    for user in range(5):
        tables = randomizer.prepare(budgets[user : user + 1])
        alone = randomizer.draw(updates[user : user + 1], tables, Place(7 + user, 0), SOURCE)
        assert alone.tobytes() == whole[user].tobytes()
    others = [Place(8, 0), Place(7, 1), Place(7, 0, Purpose.PADDING)]
    drawn = [randomizer.draw(updates, randomizer.prepare(budgets), place, SOURCE).tobytes() for place in others]
    assert len({whole.tobytes(), *drawn}) == 4


def test_what_is_refused():
    for clip, norm in ((0.0, 1.0), (1e31, 1.0), (0.1, 0.0), (0.1, np.inf), (0.1, np.nan)):
        with pytest.raises(ParameterError, match=r"(clip|norm) must be in"):
            OneBit(clip, norm)
    randomizer = OneBit(0.1, 1.0)
    for broken in (np.nan, np.inf):
        update = np.array([[0.0, broken]], dtype=np.float32)
        with pytest.raises(ParameterError, match=r"updates\[0, 1\] must be finite"):
            randomizer.draw(update, randomizer.prepare(np.ones(1)), Place(0, 0), SOURCE)
        with pytest.raises(ParameterError, match=r"updates\[0, 1\] must be finite"):
            randomizer.draw_on_device(update, np.ones(1), SystemSource())
    wide = np.broadcast_to(np.float32(0), (1, MOST_COORDINATES + 1))
    with pytest.raises(ParameterError, match=r"dimensions must be in \[1, 4194304\] with a norm, got 4194305"):
        randomizer.draw_on_device(wide, np.ones(1), SystemSource())


class Broken:
    """A model whose updates are what hostile weights can make of them."""

    def __init__(self, row):
        self.row = np.array(row, dtype=np.float32)

    def updates(self, weights, block):
        return np.tile(self.row, (block.budgets.size, 1))


@pytest.mark.parametrize("row", [[np.nan] * 4, [np.inf, -np.inf, np.nan, 0.0], [3e38] * 4])
def test_what_a_hostile_server_breaks_does_not_show(row):
    empty = np.zeros((2000, 1), dtype=np.float32)
    block = UserBlock(0, np.full(2000, 1.0), empty, np.zeros(2000, dtype=np.uint8), np.arange(2001))
    bits = DeviceClient(Broken(row), OneBit(0.1, 0.1)).levels(np.zeros(4, dtype=np.float32), block, SystemSource())
    assert bits.shape == (2000, 4)
    assert set(np.unique(bits)) == {0, 1}
    # NaN counts as 0, an infinity as a number too large: each of them is half or more of the norm.
    share, error = bits.mean(axis=0), LIMIT * np.sqrt(0.25 / 2000)
    finite = np.nan_to_num(np.array(row, dtype=np.float32))
    assert (np.abs(share - 0.5)[finite == 0] < error).all()
    assert (np.sign(share - 0.5)[finite != 0] == np.sign(finite[finite != 0])).all()


def test_terms_with_a_norm_run_on_devices():
    client = Terms(norm=1.0).device_client(LogisticRegression(24, 4))
    assert client.randomizer == OneBit(0.1, 1.0)
