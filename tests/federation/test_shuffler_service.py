"""The shuffler as callers meet it: requests in, releases out, started again, on a ledger that fails; no socket."""

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier

import numpy as np
import pytest
from local_shuffler import LocalShuffler
from parties import BUDGETS, LEVELS, OTHER_RUN, RUN, RUNS, TOKEN, batch, closes, honest, is_of, is_open, path

from apes.shuffler.service.intake import ReportRefusal
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.wire.envelope import envelope_size
from apes.wire.release import Release

pytestmark = pytest.mark.service
MOST_BYTES = 2 * 8 * (4 + envelope_size(15, 16)) + (16 << 20)


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    policy = replace(small.policy, rounds=100_000, runs=RUNS)
    party = LocalShuffler(tmp_path_factory.mktemp("shuffler"), policy, small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


def test_health_needs_no_token(shuffler):
    answer = shuffler.http.get("/health", headers={"authorization": ""})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_metrics_can_be_read_by_prometheus(shuffler, small):
    assert closes(shuffler, small, shuffler.next_run())
    answer = shuffler.http.get("/metrics", headers={"authorization": ""})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds = set()
    for line in answer.text.splitlines():
        if found := re.fullmatch(r"# TYPE (\w+) counter", line):
            kinds.add(found[1])
        elif not re.fullmatch(r"# HELP \w+ .+", line):
            name, value = re.fullmatch(r'(\w+)(?:\{reason="[a-z-]+"\})? ([0-9.e+-]+)', line).groups()
            assert name in kinds
            assert float(value) >= 0
    assert kinds == {
        "apes_reports_accepted_total",
        "apes_reports_refused_total",
        "apes_rounds_released_total",
        "apes_requests_refused_total",
        "apes_connections_closed_total",
        "apes_intake_seconds_total",
    }


@pytest.mark.parametrize("shown", [None, "", TOKEN, "Bearer", f"Bearer {TOKEN}x", f"bearer {TOKEN}", "é"])
def test_without_the_token(shuffler, small, shown):
    run, before = shuffler.next_run(), shuffler.refused("requests", "token")
    headers = {} if shown is None else {"authorization": shown.encode("latin-1")}
    with shuffler.client() as caller:
        del caller.headers["authorization"]
        get = caller.get(path(run=run), headers=headers)
        post = caller.post(path(run=run), content=batch(honest(small, run=run)), headers=headers)
    assert [(each.status_code, each.json()["refused"]) for each in (get, post)] == 2 * [(401, "token")]
    assert shuffler.refused("requests", "token") == before + 2
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


@pytest.mark.parametrize(
    ("run", "number", "reason"),
    [
        ("00" * 16, 1, "wrong-run"),
        (RUN.upper(), 1, "wrong-run"),
        (RUN, 0, "wrong-round"),
        (RUN, -1, "wrong-round"),
        (RUN, 100_001, "wrong-round"),
        (RUN, 10**30, "wrong-round"),
    ],
)
def test_rounds_that_there_are_not(shuffler, run, number, reason):
    before = shuffler.refused("requests", reason)
    for answer in (shuffler.get(number, run), shuffler.http.post(path(number, run), content=b"")):
        assert (answer.status_code, answer.json()["refused"]) == (404, reason)
    assert shuffler.refused("requests", reason) == before + 2


def test_a_round_is_released_once(shuffler, small):
    run = shuffler.next_run()
    reports = honest(small, run=run)
    assert is_open(shuffler, run)
    first = shuffler.post(reports, run=run)
    assert first.status_code == 200
    assert is_of(Release.decode(first.content), range(8))
    assert shuffler.get(run=run).content == first.content
    assert shuffler.post(reports, run=run).content == first.content
    before = shuffler.refused("requests", "round-closed")
    for other in (reports[:7], reports[1:], reports[::-1], [], honest(small, run=run)):
        answer = shuffler.post(other, run=run)
        assert (answer.status_code, answer.json()["refused"]) == (409, "round-closed")
    assert shuffler.refused("requests", "round-closed") == before + 5
    assert shuffler.get(run=run).content == first.content


def test_runs_are_apart(shuffler, small):
    run = shuffler.next_run()
    assert closes(shuffler, small, run)
    answer = shuffler.post(honest(small, range(5), run=OTHER_RUN), run=OTHER_RUN)
    assert is_of(Release.decode(answer.content), range(5))


def at_once(*calls):
    """Make the calls at the same moment."""
    barrier = Barrier(len(calls))

    def call(each):
        barrier.wait()
        return each()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def test_of_two_batches_at_once_one_wins(shuffler, small):
    for _ in range(5):
        run = shuffler.next_run()
        reports = honest(small, run=run)
        parts = (range(5), range(3, 8))
        answers = at_once(*(partial(shuffler.post, [reports[user] for user in part], run=run) for part in parts))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        (won,) = [place for place, answer in enumerate(answers) if answer.status_code == 200]
        assert is_of(Release.decode(answers[won].content), parts[won])
        assert answers[1 - won].json()["refused"] == "round-closed"
        assert shuffler.get(run=run).content == answers[won].content


def test_two_rounds_at_once(shuffler, small):
    one, other = shuffler.next_run(), shuffler.next_run()
    calls = [lambda: closes(shuffler, small, one, range(6)), lambda: closes(shuffler, small, other, range(2, 8))]
    assert at_once(*calls) == [True, True]


def test_a_cohort_too_small(shuffler, small):
    run, before = shuffler.next_run(), shuffler.refused("reports", "wrong-round")
    answer = shuffler.post([*honest(small, [0, 1], run=run), *honest(small, run=run, number=2)], run=run)
    assert answer.status_code == 422
    told = answer.json()
    assert (told["refused"], told["accepted"], told["needed"], told["wrong-round"]) == ("cohort", 2, 3, 8)
    assert shuffler.refused("reports", "wrong-round") == before + 8
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_a_batch_with_attacks_in_it(shuffler, small):
    run = shuffler.next_run()
    reports = honest(small, run=run)
    forged = [reports[0][:-1] + bytes([reports[0][-1] ^ 1]), reports[1][:-1], 2 * reports[2], b""]
    before = [shuffler.refused("reports", reason) for reason in ("signature", "malformed")]
    release = Release.decode(shuffler.post([*forged, *reports, reports[3]], run=run).content)
    assert release.receipt.refused == {"signature": 1, "malformed": 3, "duplicate": 1}
    assert is_of(release, range(8))
    after = [shuffler.refused("reports", reason) for reason in ("signature", "malformed")]
    assert after == [before[0] + 1, before[1] + 3]


def test_a_batch_too_large(shuffler, small):
    run = shuffler.next_run()
    before = shuffler.refused("requests", "size")
    shuffler.announce(run=run)
    answer = shuffler.http.post(path(run=run), content=b"\xff\xff\xff\x7f" + bytes(MOST_BYTES))
    assert (answer.status_code, answer.json()["refused"]) == (413, "size")
    assert shuffler.refused("requests", "size") == before + 1
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_a_caller_who_hangs_up(shuffler, small):
    run, before = shuffler.next_run(), shuffler.refused("requests", "cut-short")
    shuffler.begin_upload(run, batch(honest(small, run=run))).close()
    assert shuffler.refused("requests", "cut-short") == before + 1
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_started_again_before_the_batch_was_there(shuffler, small):
    run = shuffler.next_run()
    shuffler.begin_upload(run, batch(honest(small, run=run)))
    shuffler.restart()
    assert is_open(shuffler, run)
    assert shuffler.rows("select count(*) from participants where run = ?", run) == [(0,)]
    assert closes(shuffler, small, run)
    assert shuffler.rows("select count(*) from participants where run = ?", run) == [(8,)]


def test_a_disk_that_takes_nothing(shuffler, small):
    """Not even the log can be written meanwhile."""
    closed, run = shuffler.next_run(), shuffler.next_run()
    assert closes(shuffler, small, closed)
    reports, later, before = honest(small, run=run), shuffler.next_run(), shuffler.refused("requests", "ledger")
    assert shuffler.announce(run=run).status_code == 204
    shuffler.let_write(False)
    try:
        assert shuffler.announce(run=later).status_code == 503
        answers = [shuffler.post(reports, run=run) for _ in range(3)]
        assert {(each.status_code, each.json()["refused"]) for each in answers} == {(503, "ledger")}
        assert is_open(shuffler, run)
        assert is_of(Release.decode(shuffler.get(run=closed).content), range(8))
    finally:
        shuffler.let_write(True)
    assert shuffler.rows("select count(*) from participants where run = ?", run) == [(0,)]
    assert shuffler.refused("requests", "ledger") == before + 4
    release = shuffler.post(reports, run=run)
    assert is_of(Release.decode(release.content), range(8))
    assert shuffler.get(run=run).content == release.content


def test_a_ledger_that_cannot_be_read(small, tmp_path):
    ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
    rounds = Rounds(small.policy, small.services_keys, ledger)
    ledger.close()
    for ask in (rounds.release(RUN, 1), rounds.close_round(RUN, 1, None)):
        with pytest.raises(RequestRefused) as refusal:
            asyncio.run(ask)
        assert (refusal.value.status, refusal.value.reason) == (503, "ledger")


def rubbish_frames(small, run, noise, count):
    """Random strings; one in twenty is as long as an envelope and begins like one of a registered sender."""
    start = honest(small, [0], run=run)[0][:122]
    likely = [start + os.urandom(envelope_size(15, 16) - 122) for _ in range(count // 20)]
    return [*noise(count - len(likely)), *likely]


def test_rubbish(shuffler, small, noise):
    """Random strings for reports, and one in twenty is as long as an envelope and begins like a registered sender's."""
    run = shuffler.next_run()
    before = [shuffler.refused("reports", reason) for reason in ("malformed", "signature")]
    answer = shuffler.post(rubbish_frames(small, run, noise, 2_000), run=run)
    assert (answer.status_code, answer.json()["refused"]) == (422, "cohort")
    assert answer.json()["accepted"] == 0
    for body in noise(50):
        assert shuffler.http.post(path(run=run), content=body).status_code == 422
    after = [shuffler.refused("reports", reason) for reason in ("malformed", "signature")]
    assert after[0] - before[0] >= 1_900
    assert after[1] - before[1] == 100
    assert is_open(shuffler, run)
    assert closes(shuffler, small, run)


def test_strange_requests(shuffler, small, noise):
    for text in noise(30, 40):
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert 400 <= shuffler.http.request(method, "/" + text.hex(), content=text).status_code < 500
    for number in ("1e3", "one", "1.5", "9" * 5000, "%00"):
        assert 400 <= shuffler.http.get(path(number)).status_code < 500
    for place in ("/docs", "/openapi.json", "/redoc", "/v1/runs", f"/v1/runs/{RUN}"):
        assert shuffler.http.get(place).status_code == 404
    assert closes(shuffler, small, shuffler.next_run())


def test_logs_tell_counts_and_no_values(shuffler, small):
    """After everything that was done above, and once more a refusal and a release."""
    run = shuffler.next_run()
    secret = honest(small, run=run)
    shuffler.post(secret[:2], run=run)
    assert closes(shuffler, small, run)
    events = shuffler.events()
    names = {event["event"] for event in events}
    assert {"serving", "refused", "released"} <= names <= {"serving", "refused", "released", "ledger-failed"}
    reasons = {"token", "wrong-run", "wrong-round", "open", "round-closed", "cohort", "size", "cut-short", "ledger"}
    for event in events:
        if event["event"] == "refused":
            counts = event.keys() - {"time", "event", "reason"}
            assert event["reason"] in reasons
            assert counts <= {"count", "accepted", "needed"} | {reason.value for reason in ReportRefusal}
            assert all(type(event[name]) is int for name in counts)
        elif event["event"] == "released":
            assert event.keys() == {"time", "event", "run", "round", "users", "refused", "seconds"}
    text = shuffler.log.read_text()
    last = [event for event in events if event["event"] == "released"][-1]
    assert (last["run"], last["round"], last["users"], last["refused"]) == (run, 1, 8, {})
    assert not [sender for sender in small.policy.senders if sender in text]
    assert not [budget for budget in BUDGETS if str(budget)[2:] in text]
    assert TOKEN not in text
    for row in LEVELS:
        assert str(row.tolist())[1:-1] not in text
        assert row.tobytes().hex() not in text
    assert small.shuffler.private_bytes_raw().hex() not in text


def test_what_the_ledger_keeps(shuffler, small):
    """Who took part, and the sum of what they said: no report."""
    run = shuffler.next_run()
    assert closes(shuffler, small, run)
    senders = shuffler.rows("select sender from participants where run = ? order by sender", run)
    assert [sender.hex() for (sender,) in senders] == sorted(small.policy.senders)
    ((release,),) = shuffler.rows("select release from rounds where run = ?", run)
    assert release == shuffler.get(run=run).content
    assert not np.isin([row.tobytes() in release for row in LEVELS], True).any()
