"""Rounds by direct calls: who counts when members change, what a roster holds, what follows on what, what is logged."""

import asyncio
import json
import os
from dataclasses import replace

import pytest
from parties import ANALYZER, BUDGETS, LEVELS, RECEIPTS, RUN, TOKEN, announced, honest, is_of

from apes.errors import DataError
from apes.shuffler.service import crew
from apes.shuffler.service.crew import share_of
from apes.shuffler.service.gate import Gate
from apes.shuffler.service.intake import Intake
from apes.shuffler.service.ledger import Closed, ShufflerLedger
from apes.shuffler.service.policy_file import PolicyFile
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.storage.settings import write_settings
from apes.wire.frames import framed
from apes.wire.receipt import check_next
from apes.wire.release import Release
from apes.wire.roster import Roster


@pytest.fixture
def ledger(tmp_path):
    ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


@pytest.fixture
def rounds(small, ledger):
    return Rounds(small.policy, small.services_keys, ledger)


async def pieces(data):
    for piece in data:
        yield piece


def announce(rounds, number=1, data=None, **choices):
    """Announce a round; None, or why it is not taken."""
    terms = rounds._policy.terms
    data = announced(terms, number, **choices).signed(ANALYZER) if data is None else data
    try:
        return asyncio.run(rounds.announce(RUN, number, pieces([data])))
    except RequestRefused as refused:
        return refused.reason


def close(rounds, reports, number=1):
    """The release of a round, or why there is none."""
    try:
        return asyncio.run(rounds.close_round(RUN, number, pieces(framed(reports))))
    except RequestRefused as refused:
        return refused.reason


def roster_of(rounds):
    return Roster.decode(asyncio.run(rounds.roster(RUN)))


def first(policy, count, **changes):
    """A policy with the first members only."""
    return replace(policy, senders=policy.senders[:count], budgets=policy.budgets[:count], **changes)


def test_another_batch_gets_nothing_and_the_same_one_the_same_release(rounds, small):
    reports = honest(small)
    announce(rounds)
    release = close(rounds, reports)
    assert is_of(Release.decode(release), range(8))
    assert close(rounds, reports) == release
    for other in (reports[1:], reports[::-1], [], honest(small)):
        assert close(rounds, other) == "round-closed"
    assert asyncio.run(rounds.release(RUN, 1)) == release


@pytest.mark.parametrize("change", ["dismissed", "another budget"])
def test_who_is_dismissed_while_a_batch_comes_in_does_not_count(small, ledger, change):
    """Nor who comes back with another budget; nothing is kept, not even the roster."""
    less = {
        "dismissed": first(small.policy, 7),
        "another budget": replace(small.policy, budgets=(*small.policy.budgets[:7], 0.5)),
    }[change]
    now = [small.policy]
    rounds = Rounds(small.policy, small.services_keys, ledger, now=lambda: now[-1])
    announce(rounds)
    now.append(less)
    assert close(rounds, honest(small)) == "members"
    assert ledger.find(RUN, 1) is None
    assert not ledger._kept_roster(RUN)
    release = Release.decode(close(rounds.under(less), honest(small)))
    assert is_of(release, range(7))


def test_who_leaves_and_is_not_in_it_holds_up_no_round(small, ledger):
    rounds = Rounds(small.policy, small.services_keys, ledger, now=lambda: first(small.policy, 6))
    announce(rounds)
    assert is_of(Release.decode(close(rounds, honest(small, range(5)))), range(5))


def test_a_roster_is_that_of_the_first_who_asked(small, ledger, rounds):
    """Members who come later are counted in receipts, and their budgets are in no roster."""
    before = Rounds(first(small.policy, 6), small.services_keys, ledger)
    roster = roster_of(before)
    roster.check(RECEIPTS.public_key())
    assert roster.budgets.tolist() == sorted(BUDGETS[:6])
    announce(rounds)
    receipt = Release.decode(close(rounds, honest(small))).receipt
    assert (receipt.users, receipt.later, receipt.roster) == (8, 2, roster.digest)
    assert (roster_of(rounds).budgets == roster.budgets).all()


def test_of_two_rounds_announced_after_the_same_release_one_is_released(rounds, small):
    """The second no longer follows on the last release, though it did when it was announced."""
    assert (announce(rounds, 1), announce(rounds, 2)) == (None, None)
    assert is_of(Release.decode(close(rounds, honest(small))), range(8))
    assert close(rounds, honest(small, number=2), 2) == "announcement"
    assert rounds._ledger.numbers(RUN) == [1]


def test_what_is_not_taken_as_an_announcement(rounds, small):
    """Of another round, run or terms, by somebody else, on another history, or cut short."""
    terms = small.policy.terms
    for other in (announced(terms, 2), announced(terms, run="00" * 16), announced("ab" * 32)):
        assert announce(rounds, data=other.signed(ANALYZER)) == "announcement"
    assert announce(rounds, data=announced(terms).signed(small.keys[0])) == "announcement"
    assert announce(rounds, previous=bytes(range(32))) == "announcement"
    assert announce(rounds, data=announced(terms).signed(ANALYZER)[:-1]) == "announcement"
    assert announce(rounds, data=bytes(187)) == "size"
    assert close(rounds, honest(small)) == "announcement"
    assert announce(rounds) is None
    assert announce(rounds) is None
    assert announce(rounds, weights=b"others") == "announcement"


def test_receipts_of_a_run_follow_on_one_another(rounds, small):
    previous, before = bytes(32), None
    for number in (1, 2):
        announce(rounds, number, previous=previous)
        release = Release.decode(close(rounds, honest(small, number=number, previous=previous), number))
        check_next(release.receipt, before, RECEIPTS.public_key())
        previous, before = bytes.fromhex(release.receipt.digest), release.receipt


def test_empty_frames_are_refused_early(rounds, small):
    """Twice as many as there are members, and 20,000 more, are looked at."""
    announce(rounds)
    taken = []

    async def endless():
        while True:
            taken.append(1)
            yield bytes(4 * 10_000)

    with pytest.raises(RequestRefused, match="at most 20016 frames"):
        asyncio.run(rounds.close_round(RUN, 1, endless()))
    assert len(taken) == 3
    assert is_of(Release.decode(close(rounds, honest(small))), range(8))


def test_a_batch_too_large_is_refused_before_it_is_there(rounds, small):
    announce(rounds)
    taken = []

    async def endless():
        # One frame that is far too long.
        yield (1 << 31).to_bytes(4, "little")
        while True:
            taken.append(1)
            yield bytes(1 << 20)

    with pytest.raises(RequestRefused, match="bytes are taken here"):
        asyncio.run(rounds.close_round(RUN, 1, endless()))
    assert len(taken) == 17


def test_who_may_collude_is_not_charged_as_company(small, ledger):
    """The gate charges a round of eight, of whom two may tell what they reported, as one of six."""
    policy = replace(small.policy, colluding=2, smallest_cohort=3)
    rounds = Rounds(policy, small.services_keys, ledger)
    announce(rounds)
    receipt = Release.decode(close(rounds, honest(small))).receipt
    assert Gate(policy, ledger)._exposure(receipt).budgets.size == 6
    assert Gate(replace(policy, colluding=0), ledger)._exposure(receipt).budgets.size == 8


def test_who_is_dismissed_in_the_last_moment_does_not_count(small, ledger):
    """Between the look at the members when the release is made, and the commit that closes the round."""
    looks = iter([small.policy])
    rounds = Rounds(small.policy, small.services_keys, ledger, now=lambda: next(looks, first(small.policy, 6)))
    announce(rounds)
    assert close(rounds, honest(small)) == "members"
    assert ledger.find(RUN, 1) is None
    assert next(looks, None) is None


def test_those_who_may_collude_come_on_top_of_the_smallest_cohort(small, ledger):
    """Of five reports two may be the analyzer's own: of four, too few would be left to hide among."""
    rounds = Rounds(replace(small.policy, colluding=2, smallest_cohort=3), small.services_keys, ledger)
    announce(rounds)
    assert close(rounds, honest(small, range(4))) == "cohort"
    assert Release.decode(close(rounds, honest(small, range(5)))).receipt.users == 5


def test_who_was_admitted_later_is_charged_at_the_largest_budget(rounds, small, ledger):
    announce(rounds)
    receipt = Release.decode(close(rounds, honest(small))).receipt
    gate = Gate(replace(small.policy, largest_budget=2.0), ledger)
    assert max(gate._exposure(receipt).budgets) == max(BUDGETS)
    # One of them is the victim, the other one of those who hide least.
    assert sorted(gate._exposure(replace(receipt, later=2)).budgets)[-3:] == [2.0, 2.0, 2.0]


def test_logs_tell_counts_and_no_values(rounds, small, capsys):
    """Of a refusal and a release: neither senders, budgets and reports, nor keys."""
    announce(rounds)
    for reports in (honest(small, [0]), honest(small)):
        try:
            asyncio.run(rounds.close_round(RUN, 1, pieces(framed(reports))))
        except RequestRefused as refused:
            rounds.count_refusal(refused)
    said = capsys.readouterr().err
    refusal, release = map(json.loads, said.splitlines())
    assert refusal.keys() == {"time", "event", "reason", "count", "accepted", "needed"}
    assert release.keys() == {"time", "event", "run", "round", "users", "refused", "seconds"}
    assert (release["users"], release["refused"]) == (8, {})
    for text in (said, rounds.metrics.text().decode()):
        assert not [sender for sender in small.policy.senders if sender in text]
        assert not [budget for budget in BUDGETS if str(budget)[2:] in text]
        assert not [row for row in LEVELS if str(row.tolist())[1:-1] in text or row.tobytes().hex() in text]
        assert TOKEN not in text


def test_a_ledgers_link_stands_for_all_that_a_roster_holds(tmp_path):
    """Two ledgers with rosters of the same senders with other budgets have no link in common."""
    links = []
    for budget in (0.1, 0.2):
        ledger = ShufflerLedger(tmp_path / f"{budget}.sqlite")
        ledger.roster(RUN, {bytes(32): budget})
        ledger.close_round(RUN, 1, Closed(b"digest", b"release"), [])
        links.append({link for (link,) in ledger._store.rows("select link from chain")})
        ledger.close()
    assert [len(some) for some in links] == [2, 2]
    assert not links[0] & links[1]


def test_all_of_one_sender_go_to_one_worker(small):
    places = {share_of(report, 3) for number in (1, 2) for report in honest(small, [4], number=number)}
    assert len(places) == 1
    assert len({share_of(report, 3) for report in honest(small)}) > 1
    assert share_of(b"", 3) in range(3)


def test_a_part_is_joined_once(small):
    """What two workers both have, or does not add up, is not added."""
    part, whole = (Intake(small.policy, small.announced(), small.shuffler) for _ in range(2))
    part.take(honest(small, range(5)))
    whole.join(part.part())
    with pytest.raises(Exception, match="have counted already"):
        whole.join(part.part())
    wrong = part.part()
    with pytest.raises(Exception, match="do not add up to its 1 senders"):
        whole.join(replace(wrong, reports={bytes(32): bytes(32)}))
    assert is_of(whole, range(5))


def test_the_receipt_counts_what_every_worker_refused(small):
    one, other, whole = (Intake(small.policy, small.announced(), small.shuffler) for _ in range(3))
    one.take([*honest(small, range(3)), b"rubbish"])
    other.take([*honest(small, range(3, 5)), b"rubbish", *honest(small, [3])])
    for worker in (one, other):
        whole.join(worker.part())
    assert whole.refused == {"malformed": 2, "duplicate": 1}


def test_a_worker_keeps_nothing_of_a_round_that_was_given_up(small, monkeypatch):
    monkeypatch.setattr(crew, "_key", [small.shuffler])
    crew._begin(7, (small.policy, small.announced()))
    crew._take(7, honest(small, range(3)))
    assert 7 in crew._intakes
    crew._forget(7)
    assert 7 not in crew._intakes
    # A round that the worker never heard of, say: it has just been started again.
    crew._forget(7)


@pytest.fixture
def policy_file(small, tmp_path):
    """A policy's file that is followed, and what it was made of."""
    file = tmp_path / "policy.json"
    write_settings(file, small.policy)

    class Made:
        def __init__(self, policy):
            self.policy = policy

        def under(self, policy):
            return Made(policy)

    return file, PolicyFile(file, lambda policy, _: Made(policy))


def test_members_are_those_of_the_file_from_the_next_request_on(small, policy_file):
    file, followed = policy_file
    assert followed.rounds().policy == followed.policy() == small.policy
    write_settings(file, first(small.policy, 6))
    assert followed.senders == 8
    assert followed.rounds().policy.senders == small.policy.senders[:6]
    assert followed.policy().senders == small.policy.senders[:6]


def test_a_policy_is_read_again_though_size_and_second_are_those_of_the_old(small, policy_file):
    """Somebody is dismissed and somebody else admitted in one go, right after the file was read."""
    file, followed = policy_file
    before = file.stat()
    assert followed.policy() == small.policy
    swapped = replace(small.policy, budgets=small.policy.budgets[::-1])
    write_settings(file, swapped)
    second = before.st_mtime_ns // 10**9 * 10**9
    os.utime(file, ns=(second, second + (before.st_mtime_ns + 1) % 10**9))
    assert file.stat().st_size == before.st_size
    assert followed.policy() == swapped


@pytest.mark.parametrize(
    "change",
    [
        {"smallest_cohort": 4},
        {"terms": "00" * 32},
        {"target_epsilon": 1.0},
        {"analyzer": "00" * 32},
        {"rounds": 4},
        {"colluding": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nothing_but_members_changes_while_it_runs(small, policy_file, capsys, change):
    file, followed = policy_file
    write_settings(file, first(small.policy, 6, **change))
    for _ in range(3):
        assert followed.policy() == small.policy
    (event,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert event["event"] == "policy-kept"
    assert f"{next(iter(change))} is another than before" in event["error"]


def test_a_policy_file_must_be_there_at_the_start(tmp_path):
    with pytest.raises(DataError, match="there is no"):
        PolicyFile(tmp_path / "policy.json", lambda policy, _: policy)
