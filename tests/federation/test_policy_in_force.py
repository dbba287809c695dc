"""Members who come and go while the shuffler runs: a change holds from the next request on, never in a round's middle.

What changes the policy's file is looked at in test_members.py.
"""

import json
from dataclasses import replace

import pytest
from local_shuffler import LocalShuffler
from parties import RUNS, Shuffler, honest, is_of

from apes.storage.settings import write_settings
from apes.wire.frames import framed
from apes.wire.release import Release

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    party = LocalShuffler(tmp_path_factory.mktemp("m"), replace(small.policy, runs=RUNS), small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


@pytest.fixture
def policy(shuffler, small):
    """The policy with everybody; it is in force before and after."""
    whole = replace(small.policy, runs=RUNS)
    shuffler.write_policy(whole)
    yield whole
    shuffler.write_policy(whole)


def first(policy, count):
    """The policy with the first members only."""
    return replace(policy, senders=policy.senders[:count], budgets=policy.budgets[:count])


def released(shuffler, small, run=None):
    """Who is in the release of a batch of all eight, and what was refused."""
    run = run or shuffler.next_run()
    release = Release.decode(shuffler.post(honest(small, run=run), run=run).content)
    (count,) = {int(total) for total in release.counts.sum(axis=1)}
    return count, release.receipt.refused


def last(shuffler, name):
    return [event for event in shuffler.events() if event["event"] == name][-1]


def takes_a_new_policy(shuffler, small, policy):
    """Whether who may report changes from one request to the next."""
    assert released(shuffler, small) == (8, {})
    shuffler.write_policy(first(policy, 6))
    assert released(shuffler, small) == (6, {"unregistered": 2})
    assert last(shuffler, "policy")["senders"] == 6
    shuffler.write_policy(policy)
    return released(shuffler, small) == (8, {})


def test_a_shuffler_takes_a_new_policy(shuffler, small, policy):
    assert takes_a_new_policy(shuffler, small, policy)


@pytest.mark.process
def test_a_running_shuffler_takes_a_new_policy(small, tmp_path):
    """Without a restart, for which today's needs one."""
    policy = replace(small.policy, runs=RUNS)
    process = Shuffler(tmp_path, policy, small.shuffler)
    process.start()
    try:
        pid = process._process.pid
        assert takes_a_new_policy(process, small, policy)
        assert process._process.pid == pid
        assert process._process.poll() is None
    finally:
        process.kill()
        process.http.close()


def finish(begun, reports):
    """Send the rest of a batch, filled up with a frame that is no report; the answer's first line."""
    rest = b"".join(framed(reports))
    begun.sendall(rest + (1000 - len(rest) - 4).to_bytes(4, "little") + bytes(1000 - len(rest) - 4))
    return begun.recv(1 << 16).split(b"\r\n")[0]


@pytest.mark.parametrize("is_noticed", [True, False], ids=["others ask meanwhile", "nobody asks meanwhile"])
@pytest.mark.parametrize("came", ["before", "after"])
def test_who_is_dismissed_does_not_count_in_a_round_that_has_begun(shuffler, small, policy, came, is_noticed):
    """Be their report in the part of the batch that came before or after; held open for long, it used to count."""
    run, gone = shuffler.next_run(), (0, 1) if came == "before" else (6, 7)
    stay = [user for user in range(8) if user not in gone]
    reports, refused = honest(small, run=run), shuffler.refused("requests", "members")
    begun = shuffler.begin_upload(run, b"".join(framed(reports[:5])))
    # Answered after the batch has begun, under the policy with everybody.
    assert shuffler.get(run=run).status_code == 404
    less = {name: tuple(getattr(policy, name)[user] for user in stay) for name in ("senders", "budgets")}
    shuffler.write_policy(replace(policy, **less))
    if is_noticed:
        assert released(shuffler, small) == (6, {"unregistered": 2})
    with begun:
        assert finish(begun, reports[5:]).startswith(b"HTTP/1.1 503")
    assert shuffler.refused("requests", "members") == refused + 1
    assert shuffler.get(run=run).status_code == 404
    # Nothing of it was kept, the roster neither; sent again, it is taken without them.
    assert not shuffler.rows("select * from rosters where run = ?", run)
    assert released(shuffler, small, run) == (6, {"unregistered": 2})
    assert is_of(Release.decode(shuffler.get(run=run).content), stay)


def test_who_comes_back_with_another_budget_does_not_count_with_the_old(shuffler, small, policy):
    run = shuffler.next_run()
    reports = honest(small, run=run)
    begun = shuffler.begin_upload(run, b"".join(framed(reports[:5])))
    assert shuffler.get(run=run).status_code == 404
    shuffler.write_policy(replace(policy, budgets=(0.5, *policy.budgets[1:])))
    with begun:
        assert finish(begun, reports[5:]).startswith(b"HTTP/1.1 503")
    assert released(shuffler, small, run) == (7, {"budget": 1})


def test_a_round_that_has_begun_goes_on_when_others_come_or_go(shuffler, small, policy):
    """Who is admitted meanwhile counts from the next request; who is dismissed and not in it changes nothing."""
    shuffler.write_policy(first(policy, 7))
    run = shuffler.next_run()
    reports = honest(small, run=run)
    begun = shuffler.begin_upload(run, b"".join(framed(reports[:4])))
    assert shuffler.get(run=run).status_code == 404
    others = policy.senders[:6] + policy.senders[7:], policy.budgets[:6] + policy.budgets[7:]
    shuffler.write_policy(replace(policy, senders=others[0], budgets=others[1]))
    assert released(shuffler, small) == (7, {"unregistered": 1})
    with begun:
        assert finish(begun, [*reports[4:6], reports[7]]) == b"HTTP/1.1 200 OK"
    release = Release.decode(shuffler.get(run=run).content)
    assert is_of(release, range(6))
    assert release.receipt.refused == {"malformed": 1, "unregistered": 1}


def test_who_comes_later_is_in_no_roster_and_counts_as_one_more(shuffler, small, policy):
    """The roster of a run that was asked for stays what it was; a receipt says how many members came after it."""
    run = shuffler.next_run()
    shuffler.write_policy(first(policy, 6))
    roster = shuffler.http.get(f"/v1/runs/{run}/roster").content
    shuffler.write_policy(policy)
    assert released(shuffler, small, run) == (8, {})
    receipt = Release.decode(shuffler.get(run=run).content).receipt
    assert (receipt.users, receipt.later) == (8, 2)
    assert shuffler.http.get(f"/v1/runs/{run}/roster").content == roster


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file, policy: file.write_text("{"),
        lambda file, policy: file.write_bytes(b"\xff" * 100),
        lambda file, policy: file.unlink(),
        lambda file, policy: write_settings(file, replace(policy, smallest_cohort=4)),
        lambda file, policy: write_settings(file, replace(policy, terms="00" * 32)),
        lambda file, policy: file.write_text(json.dumps({"senders": []})),
    ],
    ids=["cut short", "no text", "gone", "another cohort", "other terms", "fields missing"],
)
def test_a_policy_that_cannot_be_taken_leaves_the_old_one_in_force(shuffler, small, policy, spoil):
    assert released(shuffler, small) == (8, {})
    before = len([event for event in shuffler.events() if event["event"] == "policy-kept"])
    spoil(shuffler.folder / "policy.json", policy)
    assert released(shuffler, small) == (8, {})
    assert released(shuffler, small) == (8, {})
    kept = [event for event in shuffler.events() if event["event"] == "policy-kept"]
    assert len(kept) == before + 1
    assert kept[-1]["senders"] == 8
