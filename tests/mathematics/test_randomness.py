"""The random sources: known answers, an independent reference, quality between neighbours, no seed for devices."""

import random
from dataclasses import FrozenInstanceError
from itertools import product

import numba
import numpy as np
import pytest
from scipy.stats import chi2

from apes.errors import ParameterError
from apes.mathematics.randomness import Purpose, SimulationSource, SystemSource, philox

FALSE_ALARM = 1e-6  # of a whole test, shared out among its comparisons
LOW = np.uint64(0xFFFFFFFF)


def words32(*values):
    return tuple(np.uint64(value) for value in values)


@numba.njit
def philox_on(c0, c1, c2, c3, k0, k1, out):
    for m in range(c0.size):
        out[0, m], out[1, m], out[2, m], out[3, m] = philox(c0[m], c1[m], c2[m], c3[m], k0[m], k1[m])


def ours(counter, key):
    """The function under test, over arrays of counters and keys."""
    arrays = np.broadcast_arrays(*[np.asarray(word, dtype=np.uint64) for word in (*counter, *key)])
    out = np.empty((4, arrays[0].size), dtype=np.uint64)
    philox_on(*[np.ascontiguousarray(array).ravel() for array in arrays], out)
    return out.reshape(4, *arrays[0].shape)


def reference(counter, key, rounds=10):
    """Philox4x32 after Salmon et al. 2011, section 3.3: Feistel pairs (R, L) and a Weyl sequence of keys."""
    right0, left0, right1, left1 = (np.asarray(word, dtype=np.uint64) for word in counter)
    for n in range(rounds):
        key0 = np.uint64((int(key[0]) + n * 0x9E3779B9) % 2**32)
        key1 = np.uint64((int(key[1]) + n * 0xBB67AE85) % 2**32)
        product0, product1 = right0 * np.uint64(0xD2511F53), right1 * np.uint64(0xCD9E8D57)
        right0, right1 = product1 // 2**32 ^ left0 ^ key0, product0 // 2**32 ^ left1 ^ key1
        left0, left1 = product1 % 2**32, product0 % 2**32
    return np.stack(np.broadcast_arrays(right0, left0, right1, left1))


def truncated_congruence(counter, key):
    """A linear congruential generator by address, upper half kept: what a bad counter-based one looks like."""
    state = sum(np.asarray(word, dtype=np.uint64) << np.uint64(10 * n) for n, word in enumerate((*counter, *key)))
    lanes = np.stack([state * np.uint64(4) + np.uint64(lane) for lane in range(4)])
    return (lanes * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)) >> np.uint64(32)


GOOD = {"ours": ours, "reference": reference}
BAD = {f"{n} rounds": lambda c, k, n=n: reference(c, k, n) for n in (1, 2, 3)} | {"congruence": truncated_congruence}


@pytest.mark.parametrize("function", GOOD.values(), ids=GOOD)
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [  # Random123's kat_vectors, philox 4x32 10
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(function, counter, key, answer):
    assert tuple(int(word) for word in function(words32(*counter), words32(*key))) == answer


def test_philox_is_the_reference():
    draws = np.random.default_rng(1).integers(0, 2**32, (4, 5000), dtype=np.uint64)
    for key in ((0, 0), (1, 0), (0, 1), (0xFFFFFFFF, 0x80000000), (0x9E3779B9, 123)):
        assert (ours(draws, words32(*key)) == reference(draws, words32(*key))).all()


def uniform_p_value(cells, number=256):
    """Two-sided chi-square test: a lattice is too even, which is as bad as too uneven."""
    observed = np.bincount(cells.ravel().astype(np.int64), minlength=number)
    expected = cells.size / number
    statistic = ((observed - expected) ** 2).sum() / expected
    return 2 * min(chi2.sf(statistic, number - 1), chi2.cdf(statistic, number - 1))


def pair_p_values(x, y):
    """Are two sets of words independent? Joint upper bits, joint lower bits, difference, exclusive or."""
    top, four, byte = np.uint64(28), np.uint64(4), np.uint64(24)
    yield uniform_p_value((x >> top) << four | y >> top)
    yield uniform_p_value((x & np.uint64(15)) << four | y & np.uint64(15))
    yield uniform_p_value(((y - x) & LOW) >> byte)
    yield uniform_p_value((y ^ x) >> byte)


def words_at(generator, seed=20230607, round=3, user=0, index=0, stage=0, purpose=Purpose.REPORT):
    """Words (lane, user, index) of 512 x 512 addresses laid out as the draws of a round."""
    source = SimulationSource(seed, round)
    users, indices = np.ogrid[user : user + 512, index : index + 512]
    return generator((indices, stage, users, source.stream(purpose)), source.key)


def equidistribution(generator):
    words = words_at(generator)
    return [uniform_p_value((lane >> np.uint64(8 * byte)) & np.uint64(255)) for lane in words for byte in range(4)]


def neighbours(generator, change):
    here, there = words_at(generator), words_at(generator, **change)
    return [p for lane in range(4) for p in pair_p_values(here[lane], there[lane])]


def lanes(generator):
    words = words_at(generator)
    return [p for lane in range(4) for p in pair_p_values(words[lane], words[(lane + 1) % 4])]


CHANGES = {
    "index": {"index": 1},
    "user": {"user": 1},
    "round": {"round": 4},
    "seed": {"seed": 20230608},
    "high seed": {"seed": 20230607 + 2**32},
    "stage": {"stage": 1},
    "purpose": {"purpose": Purpose.PADDING},
}
BATTERY = {"equidistribution": equidistribution, "lanes": lanes} | {
    axis: lambda generator, change=change: neighbours(generator, change) for axis, change in CHANGES.items()
}


@pytest.mark.parametrize("test", BATTERY.values(), ids=BATTERY)
def test_words_look_random_and_the_test_sees_bad_ones(test):
    good = test(ours)
    assert min(good) > FALSE_ALARM / len(good)
    for name, generator in BAD.items():
        bad = test(generator)
        assert min(bad) < FALSE_ALARM / len(bad), name


def test_streams_and_keys_never_meet():
    streams = {int(SimulationSource(1, round).stream(purpose)) for round in (0, 1, 2**24 - 1) for purpose in Purpose}
    assert len(streams) == 3 * len(Purpose)
    assert max(streams) < 2**32
    keys = {SimulationSource(seed).key for seed in (0, 1, 2**32 - 1, 2**32, 2**64 - 1)}
    assert len(keys) == 5
    assert max(max(key) for key in keys) < 2**32


def test_generators_differ_by_seed_round_purpose_and_index():
    cases = list(product((0, 1, 2**32), (0, 1), Purpose, (0, 1)))
    firsts = [SimulationSource(s, r).generator(p, i).integers(2**63) for s, r, p, i in cases]
    assert len(set(firsts)) == len(cases)
    assert firsts == [SimulationSource(s, r).generator(p, i).integers(2**63) for s, r, p, i in cases]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, r"seed must be in \[0, 18446744073709551615\], got -1"),
        ({"seed": 2**64}, r"seed must be in .* got 18446744073709551616"),
        ({"seed": 1.0}, r"seed must be a whole number, got 1.0"),
        ({"seed": True}, r"seed must be a whole number, got True"),
        ({"seed": None}, r"seed must be a whole number, got None"),
        ({"round": -1}, r"round must be in \[0, 16777215\], got -1"),
        ({"round": 2**24}, r"round must be in .* got 16777216"),
        ({"round": 0.5}, r"round must be a whole number, got 0.5"),
    ],
)
def test_invalid_simulation_source(change, message):
    with pytest.raises(ParameterError, match=message):
        SimulationSource(**{"seed": 1, **change})


def test_sources_are_immutable():
    with pytest.raises(FrozenInstanceError):
        SimulationSource(1).run_key = 2
    with pytest.raises(TypeError, match="seed"):
        SimulationSource()


def test_system_source_cannot_be_seeded():
    for arguments, keywords in (((1,), {}), ((), {"seed": 1})):
        with pytest.raises(TypeError):
            SystemSource(*arguments, **keywords)
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - the global state that must not matter
        draws += [SystemSource().words(8).tobytes(), SystemSource().bytes(64).tobytes()]
    assert len(set(draws)) == 4


def test_system_source_shapes_and_types():
    source = SystemSource()
    for shape in ((0,), (5,), (3, 4), (2, 3, 4)):
        assert source.words(*shape).shape == source.bytes(*shape).shape == shape
    assert source.words(3).dtype == np.uint64
    assert source.bytes(3).dtype == np.uint8


def test_system_source_hands_out_whole_words():
    """Not the system's quality, but ours: no byte of a word is stuck, doubled or cut. False alarm 1e-9."""
    words = SystemSource().words(256, 512)
    for byte in range(8):
        assert uniform_p_value((words >> np.uint64(8 * byte)) & np.uint64(255)) > 1e-10
    assert uniform_p_value(SystemSource().bytes(1 << 18)) > 1e-10
    assert len(np.unique(words)) == words.size
    stuck = words & np.uint64(2**64 - 2)
    assert uniform_p_value(stuck & np.uint64(255)) < 1e-10
