"""A shuffler whose ledger is gone, another's or old does not start: it would release again what it released."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest
from local_shuffler import LocalShuffler
from parties import APES, RUN, Shuffler, honest, is_of, path

from apes.errors import DataError
from apes.shuffler.service.ledger import Closed, ShufflerLedger
from apes.shuffler.service.witness import new_witness
from apes.wire.frames import framed
from apes.wire.release import Release, receipt_of

pytestmark = pytest.mark.service


@pytest.fixture
def shuffler(small, tmp_path):
    """A shuffler in this process that released a round and stopped; its ledger from before is in ``backup``."""
    party = LocalShuffler(tmp_path / "s", small.policy, small.shuffler)
    party.start()
    party.kill()
    put_away(party, tmp_path / "backup")
    put_back(party, tmp_path / "backup")
    yield from after_a_round(party, small)


@pytest.fixture
def process(small, tmp_path):
    """A real shuffler that released a round and stopped."""
    yield from after_a_round(Shuffler(tmp_path / "s", small.policy, small.shuffler), small)


def after_a_round(party, small):
    party.start()
    party.roster = party.http.get(f"/v1/runs/{RUN}/roster").content
    party.released = party.post(honest(small)).content
    assert is_of(Release.decode(party.released), range(8))
    party.kill()
    yield party
    party.kill()
    party.http.close()


def refusal(shuffler):
    """What it refuses to start with."""
    with pytest.raises(DataError) as refused:
        shuffler.start()
    return str(refused.value)


def put_away(shuffler, place):
    place.mkdir()
    for file in shuffler.folder.glob("ledger.sqlite*"):
        file.rename(place / file.name)


def put_back(shuffler, place):
    for file in shuffler.folder.glob("ledger.sqlite*"):
        file.unlink()
    for file in place.iterdir():
        shutil.copy2(file, shuffler.folder / file.name)


def goes_on(shuffler, small):
    """Whether roster and release are what they were, another batch gets nothing, and there is a next round."""
    shuffler.start()
    same = shuffler.get().content == shuffler.released
    same &= shuffler.http.get(f"/v1/runs/{RUN}/roster").content == shuffler.roster
    other = shuffler.http.post(path(), content=b"".join(framed(honest(small, range(1, 8)))))
    previous = bytes.fromhex(receipt_of(shuffler.released).digest)
    following = shuffler.post(honest(small, number=2, previous=previous), 2, previous=previous)
    return same and (other.status_code, following.status_code) == (409, 200)


def test_a_ledger_that_is_gone_or_old_is_noticed(shuffler, small, tmp_path):
    """An attack: round 1 was released again, without the victim, and a second roster was signed, without the dismissed.

    Then the newest is put back, and the shuffler goes on.
    """
    put_away(shuffler, tmp_path / "newest")
    few = replace(small.policy, senders=small.policy.senders[1:], budgets=small.policy.budgets[1:])
    shuffler.write_policy(few)
    assert "ledger.sqlite is gone: put the newest copy back" in refusal(shuffler)
    assert not shuffler.ledger.exists()
    put_back(shuffler, tmp_path / "backup")
    assert "it is older than this shuffler's last answer, it lacks what was announced or released" in refusal(shuffler)
    # One that went on, unseen by this shuffler: another roster, announcement and release of the same round.
    forked = ShufflerLedger(shuffler.ledger)
    forked.roster(RUN, few.members)
    forked.announce(RUN, 1, b"another")
    forked.close_round(RUN, 1, Closed(b"another", b"another"), [])
    forked.close()
    assert "it is older than this shuffler's last answer, it went on from an old copy" in refusal(shuffler)
    put_back(shuffler, tmp_path / "newest")
    shuffler.write_policy(small.policy)
    assert goes_on(shuffler, small)


def test_without_its_witness_or_with_anothers_it_does_not_start(shuffler):
    witness = shuffler.folder / "witness.json"
    kept = witness.read_bytes()
    witness.unlink()
    assert "witness.json, which says what the ledger must hold: put the newest copy back" in refusal(shuffler)
    new_witness(witness)
    assert "it is not this shuffler's ledger" in refusal(shuffler)
    witness.write_text(json.dumps({"ledger": "0a", "runs": None}))
    assert "ledger must be 32 hexadecimal digits" in refusal(shuffler)
    witness.write_bytes(kept)
    shuffler.start()
    assert shuffler.get().content == shuffler.released


@pytest.mark.process
def test_killed_between_ledger_and_witness_it_goes_on(process, small):
    """The witness cannot be written, the ledger can: nothing leaves. Then it is killed; what it hands out is what it
    wrote down.
    """
    witness = process.folder / "witness.json"
    kept, previous = witness.read_bytes(), bytes.fromhex(receipt_of(process.released).digest)
    process.start()
    assert process.announce(2, previous=previous).status_code == 204
    seen = witness.read_bytes()
    assert seen != kept
    witness.unlink()
    # Nobody, not even root, puts a file in the place of a folder that is not empty.
    (witness / "in the way").mkdir(parents=True)
    body = b"".join(framed(honest(small, number=2, previous=previous)))
    for answer in (process.http.post(path(2), content=body), process.get(2)):
        assert (answer.status_code, answer.json()["refused"]) == (503, "ledger")
    ((release,),) = process.rows("select release from rounds where run = ? and round = 2", RUN)
    process.kill()
    shutil.rmtree(witness)
    # Nor does it start without its witness, and says so in one line.
    command = [APES, "shuffler", process.folder / "shuffler.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "witness.json, which says what the ledger must hold: put the newest copy back" in done.stderr
    witness.write_bytes(seen)
    process.start()
    assert witness.read_bytes() != seen
    assert process.http.post(path(2), content=body).content == process.get(2).content == release
