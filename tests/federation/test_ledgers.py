"""The shuffler's ledger, in a file and on a PostgreSQL server: one battery over both, and what only a server allows."""

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from parties import BUDGETS, OTHER_RUN, RUN, Shuffler, honest, is_of, path, until
from postgres import server

import apes
from apes.errors import DataError
from apes.shuffler.service.ledger import Closed, RoundClosed, ShufflerLedger
from apes.shuffler.service.store import LedgerError, ledger_place
from apes.wire.frames import framed
from apes.wire.release import Release

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ledgers")]
FIRST, SECOND = Closed(b"first", b"\0release\xff"), Closed(b"second", b"another")


@pytest.fixture(scope="module")
def postgres():
    with server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a ledger without anything in it may be."""
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    started = request.getfixturevalue("postgres")
    return empty(started)


def empty(started):
    with contextlib.closing(ShufflerLedger(started.address)):
        pass
    started.rows("with r as (delete from rounds), p as (delete from participants) select 1")
    return started.address


@pytest.fixture
def ledger(place):
    ledger = ShufflerLedger(place)
    yield ledger
    ledger.close()


def test_a_round_is_closed_once(ledger):
    assert ledger.find(RUN, 1) is None
    ledger.close_round(RUN, 1, FIRST, [bytes(32), bytes([1]) * 32])
    with pytest.raises(RoundClosed):
        ledger.close_round(RUN, 1, SECOND, [b"another"])
    assert ledger.find(RUN, 1) == FIRST
    ledger.close_round(OTHER_RUN, 1, SECOND, [bytes(32)])
    ledger.close_round(RUN, 3, SECOND, [])
    assert (ledger.numbers(RUN), ledger.numbers(OTHER_RUN)) == ([1, 3], [1])
    assert ledger.releases(RUN) == [FIRST.release, SECOND.release]


def test_what_was_closed_is_there_again(place):
    for number in (1, 2):
        ledger = ShufflerLedger(place)
        ledger.close_round(RUN, number, FIRST, [])
        ledger.close()
    ledger = ShufflerLedger(place)
    assert ledger.numbers(RUN) == [1, 2]
    assert ledger.find(RUN, 2) == FIRST
    ledger.close()


def test_a_transaction_that_fails_leaves_nothing(ledger):
    with contextlib.suppress(KeyError), ledger.transaction(RUN):
        ledger.close_round(RUN, 1, FIRST, [bytes(32)])
        assert ledger.numbers(RUN) == [1]
        raise KeyError("in the middle")
    assert ledger.numbers(RUN) == []
    # Nor does a statement that fails: twice the same sender.
    with pytest.raises(LedgerError):
        ledger.close_round(RUN, 1, FIRST, [bytes(32), bytes(32)])
    assert ledger.numbers(RUN) == []
    ledger.close_round(RUN, 1, FIRST, [bytes(32)])
    assert ledger.numbers(RUN) == [1]


def test_nobody_sees_a_round_before_it_is_closed_for_good(ledger):
    """Another thread reads nothing of it, or waits: what it hears of is on the disk."""
    with ThreadPoolExecutor(1) as other:
        with ledger.transaction(RUN):
            assert other.submit(ledger.find, RUN, 1).result(timeout=60) is None
            ledger.close_round(RUN, 1, FIRST, [])
            reading = other.submit(ledger.find, RUN, 1)
            with contextlib.suppress(TimeoutError):
                assert reading.result(timeout=0.5) is None
        assert reading.result(timeout=60) in (None, FIRST)
    assert ledger.find(RUN, 1) == FIRST


def test_many_threads_close_a_round_once(ledger):
    outcomes, begin = [], threading.Barrier(8)

    def close(which):
        begin.wait()
        try:
            ledger.close_round(RUN, 1, Closed(bytes([which]), bytes([which])), [bytes([which])])
            outcomes.append(which)
        except RoundClosed:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(close, range(8)))
    (winner,) = outcomes
    assert ledger.find(RUN, 1) == Closed(bytes([winner]), bytes([winner]))


def test_a_release_of_many_bytes(ledger):
    release = np.random.default_rng(1).bytes(5_000_000)
    ledger.close_round(RUN, 1, Closed(b"digest", release), [])
    assert ledger.find(RUN, 1) == Closed(b"digest", release)


def test_settings_name_a_file_or_a_server(tmp_path):
    assert ledger_place(tmp_path, "ledger.sqlite") == tmp_path / "ledger.sqlite"
    assert ledger_place(tmp_path, "postgresql://a@b/c") == "postgresql://a@b/c"


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "apes.shuffler.service.postgres_store", raising=False)
    with pytest.raises(DataError, match=r"needs pip install 'apes-fl\[postgres\]'"):
        ShufflerLedger("postgresql://a@b/c")


def test_a_server_that_is_not_there():
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match="the ledger on PostgreSQL cannot be used"):
        ShufflerLedger("postgresql://nobody@/nothing?host=/nowhere")


def test_a_server_that_does_not_keep_what_it_says(postgres):
    postgres.set("fsync", "off")
    try:
        until(lambda: postgres.rows("show fsync") == [("off",)])
        with pytest.raises(DataError, match="fsync must be on, got off"):
            ShufflerLedger(postgres.address)
    finally:
        postgres.set("fsync", "on")
    until(lambda: postgres.rows("show fsync") == [("on",)])


def test_two_on_one_server_wait_for_each_other_and_only_in_the_same_run(postgres):
    one, other = ShufflerLedger(empty(postgres)), ShufflerLedger(postgres.address)
    with ThreadPoolExecutor(1) as pool:
        with one.transaction(RUN):
            other.close_round(OTHER_RUN, 1, SECOND, [])
            waiting = pool.submit(other.close_round, RUN, 1, SECOND, [])
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            one.close_round(RUN, 1, FIRST, [])
        with pytest.raises(RoundClosed):
            waiting.result(timeout=60)
    assert other.find(RUN, 1) == FIRST
    one.close()
    other.close()


def test_a_server_that_crashes_and_comes_back(postgres):
    ledger = ShufflerLedger(empty(postgres))
    ledger.close_round(RUN, 1, FIRST, [bytes(32)])
    postgres.stop("immediate")
    with pytest.raises(LedgerError):
        ledger.find(RUN, 1)
    with pytest.raises(LedgerError):
        ledger.close_round(RUN, 2, SECOND, [])
    postgres.start()
    assert ledger.find(RUN, 1) == FIRST
    assert ledger.find(RUN, 2) is None
    ledger.close_round(RUN, 2, SECOND, [])
    assert ledger.numbers(RUN) == [1, 2]
    ledger.close()


def epsilon(rounds):
    """What rounds with all eight users cost."""
    accountant = apes.Accountant(1e-3, expected_rounds=100, settled=False)
    for _ in range(rounds):
        accountant.charge(apes.Exposure(BUDGETS, 15, 16))
    return accountant.epsilon


@pytest.fixture(scope="module")
def pair(small, postgres, tmp_path_factory):
    """Two shufflers, as processes, on one database, with a target that allows ten rounds and not eleven."""
    target = (epsilon(10) + epsilon(11)) / 2
    policy = replace(small.policy, rounds=100, target_epsilon=target)
    place = empty(postgres)
    folders = [tmp_path_factory.mktemp("pair") for _ in range(2)]
    parties = [Shuffler(folder, policy, small.shuffler, ledger=place) for folder in folders]
    for party in parties:
        party.start()
    yield parties
    for party in parties:
        party.kill()
        party.http.close()


def at_once(*calls):
    begin = threading.Barrier(len(calls))

    def call(make):
        begin.wait()
        return make()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [asked.result() for asked in [pool.submit(call, make) for make in calls]]


def test_two_shufflers_release_a_round_once(pair, small, postgres):
    """Three rounds with two batches at once each, and one with the same batch at both."""
    for number in (1, 2, 3):
        bodies = [b"".join(framed(honest(small, users, number=number))) for users in (range(8), range(7, -1, -1))]
        calls = [
            lambda party=party, body=body, number=number: party.http.post(path(number), content=body)
            for party, body in zip(pair, bodies, strict=True)
        ]
        answers = at_once(*calls)
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        (release,) = [answer.content for answer in answers if answer.status_code == 200]
        assert [party.get(number).content for party in pair] == [release, release]
        assert postgres.rows("select count(*) from participants where round = %s", number) == [(8,)]
    body = b"".join(framed(honest(small, number=4)))
    answers = at_once(*[lambda party=party: party.http.post(path(4), content=body) for party in pair])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert is_of(Release.decode(answers[0].content), range(8))


def test_a_shuffler_killed_once_the_server_has_it_hands_out_the_same(pair, small, postgres):
    number, body = 5, b"".join(framed(honest(small, number=5)))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(pair[0].http.post, path(number), content=body)
        ((kept,),) = until(lambda: postgres.rows("select release from rounds where round = %s", number))
        pair[0].kill()
        asking.exception()
    pair[0].start()
    assert [party.http.post(path(number), content=body).content for party in pair] == [kept, kept]


def test_a_server_that_is_away_releases_nothing(pair, small, postgres):
    number, body = 6, b"".join(framed(honest(small, number=6)))
    postgres.stop("immediate")
    try:
        answers = [party.http.post(path(number), content=body) for party in pair]
        assert {(answer.status_code, answer.json()["refused"]) for answer in answers} == {(503, "ledger")}
    finally:
        postgres.start()
    assert [party.get(number).json()["refused"] for party in pair] == ["open", "open"]
    assert pair[1].http.post(path(number), content=body).status_code == 200
    assert pair[0].get(number).status_code == 200


def test_the_target_holds_over_both(pair, small, postgres):
    """Six rounds are out; of six more, at both in turn and at once, four pass and no more, whoever asks."""
    outcomes = []
    for numbers in ((7, 8), (9, 10), (11, 12)):
        calls = [
            lambda party=party, number=number: party.post(number, honest(small, number=number))
            for party, number in zip(pair, numbers, strict=True)
        ]
        outcomes += [answer.status_code for answer in at_once(*calls)]
    assert sorted(outcomes) == [200] * 4 + [403] * 2
    assert postgres.rows("select count(*) from rounds where run = %s", RUN) == [(10,)]
    assert [party.post(13, honest(small, number=13)).status_code for party in pair] == [403, 403]
