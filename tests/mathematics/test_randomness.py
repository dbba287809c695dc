"""The random sources: known answers, an independent reference, quality between neighbours, no seed for devices."""

import hashlib
import pickle
import random
from dataclasses import FrozenInstanceError
from functools import partial
from itertools import product

import cipher_words
import numpy as np
import pytest
from scipy.stats import chi2

from apes.errors import ParameterError
from apes.mathematics.chacha import block_at, fill_blocks, fill_words, room_for
from apes.mathematics.randomness import Purpose, SimulationSource, StreamKey, SystemSource, check_addresses

FALSE_ALARM = 1e-6  # of a whole test, shared out among its comparisons
LOW = np.uint64(0xFFFFFFFF)


def ours(key, stage, stream, users, indices):
    """Blocks under test: array (16 words, users, indices)."""
    words = np.empty((users.size, 16, indices.size), dtype=np.uint32)
    for user, blocks in zip(users, words, strict=True):
        blocks[0] = indices
        fill_blocks(np.uint64(stage), np.uint64(user), np.uint64(stream), key, blocks)
    return words.transpose(1, 0, 2)


def reference(key, stage, stream, users, indices, rounds=20):
    """ChaCha after RFC 8439, sections 2.1 to 2.3, in NumPy; with as many rounds as one likes."""
    shape = users.size, indices.size
    words = [*np.frombuffer(b"expand 32-byte k", dtype="<u4"), *key, indices[None], stage, users[:, None], stream]
    first = np.stack([np.broadcast_to(np.asarray(word, dtype=np.uint32), shape) for word in words])
    x = first.copy()
    columns = [(n, n + 4, n + 8, n + 12) for n in range(4)]
    diagonals = [(n, 4 + (n + 1) % 4, 8 + (n + 2) % 4, 12 + (n + 3) % 4) for n in range(4)]
    for turn in range(rounds):
        for a, b, c, d in diagonals if turn % 2 else columns:
            for grown, added, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[grown] += x[added]
                x[turned] ^= x[grown]
                x[turned] = x[turned] << np.uint32(bits) | x[turned] >> np.uint32(32 - bits)
    return x + first


def truncated_congruence(key, stage, stream, users, indices):
    """A linear congruential generator by address, upper half kept: what a bad counter-based one looks like."""
    address = (indices[None], np.uint64(stage), users[:, None], np.uint64(stream), *key)
    state = sum(np.asarray(word, dtype=np.uint64) << np.uint64(4 * n) for n, word in enumerate(address))
    words = np.stack([state * np.uint64(16) + np.uint64(word) for word in range(16)])
    return ((words * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)) >> np.uint64(32)).astype(
        np.uint32
    )


BAD = {f"{n} rounds": partial(reference, rounds=n) for n in (1, 2)} | {"congruence": truncated_congruence}


def test_the_block_of_the_rfc():
    """RFC 8439, section 2.3.2."""
    key = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.uint32)
    block = block_at(np.uint64(1), np.uint64(0x09000000), np.uint64(0x4A000000), np.uint64(0), key)
    assert " ".join(f"{word:08x}" for word in block) == (
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"
    )


def addresses_everywhere(count):
    """Keys and addresses from the whole range of every word, the ends and each single bit of a word among them."""
    rng = np.random.default_rng(1)
    ends = [0, 2**32 - 1, *(1 << bit for bit in range(32))]
    drawn = rng.integers(0, 2**32, (count, 4)).tolist()
    single = [[end if word == place else 0 for word in range(4)] for place in range(4) for end in ends]
    return [(rng.bytes(32), *address) for address in drawn + single] + [
        (bytes(32), 0, 0, 0, 0),
        (b"\xff" * 32, 1, 2, 3, 4),
    ]


def test_blocks_are_those_of_another_chacha20():
    for material, index, stage, user, stream in addresses_everywhere(300):
        key = StreamKey(material)
        words = SimulationSource(key).key
        expected = cipher_words.block(material, index, stage, user, stream)
        address = np.uint64(stage), np.uint64(user), np.uint64(stream)
        assert tuple(map(int, block_at(np.uint64(index), *address, words))) == expected
        columns = np.full((16, 19), index, dtype=np.uint32)
        fill_blocks(*address, words, columns)
        assert (columns.T == expected).all()
        group = np.empty(256, dtype=np.uint32)
        fill_words(np.uint64(index // 16), *address, words, group)
        assert tuple(group.reshape(16, 16)[:, index % 16].tolist()) == expected


def test_words_of_a_row_are_numbered_as_the_text_says():
    """From the first group to the last one there is, and however many are made at once."""
    source = SimulationSource(StreamKey(bytes(range(32))))
    material = source.run_key.material
    for group, count in ((0, 1), (0, 5), (3, 2), (2**28 - 3, 3)):
        words = np.empty(256 * count, dtype=np.uint32)
        fill_words(np.uint64(group), np.uint64(1), np.uint64(2), np.uint64(3), source.key, words)
        assert (words == cipher_words.words(material, 256 * group, words.size, 1, 2, 3)).all()
        assert words.tolist() == [cipher_words.word(material, 256 * group + w, 1, 2, 3) for w in range(words.size)]


@pytest.mark.parametrize("group", [128, 256, 512])
def test_the_room_of_some_numbers_is_the_groups_that_hold_them(group):
    for first, count in product((0, 1, group - 1, group, 5 * group + 3), (1, 2, group - 1, group, group + 1, 1000)):
        groups = {number // group for number in range(first, first + count)}
        assert room_for(first, count, group).size == 256 * len(groups)


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


SIDE = 256


def words_at(generator, seed=20230607, round=3, user=0, index=0, stage=0, purpose=Purpose.REPORT):
    """Words (16, users, indices) of 256 x 256 blocks laid out as the draws of a round."""
    source = SimulationSource(seed, round)
    users, indices = np.arange(user, user + SIDE), np.arange(index, index + SIDE)
    return generator(source.key, stage, source.stream(purpose), users, indices).astype(np.uint64)


def equidistribution(generator):
    words = words_at(generator)
    return [uniform_p_value((word >> np.uint64(8 * byte)) & np.uint64(255)) for word in words for byte in range(4)]


def neighbours(generator, change):
    here, there = words_at(generator), words_at(generator, **change)
    return [p for word in range(16) for p in pair_p_values(here[word], there[word])]


def words_of_a_block(generator):
    words = words_at(generator)
    return [p for word in range(16) for p in pair_p_values(words[word], words[(word + 1) % 16])]


def words_of_a_row(generator):
    """Of the numbers that coordinates have: the next one, the one a block further, a group further."""
    groups = words_at(generator).reshape(16, SIDE, SIDE // 16, 16).transpose(1, 2, 0, 3)
    rows = groups.reshape(SIDE, 16 * SIDE)
    return [p for step in (1, 2, 16, 256) for p in pair_p_values(rows[:, :-step], rows[:, step:])]


CHANGES = {
    "index": {"index": 1},
    "user": {"user": 1},
    "round": {"round": 4},
    "seed": {"seed": 20230608},
    "high seed": {"seed": 20230607 + 2**32},
    "stage": {"stage": 1},
    "purpose": {"purpose": Purpose.PADDING},
}
BATTERY = {
    "equidistribution": equidistribution,
    "words of a block": words_of_a_block,
    "words of a row": words_of_a_row,
} | {axis: lambda generator, change=change: neighbours(generator, change) for axis, change in CHANGES.items()}


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
    keys = {SimulationSource(seed).key.tobytes() for seed in (0, 1, 2**32 - 1, 2**32, 2**64 - 1)}
    assert len(keys) == 5


def test_the_key_of_a_seed_is_the_same_everywhere_and_fills_all_words():
    """SHA-256 of a text and the seed: written out, so that a run of today can be made again."""
    for seed in (0, 1, 2**64 - 1):
        expected = hashlib.sha256(b"apes.StreamKey.from_seed, version 1: " + seed.to_bytes(8, "little")).digest()
        assert SimulationSource(seed).run_key.material == expected
        assert SimulationSource(seed).key.tolist() == np.frombuffer(expected, dtype="<u4").tolist()


def drawn_with(source):
    words = np.empty(256, dtype=np.uint32)
    fill_words(np.uint64(0), np.uint64(0), np.uint64(0), source.stream(Purpose.REPORT), source.key, words)
    return words.tobytes()


def test_a_secret_key_is_new_each_time_and_a_seed_the_same():
    assert len({drawn_with(SimulationSource(StreamKey.from_system(), 1)) for _ in range(20)}) == 20
    assert len({drawn_with(SimulationSource(7, 1)) for _ in range(3)}) == 1
    assert drawn_with(SimulationSource(7, 1)) == drawn_with(SimulationSource(StreamKey.from_seed(7), 1))
    key = StreamKey.from_system()
    assert drawn_with(SimulationSource(key, 1)) == drawn_with(SimulationSource(key, 1))


def test_every_bit_of_a_key_counts():
    """A key with one bit changed has another stream, wherever the bit is."""
    materials = [bytes(32)] + [(1 << bit).to_bytes(32, "little") for bit in range(256)]
    assert len({drawn_with(SimulationSource(StreamKey(material), 1)) for material in materials}) == 257


def test_a_key_is_carried_to_workers_and_never_printed():
    source = SimulationSource(StreamKey.from_system(), 3)
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert drawn_with(copy) == drawn_with(source)
    material = source.run_key.material
    for shown in (repr(source), str(source), f"{source.run_key}", repr([source])):
        assert "is_seeded=False" in shown
        for piece in (material.hex(), repr(material)[2:-1], str(list(material))[1:-1]):
            assert piece not in shown


@pytest.mark.parametrize(
    ("first", "count", "is_refused"),
    [(0, 0, False), (0, 2**32, False), (2**32 - 1, 1, False), (2**32 - 1, 2, True), (-1, 1, True), (2**40, 1, True)],
)
def test_numbers_that_have_no_address_are_refused(first, count, is_refused):
    if not is_refused:
        check_addresses("coordinates", first, count)
        return
    with pytest.raises(ParameterError, match=r"coordinates must be numbered within \[0, 4294967296\), got"):
        check_addresses("coordinates", first, count)


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
