"""What a round counts, whatever else is put between the honest reports."""

import asyncio
import itertools
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import ANALYZER, BUDGETS, LEVELS, OTHER_RUN, RUN, honest, is_of, patient, resigned, rounds_of

from apes.shuffler.service.intake import Intake
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.wire.envelope import envelope_size, seal
from apes.wire.frames import FrameReader, framed
from apes.wire.release import Release

HEADER, SIGNATURE = 122, 64


def unsigned(report):
    return report[:-SIGNATURE]


def flipped(report, place):
    changed = bytearray(report)
    changed[place] ^= 1
    return bytes(changed)


def with_round(report, number):
    return report[:22] + number.to_bytes(4, "little") + report[26:]


def levels_with(place, level):
    levels = LEVELS[0].copy()
    levels[place] = level
    return levels


def stranger_seals(small, user):
    key = X25519PrivateKey.generate().public_key()
    return seal(LEVELS[user].tobytes(), BUDGETS[user], small.announced().binding, small.keys[user], key)


def stolen(small, user):
    """Another's sealed part under this user's name, and signed by this user."""
    own, others = small.report(user), small.report((user + 1) % 8)
    return resigned(own[:HEADER] + others[HEADER:-SIGNATURE], small.keys[user])


def weak_point(small, user):
    """A point of low order in the place of the sender's ephemeral key."""
    report = small.report(user)
    return resigned(report[:HEADER] + bytes(32) + report[HEADER + 32 : -SIGNATURE], small.keys[user])


# name -> what the attacker puts into the batch in the name of a user, and what it is refused for.
ATTACKS = {
    "signed by another": (lambda s, u: resigned(unsigned(s.report(u)), s.keys[(u + 1) % 8]), "signature"),
    "signature flipped": (lambda s, u: flipped(s.report(u), -1), "signature"),
    "seal flipped": (lambda s, u: flipped(s.report(u), 162), "signature"),
    "unregistered": (lambda s, u: s.report(u, key=Ed25519PrivateKey.generate()), "unregistered"),
    "another round": (lambda s, u: s.report(u, number=2), "wrong-round"),
    "another run": (lambda s, u: s.report(u, run=OTHER_RUN), "wrong-run"),
    "unknown run": (lambda s, u: s.report(u, run="00" * 16), "wrong-run"),
    "other terms": (lambda s, u: s.report(u, terms="00" * 32), "wrong-terms"),
    "other weights": (lambda s, u: s.report(u, weights=bytes(range(60))), "announcement"),
    "another history": (lambda s, u: s.report(u, previous=bytes(range(32))), "announcement"),
    "replayed, announcement changed": (
        lambda s, u: s.report(u, weights=b"9")[:58] + s.announced().digest + s.report(u, weights=b"9")[90:],
        "signature",
    ),
    "replayed, round changed": (lambda s, u: with_round(s.report(u, number=2), 1), "announcement"),
    "replayed, signed again": (
        lambda s, u: resigned(s.report(u)[:HEADER] + unsigned(s.report(u, number=2))[HEADER:], s.keys[u]),
        "seal",
    ),
    "stolen": (stolen, "seal"),
    "sealed to another": (stranger_seals, "seal"),
    "weak point": (weak_point, "seal"),
    "empty": (lambda s, u: b"", "malformed"),
    "a byte": (lambda s, u: b"A", "malformed"),
    "truncated": (lambda s, u: s.report(u)[:-1], "malformed"),
    "cut in the seal": (lambda s, u: s.report(u)[:150], "malformed"),
    "blown up": (lambda s, u: s.report(u) + b"\0", "malformed"),
    "twice as long": (lambda s, u: 2 * s.report(u), "malformed"),
    "a coordinate more": (lambda s, u: s.report(u, np.zeros(16, np.uint8)), "malformed"),
    "a coordinate less": (lambda s, u: s.report(u, np.zeros(14, np.uint8)), "malformed"),
    "another magic": (lambda s, u: b"XPES" + s.report(u)[4:], "malformed"),
    "another version": (lambda s, u: s.report(u)[:4] + b"\1\0" + s.report(u)[6:], "malformed"),
    "round 0": (lambda s, u: with_round(s.report(u), 0), "malformed"),
    "level 16": (lambda s, u: s.report(u, levels_with(14, 16)), "level"),
    "level 255": (lambda s, u: s.report(u, levels_with(0, 255)), "level"),
    "budget below": (lambda s, u: s.report(u, budget=np.nextafter(BUDGETS[u], 0)), "budget"),
    "budget above": (lambda s, u: s.report(u, budget=np.nextafter(BUDGETS[u], 2)), "budget"),
    "another's budget": (lambda s, u: s.report(u, budget=BUDGETS[(u + 1) % 8]), "budget"),
    "budget 0": (lambda s, u: s.report(u, budget=0.0), "budget"),
    "budget negative": (lambda s, u: s.report(u, budget=-0.5), "budget"),
    "budget nan": (lambda s, u: s.report(u, budget=np.nan), "budget"),
    "budget inf": (lambda s, u: s.report(u, budget=np.inf), "budget"),
    "budget -inf": (lambda s, u: s.report(u, budget=-np.inf), "budget"),
}
# Reasons that are looked for only after a sender who has counted already is turned away.
AFTER_DUPLICATE = {"signature", "seal", "level", "budget"}


def taken(small, reports):
    intake = Intake(small.policy, small.announced(), small.shuffler)
    intake.take(reports)
    return intake


def test_honest_reports_count(small):
    intake = taken(small, honest(small))
    assert is_of(intake, range(8))
    assert not intake.refused
    assert {sender.hex() for sender in intake.senders} == set(small.policy.senders)


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_uses_up_anothers_place(small, name):
    """The attack comes before the honest report of the user whose name it bears."""
    make, reason = ATTACKS[name]
    intake = taken(small, [make(small, 0), *honest(small), make(small, 7)])
    late = "duplicate" if reason in AFTER_DUPLICATE else reason
    assert intake.refused == ({reason: 1, late: 1} if late != reason else {reason: 2})
    assert is_of(intake, range(8))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_alone_does_not_count(small, name):
    make, reason = ATTACKS[name]
    intake = taken(small, [make(small, 5), *honest(small, range(5))])
    assert intake.refused == {reason: 1}
    assert is_of(intake, range(5))


def test_the_same_bytes_count_once(small):
    reports = honest(small)
    intake = taken(small, [*reports, *reports, reports[3]])
    assert intake.refused == {"duplicate": 9}
    assert is_of(intake, range(8))


def test_of_two_reports_of_one_sender_the_first_counts(small):
    intake = taken(small, [*honest(small), small.report(2, LEVELS[5], 0.9)])
    assert intake.refused == {"duplicate": 1}
    assert is_of(intake, range(8))


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_order_does_not_show(small, step):
    """Orders of three honest and two refused reports, all or every seventh, give the same release, byte for byte."""
    reports = [*honest(small, range(3)), small.report(3, number=2), small.report(4, budget=7.0)]
    releases = {released(small, order) for order in itertools.islice(itertools.permutations(reports), 0, None, step)}
    assert len(releases) == 1
    assert is_of(Release.decode(releases.pop()), range(3))


def released(small, reports):
    """What a new shuffler releases of these, as bytes."""
    with tempfile.TemporaryDirectory() as folder, closing(ShufflerLedger(Path(folder) / "ledger.sqlite")) as ledger:
        return close_round(Rounds(small.policy, small.services_keys, ledger), small, reports)


def test_other_reports_show(small):
    """The comparison above can fail."""
    one, other = (released(small, honest(small, users)) for users in (range(3), range(1, 4)))
    assert one != other


def test_other_budgets_do_not_show(small):
    """Of the same levels, sent by others with other budgets, the release is the same but for a root that is blinded.

    And for the signature, over it. Sealed anew, the same people's reports have another root as well.
    """
    one, other, again = (
        Release.decode(released(small, [small.report(user, LEVELS[place]) for place, user in enumerate(users)]))
        for users in ([0, 1, 2], [7, 5, 3], [0, 1, 2])
    )
    assert len({release.receipt.included for release in (one, other, again)}) == 3
    bare = [replace(release.receipt, included="", signature="") for release in (one, other, again)]
    assert bare == 3 * bare[:1]
    assert (one.counts == other.counts).all()


def test_more_reports_than_wait_at_once(small, monkeypatch):
    monkeypatch.setattr("apes.shuffler.service.intake._REPORTS_AT_ONCE", 3)
    assert is_of(taken(small, honest(small)), range(8))


@pytest.fixture(scope="module")
def pool(small):
    """Every attack in every user's name, and the honest reports, made once."""
    bad = {(name, user): make(small, user) for name, (make, _) in ATTACKS.items() for user in range(8)}
    reports = bad | {("honest", user): report for user, report in enumerate(honest(small))}
    return lambda choice: reports[choice]


_CHOICES = st.tuples(st.sampled_from(["honest", "honest", *ATTACKS]), st.integers(0, 7))


@settings(patient, max_examples=150)
@given(chosen=st.lists(_CHOICES, max_size=20), step=st.integers(1, 2000))
def test_any_mixture_counts_the_honest(small, pool, chosen, step):
    stream = b"".join(framed(pool(choice) for choice in chosen))
    intake, reader = Intake(small.policy, small.announced(), small.shuffler), FrameReader(envelope_size(15, 16))
    for start in range(0, len(stream), step):
        intake.take(reader.feed(stream[start : start + step]))
    users = {user for name, user in chosen if name == "honest"}
    assert {sender.hex() for sender in intake.senders} == {small.policy.senders[user] for user in users}
    assert sum(intake.refused.values()) == len(chosen) - len(users)
    if users:
        assert is_of(intake, users)


@pytest.fixture
def ledger(tmp_path):
    ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


async def pieces(data):
    for piece in data:
        yield piece


def close_round(rounds, small, reports, run=RUN, number=1):
    async def close():
        await rounds.announce(run, number, pieces([small.announced(number, run=run).signed(ANALYZER)]))
        return await rounds.close_round(run, number, pieces(framed(reports)))

    return asyncio.run(close())


def test_one_honest_among_nine_invented(small, ledger, tmp_path):
    """Nothing is released, and the round is there for an honest batch later."""
    rounds = Rounds(small.policy, small.services_keys, ledger)
    invented = [small.report(user % 8, key=Ed25519PrivateKey.generate()) for user in range(9)]
    with pytest.raises(RequestRefused, match="1 reports count, at least 3") as refusal:
        close_round(rounds, small, [*invented[:4], *honest(small, [2]), *invented[4:]])
    assert (refusal.value.status, refusal.value.reason) == (422, "cohort")
    assert refusal.value.details == {"accepted": 1, "needed": 3, "unregistered": 9}
    assert ledger.find(RUN, 1) is None
    assert rounds_of(tmp_path / "ledger.sqlite", bytes.fromhex(small.policy.senders[2])) == 0
    assert b'apes_reports_refused_total{reason="unregistered"} 9.0\n' in rounds.metrics.text()
    assert b"apes_rounds_released_total 0.0\n" in rounds.metrics.text()
    assert is_of(Release.decode(close_round(rounds, small, honest(small))), range(8))
    assert b"apes_reports_accepted_total 8.0\n" in rounds.metrics.text()
    assert rounds_of(tmp_path / "ledger.sqlite", bytes.fromhex(small.policy.senders[2])) == 1


def test_a_cohort_of_just_enough(small, ledger):
    rounds = Rounds(small.policy, small.services_keys, ledger)
    with pytest.raises(RequestRefused, match="2 reports count"):
        close_round(rounds, small, honest(small, [0, 1]))
    assert is_of(Release.decode(close_round(rounds, small, honest(small, [0, 1, 2]))), [0, 1, 2])


def test_a_cohort_is_not_made_of_copies(small, ledger):
    with pytest.raises(RequestRefused, match="2 reports count"):
        close_round(Rounds(small.policy, small.services_keys, ledger), small, 4 * honest(small, [0, 1]))


def test_a_last_frame_cut_short_is_counted_as_refused(small, ledger):
    async def close():
        await rounds.announce(RUN, 1, pieces([small.announced().signed(ANALYZER)]))
        return await rounds.close_round(RUN, 1, pieces([b"".join(framed(honest(small)))[:-1]]))

    rounds = Rounds(small.policy, small.services_keys, ledger)
    release = Release.decode(asyncio.run(close()))
    assert release.receipt.refused == {"malformed": 1}
    assert is_of(release, range(7))


@pytest.mark.parametrize(
    ("run", "number", "reason"),
    [("00" * 16, 1, "wrong-run"), ("", 1, "wrong-run"), (RUN, 0, "wrong-round"), (RUN, 4, "wrong-round")],
)
def test_rounds_that_the_policy_does_not_name(small, ledger, run, number, reason):
    rounds = Rounds(small.policy, small.services_keys, ledger)
    with pytest.raises(RequestRefused) as refusal:
        asyncio.run(rounds.close_round(run, number, pieces(framed(honest(small)))))
    assert (refusal.value.status, refusal.value.reason) == (404, reason)
    assert is_of(Release.decode(close_round(rounds, small, honest(small))), range(8))


def test_counters_are_exact_and_every_services_own(small, ledger):
    """Also beyond a million."""
    one, other = (Rounds(small.policy, small.services_keys, ledger) for _ in range(2))
    one.metrics.reports_accepted.inc(12_345_678)
    assert b"apes_reports_accepted_total 1.2345678e+07\n" in one.metrics.text()
    assert b"apes_reports_accepted_total 0.0\n" in other.metrics.text()


@pytest.mark.service
def test_a_million_coordinates(small):
    """A report of a large model is sealed, opened and counted like any other."""
    dimensions = 1_000_000
    policy = replace(small.policy, dimensions=dimensions)
    levels = np.random.default_rng(3).integers(0, 16, (3, dimensions), dtype=np.uint8)
    intake = Intake(policy, small.announced(), small.shuffler)
    intake.take([small.report(user, levels=levels[user]) for user in range(3)])
    counts = intake.counts()
    assert intake.refused == {}
    assert (counts[np.arange(dimensions), levels[0]] >= 1).all()
    assert (counts @ np.arange(16) == levels.sum(axis=0)).all()
    assert (counts.sum(axis=1) == 3).all()
