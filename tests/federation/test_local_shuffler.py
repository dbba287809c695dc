"""The shuffler that the tests keep in their own process, killed at every point where something is written or said."""

import pytest
from local_shuffler import AFTER_COMMIT, AFTER_WITNESS, BEFORE_ANSWER, BEFORE_COMMIT, BEFORE_WITNESS, LocalShuffler
from parties import RUN, honest, is_of, path

from apes.shuffler.service.witness import Witness
from apes.wire.frames import framed
from apes.wire.release import Release

pytestmark = pytest.mark.service
# What a batch writes, in order: the roster, and then the round.
WRITES = [(point, time) for time in (0, 1) for point in (BEFORE_COMMIT, AFTER_COMMIT, BEFORE_WITNESS, AFTER_WITNESS)]


@pytest.fixture
def shuffler(small, tmp_path):
    party = LocalShuffler(tmp_path / "s", small.policy, small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


def batch(small, users=range(8)):
    return b"".join(framed(honest(small, users)))


def test_it_is_passed_by_every_point(shuffler, small):
    assert shuffler.announce().status_code == 204
    del shuffler.passed[:]
    assert is_of(Release.decode(shuffler.http.post(path(), content=batch(small)).content), range(8))
    assert shuffler.passed == [*(point for point, _ in WRITES), BEFORE_ANSWER]


@pytest.mark.parametrize(("point", "time"), [*WRITES, (BEFORE_ANSWER, 0)])
def test_killed_anywhere_it_releases_a_round_once(shuffler, small, point, time):
    """What the ledger held when it was killed is what goes out; if it held nothing, the round is open."""
    body = batch(small)
    assert shuffler.announce().status_code == 204
    shuffler.crash_at(point, time)
    with pytest.raises(Exception, match="the connection has ended"):
        shuffler.http.post(path(), content=body)
    assert shuffler.has_crashed
    with pytest.raises(Exception, match="nobody listens"):
        shuffler.get()
    kept = shuffler.rows("select release from rounds")
    assert bool(kept) == (point == BEFORE_ANSWER or (time == 1 and point != BEFORE_COMMIT))
    shuffler.restart()
    others = shuffler.http.post(path(), content=batch(small, range(5)))
    if kept:
        assert (others.status_code, others.json()["refused"]) == (409, "round-closed")
        assert shuffler.get().content == kept[0][0]
        assert shuffler.http.post(path(), content=body).content == kept[0][0]
    else:
        assert is_of(Release.decode(others.content), range(5))
        assert shuffler.get().content == others.content
    ((last,),) = shuffler.rows("select max(number) from chain where run = ?", RUN)
    assert Witness(shuffler.folder / "witness.json").last(RUN)[0] == last


@pytest.mark.parametrize("point", [BEFORE_COMMIT, AFTER_COMMIT, BEFORE_WITNESS, AFTER_WITNESS])
def test_killed_while_a_round_is_announced_there_is_one_announcement(shuffler, point):
    shuffler.crash_at(point)
    with pytest.raises(Exception, match="the connection has ended"):
        shuffler.announce()
    is_kept = bool(shuffler.rows("select 1 from announcements"))
    assert is_kept == (point != BEFORE_COMMIT)
    shuffler.restart()
    other = shuffler.announce(weights=b"other weights")
    assert other.status_code == (403 if is_kept else 204)
    assert shuffler.announce().status_code == (204 if is_kept else 403)


def test_a_witness_that_cannot_be_written_lets_nothing_out(shuffler, small):
    """The ledger has the round, nobody hears of it; once the witness can be written, all hear the same."""
    body = batch(small)
    assert shuffler.announce().status_code == 204
    assert shuffler.http.get(f"/v1/runs/{RUN}/roster").status_code == 200
    shuffler.fail_at(BEFORE_WITNESS, OSError(28, "No space left on device"))
    for answer in (shuffler.http.post(path(), content=body), shuffler.get(), shuffler.http.post(path(), content=body)):
        assert (answer.status_code, answer.json()["refused"]) == (503, "ledger")
    ((release,),) = shuffler.rows("select release from rounds")
    shuffler.heal()
    assert shuffler.get().content == shuffler.http.post(path(), content=body).content == release


def test_a_caller_who_hangs_up_and_a_restart_in_the_middle_of_a_batch(shuffler, small):
    upload = shuffler.begin_upload(RUN, batch(small))
    upload.close()
    assert shuffler.refused("requests", "cut-short") == 1
    shuffler.begin_upload(RUN, batch(small))
    shuffler.restart()
    assert shuffler.get().json()["refused"] == "open"


def test_the_analyzers_own_client_talks_to_it(shuffler, small, tmp_path):
    client = shuffler.analyzers_client()
    (tmp_path / "batch").write_bytes(batch(small))
    assert client.release(RUN, 1) is None
    shuffler.announce()
    assert is_of(client.close_round(RUN, 1, tmp_path / "batch"), range(8))
    assert client.roster(RUN).budgets.size == 8
