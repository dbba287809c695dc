"""The shuffler's ledger, in a file and on a PostgreSQL server: one battery over both, and what only a server allows."""

import contextlib
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from parties import APES, BUDGETS, OTHER_RUN, RUN, Shuffler, honest, is_of, path, until, worst_of
from postgres import server

import apes
from apes.errors import DataError
from apes.shuffler.service.ledger import Closed, RoundClosed, ShufflerLedger
from apes.shuffler.service.store import LedgerConflict, LedgerError, ledger_place
from apes.shuffler.service.witness import Seen, Witness, new_witness
from apes.storage.settings import read_settings
from apes.wire.announcement import FIRST as NOTHING
from apes.wire.frames import framed
from apes.wire.release import Release, receipt_of

FIRST, SECOND = Closed(b"first", b"\0release\xff"), Closed(b"second", b"another")


@pytest.fixture(scope="module")
def postgres():
    with server() as started:
        yield started


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def place(request, tmp_path):
    """Where a ledger without anything in it may be."""
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    started = request.getfixturevalue("postgres")
    return empty(started)


def empty(started):
    with contextlib.closing(ShufflerLedger(started.address)):
        pass
    tables = ("rounds", "participants", "announcements", "rosters", "chain", "named")
    started.rows(f"with {', '.join(f'of_{table} as (delete from {table})' for table in tables)} select 1")
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
            assert other.submit(ledger.find, RUN, 1).result(timeout=300) is None
            ledger.close_round(RUN, 1, FIRST, [])
            reading = other.submit(ledger.find, RUN, 1)
            with contextlib.suppress(TimeoutError):
                assert reading.result(timeout=0.1) is None
        assert reading.result(timeout=300) in (None, FIRST)
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


def test_a_round_is_announced_once(ledger):
    assert ledger.announcement(RUN, 1) is None
    ledger.announce(RUN, 1, b"first")
    with pytest.raises(LedgerConflict):
        ledger.announce(RUN, 1, b"second")
    assert ledger.announcement(RUN, 1) == b"first"
    ledger.announce(OTHER_RUN, 1, b"second")
    assert ledger.announcement(OTHER_RUN, 1) == b"second"


def test_a_roster_is_what_it_was_first(ledger):
    few, many = {bytes(32): 0.1, bytes([7]) * 32: 1 / 3}, {bytes([9]) * 32: 0.5}
    assert ledger.roster(RUN, few) == few
    assert ledger.roster(RUN, many) == few
    assert ledger.roster(OTHER_RUN, many) == many


def test_the_last_release_is_that_of_the_last_round(ledger):
    assert ledger.last(RUN) is None
    for number, closed in ((2, FIRST), (10, SECOND), (3, FIRST)):
        ledger.close_round(RUN, number, closed, [])
    assert ledger.last(RUN) == SECOND.release


def test_a_release_of_many_bytes(ledger):
    release = np.random.default_rng(1).bytes(5_000_000)
    ledger.close_round(RUN, 1, Closed(b"digest", release), [])
    assert ledger.find(RUN, 1) == Closed(b"digest", release)


@pytest.fixture
def witness(tmp_path):
    """A new shuffler's."""
    new_witness(tmp_path / "witness.json")
    return tmp_path / "witness.json"


def opened(place, witness):
    return contextlib.closing(ShufflerLedger(place, Witness(witness)))


def begun(place, witness):
    """A run that began: a roster, a round announced and closed; as somebody outside heard of it."""
    with opened(place, witness) as ledger:
        ledger.witnessed(RUN, lambda: ledger.roster(RUN, {bytes(32): 0.1}))
        ledger.witnessed(RUN, lambda: ledger.announce(RUN, 1, b"announced"))
        ledger.witnessed(RUN, lambda: ledger.close_round(RUN, 1, FIRST, [bytes(32)]))


def test_a_ledger_goes_on_with_its_witness(place, witness):
    begun(place, witness)
    with opened(place, witness) as ledger:
        assert ledger.witnessed(RUN, lambda: ledger.find(RUN, 1)) == FIRST
        ledger.witnessed(OTHER_RUN, lambda: ledger.close_round(OTHER_RUN, 1, SECOND, []))
    seen = read_settings(witness, Seen).runs
    assert {run: number for run, (number, _) in seen.items()} == {RUN: 3, OTHER_RUN: 1}


def test_a_ledger_that_knows_more_than_its_witness_goes_on(place, witness):
    """So a crash leaves it, at whatever moment."""
    new = witness.read_bytes()
    begun(place, witness)
    with opened(place, witness) as ledger:
        # Nobody heard of these.
        ledger.announce(RUN, 2, b"announced")
        ledger.roster(OTHER_RUN, {bytes(32): 0.1})
    for before in (witness.read_bytes(), new):
        witness.write_bytes(before)
        with opened(place, witness) as ledger:
            assert ledger.find(RUN, 1) == FIRST
        assert {run: number for run, (number, _) in read_settings(witness, Seen).runs.items()} == {RUN: 4, OTHER_RUN: 1}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_ledger_from_before_a_roster_an_announcement_or_a_release_is_refused(place, witness, lost):
    """Also one that went on from there, as far or farther: with another roster, announcement or release."""
    begun(place, witness)
    with contextlib.closing(ShufflerLedger(place)) as ledger, ledger.transaction(RUN):
        # The tables as they were before.
        ledger._store.put("delete from chain where run = ? and number >= ?", [(RUN, lost)])
        for table in ("rosters", "announcements", "rounds")[lost - 1 :]:
            ledger._store.put(f"delete from {table} where run = ?", [(RUN,)])
        ledger._store.put("delete from participants where run = ?", [(RUN,)])
    with pytest.raises(DataError, match=r"cannot be used: it is older than .*, it lacks what .*: put the newest copy"):
        ShufflerLedger(place, Witness(witness))
    with contextlib.closing(ShufflerLedger(place)) as ledger:
        ledger.roster(RUN, {bytes(32): 0.2})
        if lost < 3:
            ledger.announce(RUN, 1, b"another")
        ledger.close_round(RUN, 1, SECOND, [])
        ledger.announce(RUN, 2, b"another")
    with pytest.raises(DataError, match=r"it is older than .*, it went on from an old copy"):
        ShufflerLedger(place, Witness(witness))


def test_a_ledger_that_is_old_while_it_is_open_is_refused(place, witness):
    begun(place, witness)
    with opened(place, witness) as ledger:
        with ledger.transaction(RUN):
            ledger._store.put("delete from chain where run = ? and number = 3", [(RUN,)])
            ledger._store.put("delete from rounds where run = ?", [(RUN,)])
        done = []
        with pytest.raises(LedgerError, match="it is older than this shuffler's last answer"):
            ledger.witnessed(RUN, lambda: done.append(True))
        assert not done


def test_an_empty_ledger_in_the_place_of_one_is_refused(place, witness):
    begun(place, witness)
    with contextlib.closing(ShufflerLedger(place)) as ledger, ledger.transaction(RUN):
        for table in ("rounds", "participants", "announcements", "rosters", "chain", "named"):
            ledger._store.put(f"delete from {table} where 1 = ?", [(1,)])
    with pytest.raises(DataError, match="it is not this shuffler's ledger, or what was in it is gone"):
        ShufflerLedger(place, Witness(witness))


def test_anothers_ledger_and_one_without_a_name_are_refused(place, witness, tmp_path):
    begun(place, witness)
    new_witness(tmp_path / "other.json")
    with pytest.raises(DataError, match="it is not this shuffler's ledger"):
        ShufflerLedger(place, Witness(tmp_path / "other.json"))
    with contextlib.closing(ShufflerLedger(place)) as ledger, ledger.transaction(RUN):
        ledger._store.put("delete from named where one = ?", [(1,)])
    with pytest.raises(DataError, match="it is not this shuffler's ledger"):
        ShufflerLedger(place, Witness(tmp_path / "other.json"))


@pytest.mark.process
def test_two_with_the_same_witness_open_a_new_ledger_at_once(postgres, witness):
    empty(postgres)
    with ThreadPoolExecutor(4) as pool:
        for ledger in pool.map(lambda _: ShufflerLedger(postgres.address, Witness(witness)), range(4)):
            ledger.close()
    assert postgres.rows("select count(*) from named") == [(1,)]


def test_settings_name_a_file_or_a_server(tmp_path):
    assert ledger_place(tmp_path, "ledger.sqlite") == tmp_path / "ledger.sqlite"
    assert ledger_place(tmp_path, "postgresql://a@b/c") == "postgresql://a@b/c"


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "apes.shuffler.service.postgres_store", raising=False)
    with pytest.raises(DataError, match=r"needs pip install 'apes-fl\[postgres\]'"):
        ShufflerLedger("postgresql://a@b/c")


@pytest.mark.process
def test_a_server_that_is_not_there():
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match="the ledger on PostgreSQL cannot be used"):
        ShufflerLedger("postgresql://nobody@/nothing?host=/nowhere")


@pytest.mark.process
def test_a_server_that_does_not_keep_what_it_says(postgres):
    postgres.set("fsync", "off")
    try:
        until(lambda: postgres.rows("show fsync") == [("off",)])
        with pytest.raises(DataError, match="fsync must be on, got off"):
            ShufflerLedger(postgres.address)
    finally:
        postgres.set("fsync", "on")
    until(lambda: postgres.rows("show fsync") == [("on",)])


@pytest.mark.process
def test_two_on_one_server_wait_for_each_other_and_only_in_the_same_run(postgres):
    one, other = ShufflerLedger(empty(postgres)), ShufflerLedger(postgres.address)
    with ThreadPoolExecutor(1) as pool:
        with one.transaction(RUN):
            other.close_round(OTHER_RUN, 1, SECOND, [])
            waiting = pool.submit(other.close_round, RUN, 1, SECOND, [])
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            one.close_round(RUN, 1, FIRST, [])
        with pytest.raises(RoundClosed):
            waiting.result(timeout=300)
    assert other.find(RUN, 1) == FIRST
    one.close()
    other.close()


@pytest.mark.process
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
        accountant.charge(apes.Exposure(worst_of(BUDGETS, 8), 15, 16))
    return accountant.epsilon


@pytest.fixture(scope="module")
def pair(small, postgres, tmp_path_factory):
    """Two shufflers, as processes, on one database, with a target that allows ten rounds and not eleven."""
    target = (epsilon(10) + epsilon(11)) / 2
    policy = replace(small.policy, rounds=100, target_epsilon=target)
    place = empty(postgres)
    folders = [tmp_path_factory.mktemp("pair") for _ in range(2)]
    parties = [Shuffler(folder, policy, small.shuffler, ledger=place) for folder in folders]
    # As in a copy of the first one's folder.
    shutil.copy(folders[0] / "witness.json", folders[1])
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


def last(postgres):
    """What an announcement has to name: the last release's receipt."""
    rows = postgres.rows("select release from rounds where run = %s order by round desc limit 1", RUN)
    return bytes.fromhex(receipt_of(rows[0][0]).digest) if rows else NOTHING


def announced(pair, number, previous):
    """Announce a round at one of two shufflers; its reports may go to both."""
    answer = pair[number % 2].announce(number, previous=previous)
    assert answer.status_code == 204, answer.text


def batch(small, number, previous, users=range(8)):
    return b"".join(framed(honest(small, users, number=number, previous=previous)))


@pytest.mark.process
def test_two_shufflers_release_a_round_once(pair, small, postgres):
    """Three rounds with two batches at once each, and one with the same batch at both."""
    for number in (1, 2, 3):
        announced(pair, number, previous := last(postgres))
        bodies = [batch(small, number, previous, users) for users in (range(8), range(7, -1, -1))]
        calls = [
            lambda party=party, body=body, number=number: party.http.post(path(number), content=body)
            for party, body in zip(pair, bodies, strict=True)
        ]
        answers = at_once(*calls)
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        (release,) = [answer.content for answer in answers if answer.status_code == 200]
        assert [party.get(number).content for party in pair] == [release, release]
        assert postgres.rows("select count(*) from participants where round = %s", number) == [(8,)]
    announced(pair, 4, previous := last(postgres))
    body = batch(small, 4, previous)
    answers = at_once(*[lambda party=party: party.http.post(path(4), content=body) for party in pair])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert is_of(Release.decode(answers[0].content), range(8))


@pytest.mark.process
def test_two_shufflers_take_one_announcement_and_one_roster(pair, small, postgres):
    """Two announcements of round 5 at once, one at each: one of them holds at both, and the roster is the same."""
    previous = last(postgres)
    calls = [
        lambda party=party, fill=fill: party.announce(5, weights=bytes([fill]) * 60, previous=previous)
        for fill, party in enumerate(pair)
    ]
    answers = at_once(*calls)
    assert sorted(answer.status_code for answer in answers) == [204, 403]
    (winner,) = [fill for fill, answer in enumerate(answers) if answer.status_code == 204]
    assert [
        party.announce(5, weights=bytes([fill]) * 60, previous=previous).status_code
        for party in pair
        for fill in (winner, 1 - winner)
    ] == [204, 403, 204, 403]
    first, second = (party.http.get(f"/v1/runs/{RUN}/roster").content for party in pair)
    assert first == second


@pytest.mark.process
def test_a_shuffler_killed_once_the_server_has_it_hands_out_the_same(pair, small, postgres):
    number = 6
    announced(pair, number, previous := last(postgres))
    body = batch(small, number, previous)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(pair[0].http.post, path(number), content=body)
        ((kept,),) = until(lambda: postgres.rows("select release from rounds where round = %s", number))
        pair[0].kill()
        asking.exception()
    pair[0].start()
    assert [party.http.post(path(number), content=body).content for party in pair] == [kept, kept]


@pytest.mark.process
def test_a_server_that_is_away_releases_nothing(pair, small, postgres):
    number = 7
    announced(pair, number, previous := last(postgres))
    body = batch(small, number, previous)
    postgres.stop("immediate")
    try:
        answers = [party.http.post(path(number), content=body) for party in pair]
        assert {(answer.status_code, answer.json()["refused"]) for answer in answers} == {(503, "ledger")}
    finally:
        postgres.start()
    assert [party.get(number).json()["refused"] for party in pair] == ["open", "open"]
    assert pair[1].http.post(path(number), content=body).status_code == 200
    assert pair[0].get(number).status_code == 200


@pytest.mark.process
def test_the_target_holds_over_both(pair, small, postgres):
    """Six rounds are out; of eight more, two at a time that follow on the same release, one passes, four times over.

    Then the target is reached, whoever asks.
    """
    for numbers in ((8, 9), (10, 11), (12, 13), (14, 15), (16, 17)):
        previous = last(postgres)
        for number in numbers:
            announced(pair, number, previous)
        calls = [
            lambda party=party, number=number, previous=previous: party.http.post(
                path(number), content=batch(small, number, previous)
            )
            for party, number in zip(pair, numbers, strict=True)
        ]
        answers = at_once(*calls)
        expected = [200, 403] if numbers[0] < 16 else [403, 403]
        assert sorted(answer.status_code for answer in answers) == expected
    assert {answer.json()["refused"] for answer in answers} == {"target"}
    assert postgres.rows("select count(*) from rounds where run = %s", RUN) == [(10,)]


@pytest.mark.process
def test_two_shufflers_notice_what_is_older_than_their_own_last_answer(pair, small, postgres):
    """The database as it was before the last release: while they run, and when they start; then the newest again."""
    (gone,) = postgres.rows("select max(round) from rounds where run = %s", RUN)[0]
    release = pair[0].get(gone).content
    assert pair[1].get(gone).content == release
    kept = postgres.rows("select * from rounds where run = %s and round = %s", RUN, gone)
    links = postgres.rows("select * from chain where run = %s order by number desc limit 3", RUN)
    postgres.rows("delete from rounds where run = %s and round = %s returning 1", RUN, gone)
    postgres.rows("delete from chain where run = %s and number >= %s returning 1", RUN, links[-1][1])
    for party in pair:
        for answer in (party.get(gone), party.get(1), party.http.get(f"/v1/runs/{RUN}/roster")):
            assert (answer.status_code, answer.json()["refused"]) == (503, "ledger")
    pair[0].kill()
    done = subprocess.run([APES, "shuffler", pair[0].folder / "shuffler.json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the ledger on PostgreSQL cannot be used: it is older than this shuffler's last answer" in done.stderr
    postgres.rows("insert into rounds values (%s, %s, %s, %s) returning 1", *kept[0])
    for link in links:
        postgres.rows("insert into chain values (%s, %s, %s) returning 1", *link)
    pair[0].start()
    assert [party.get(gone).content for party in pair] == [release, release]
