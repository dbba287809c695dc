"""Senders check that their reports count: there is a proof for whose do, and none for others or about others."""

import asyncio
import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from local_shuffler import AFTER_COMMIT, BEFORE_COMMIT, BEFORE_WITNESS, LocalShuffler
from local_vault import LocalVault
from parties import (
    ANALYZER,
    LEVELS,
    OTHER_RUN,
    RECEIPTS,
    RUN,
    RUNS,
    Shuffler,
    VaultProcess,
    agreed,
    announced,
    apes,
    frames_of,
    honest,
    path,
    public,
)

from apes.errors import DataError, ParameterError, ProtocolError
from apes.federation.inclusion import INCLUDED, MISSING, NO_PROOF, OPEN, check_reports, statuses
from apes.federation.invitation import AUTHORITY, INVITATION, TERMS, Invitation, authority_digest
from apes.federation.keys import Authority, write_secret
from apes.federation.trial.layout import HOST
from apes.federation.vault.ledger import read_sent
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.storage.files import write_bytes
from apes.storage.settings import write_settings
from apes.wire.frames import framed
from apes.wire.inclusion import Inclusion, InclusionRequest, report_digest
from apes.wire.release import Release, receipt_of

SERVICE = pytest.mark.service
SHUFFLER = RECEIPTS.public_key()


@pytest.fixture
def ledger(tmp_path):
    ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


@pytest.fixture
def rounds(small, ledger):
    return Rounds(small.policy, small.services_keys, ledger)


async def pieces(*data):
    for piece in data:
        yield piece


def release(rounds, reports, number=1, **choices):
    """The release of a round of these reports, as bytes."""
    signed = announced(rounds._policy.terms, number, **choices).signed(ANALYZER)
    asyncio.run(rounds.announce(RUN, number, pieces(signed)))
    return asyncio.run(rounds.close_round(RUN, number, pieces(*framed(reports))))


def asked(rounds, report, key, number=1):
    """The answer about a sealed report to who has this key, as bytes."""
    request = InclusionRequest.signed(bytes.fromhex(RUN), number, report_digest(report), key)
    return asyncio.run(rounds.inclusion(RUN, number, pieces(request)))


def is_proved(small, answer, report, number=1):
    return Inclusion.decode(answer).check(small.announced(number).binding, report_digest(report), SHUFFLER)


def test_who_counts_gets_a_proof_and_who_does_not_gets_none(rounds, small):
    reports = honest(small)
    # One of them under another budget than enrolled, which does not count.
    reports[2] = small.report(2, LEVELS[2], 0.5)
    released = Release.decode(release(rounds, reports))
    assert (released.receipt.users, released.receipt.refused) == (7, {"budget": 1})
    answers = [asked(rounds, report, key) for report, key in zip(reports, small.keys, strict=True)]
    assert [is_proved(small, *pair) for pair in zip(answers, reports, strict=True)] == [user != 2 for user in range(8)]
    # Whoever sees the network sees the same size in either case.
    assert len({len(answer) for answer in answers}) == 1
    assert all(Inclusion.decode(answer).receipt == released.receipt for answer in answers)
    places = {Inclusion.decode(answer).place for user, answer in enumerate(answers) if user != 2}
    assert places == set(range(7))
    # Sealed anew, the same levels are another report.
    assert not is_proved(small, asked(rounds, small.report(0, LEVELS[0]), small.keys[0]), reports[0])


def test_nobody_is_told_about_anothers_report(rounds, small):
    reports = honest(small)
    release(rounds, reports)
    none = Inclusion(receipt_of(asyncio.run(rounds.release(RUN, 1)))).encode()
    assert asked(rounds, reports[0], small.keys[1]) == none
    # A stranger is not even told what was released.
    with pytest.raises(RequestRefused, match="is no member"):
        asked(rounds, reports[0], Ed25519PrivateKey.generate())
    # The question's sender is whose key signed it.
    genuine = InclusionRequest.signed(bytes.fromhex(RUN), 1, report_digest(reports[0]), small.keys[0])
    forged = genuine[:-64] + small.keys[1].sign(genuine[:-64])
    for data in (forged, genuine[:-1], b"", genuine.replace(small.keys[0].public_key().public_bytes_raw(), bytes(32))):
        with pytest.raises(RequestRefused) as refused:
            asyncio.run(rounds.inclusion(RUN, 1, pieces(data)))
        assert (refused.value.status, refused.value.reason) == (403, "inclusion")
    assert is_proved(small, asyncio.run(rounds.inclusion(RUN, 1, pieces(genuine))), reports[0])


def test_answers_do_not_depend_on_the_order_in_which_reports_came(small, tmp_path):
    reports, found = honest(small), []
    for name, order in (("one", reports), ("other", reports[::-1])):
        ledger = ShufflerLedger(tmp_path / name)
        rounds = Rounds(small.policy, small.services_keys, ledger)
        found.append(
            [release(rounds, order), *(asked(rounds, *pair) for pair in zip(reports, small.keys, strict=True))]
        )
        # Another process on the same ledger says the same.
        again = Rounds(small.policy, small.services_keys, ledger)
        assert [asked(again, *pair) for pair in zip(reports, small.keys, strict=True)] == found[-1][1:]
        ledger.close()
    assert found[0] == found[1]


def test_a_shuffler_that_left_a_report_out_has_no_proof_of_it(rounds, small, ledger):
    reports = honest(small)
    release(rounds, reports[1:])
    left_out, key = reports[0], small.keys[0]
    assert not is_proved(small, asked(rounds, left_out, key), left_out)
    # It writes down afterwards that the report had come: what it then says does not fit what it signed.
    sender = key.public_key().public_bytes_raw()
    with ledger.transaction(RUN):
        ledger.keep_reports(RUN, 1, {sender: report_digest(left_out)})
    answer = asked(Rounds(small.policy, small.services_keys, ledger), left_out, key)
    with pytest.raises(ProtocolError, match=r"is damaged|as many leaves|below the root"):
        is_proved(small, answer, left_out)
    # Nor do the others' proofs serve.
    for report, other in zip(reports[1:], small.keys[1:], strict=True):
        with pytest.raises(ProtocolError, match="does not hold"):
            is_proved(small, asked(rounds, report, other), left_out)


def test_a_round_that_is_open_or_another_one(rounds, small):
    report = small.report(0)
    request = InclusionRequest.signed(bytes.fromhex(RUN), 1, report_digest(report), small.keys[0])
    for number, status, reason in ((1, 404, "open"), (2, 403, "inclusion"), (4, 404, "wrong-round")):
        with pytest.raises(RequestRefused) as refused:
            asyncio.run(rounds.inclusion(RUN, number, pieces(request)))
        assert (refused.value.status, refused.value.reason) == (status, reason)


def test_rounds_that_an_earlier_version_released_have_no_proofs(rounds, small, ledger):
    reports = honest(small)
    release(rounds, reports)
    with ledger.transaction(RUN):
        ledger._store.put("delete from reports where run = ?", [(RUN,)])
    assert not is_proved(small, asked(rounds, reports[0], small.keys[0]), reports[0])


def test_of_several_rounds_each_has_its_own_tree(rounds, small):
    first = honest(small)
    before = Release.decode(release(rounds, first)).receipt
    previous = bytes.fromhex(before.digest)
    second = honest(small, number=2, previous=previous)
    after = Release.decode(release(rounds, second, 2, previous=previous)).receipt
    assert before.included != after.included
    binding = small.announced(2, previous=previous).binding
    answer = Inclusion.decode(asked(rounds, second[3], small.keys[3], 2))
    assert answer.check(binding, report_digest(second[3]), SHUFFLER)
    assert is_proved(small, asked(rounds, first[3], small.keys[3]), first[3])
    assert not Inclusion.decode(asked(rounds, first[3], small.keys[3], 2)).is_included


def test_who_was_dismissed_may_still_ask_about_rounds_that_they_are_in(small, ledger):
    reports = honest(small)
    release(Rounds(small.policy, small.services_keys, ledger), reports)
    fewer = replace(small.policy, senders=small.policy.senders[:7], budgets=small.policy.budgets[:7])
    assert is_proved(small, asked(Rounds(fewer, small.services_keys, ledger), reports[7], small.keys[7]), reports[7])


@pytest.fixture
def shuffler(small, tmp_path):
    party = LocalShuffler(tmp_path / "shuffler", replace(small.policy, rounds=100, runs=RUNS), small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


@SERVICE
def test_senders_need_no_token_and_rubbish_is_refused(shuffler, small):
    reports = honest(small)
    shuffler.post(reports)
    request = InclusionRequest.signed(bytes.fromhex(RUN), 1, report_digest(reports[0]), small.keys[0])
    place, nobody = f"{path()}/inclusion", {"authorization": ""}
    answer = shuffler.http.post(place, content=request, headers=nobody)
    assert is_proved(small, answer.content, reports[0])
    for data, status, reason in ((bytes(len(request)), 403, "inclusion"), (request + b"\x00", 413, "size")):
        refused = shuffler.http.post(place, content=data, headers=nobody)
        assert (refused.status_code, refused.json()["refused"]) == (status, reason)
    # What senders may ask is this, and nothing else.
    assert shuffler.http.get(path(), headers=nobody).status_code == 401


@SERVICE
@pytest.mark.parametrize("point", [BEFORE_COMMIT, AFTER_COMMIT, BEFORE_WITNESS])
def test_killed_while_a_round_is_closed_its_proofs_are_there_or_the_round_is_open(shuffler, small, point):
    reports = honest(small)
    shuffler.announce()
    shuffler.crash_at(point, skip=1 if point is not BEFORE_WITNESS else 0)
    with pytest.raises(Exception, match=r"."):
        shuffler.http.post(path(), content=b"".join(framed(reports)))
    assert shuffler.has_crashed
    shuffler.restart()
    assert shuffler.post(reports).status_code == 200
    request = InclusionRequest.signed(bytes.fromhex(RUN), 1, report_digest(reports[0]), small.keys[0])
    assert is_proved(small, shuffler.http.post(f"{path()}/inclusion", content=request).content, reports[0])


def invitation_of(small, authority="ab" * 32, **changes):
    """The invitation that a vault of the tests has joined."""
    named = small.terms.digest, authority, public(small.shuffler), public(RECEIPTS), public(ANALYZER), "00" * 32
    return replace(Invitation(RUN, "superlink.example.org:9092", *named), **changes).signed(RECEIPTS)


def poster(shuffler):
    return lambda place, data: shuffler.http.post(place, content=data, headers={"authorization": ""})


def _digest(shuffler):
    return receipt_of(shuffler.get().content).digest


@SERVICE
def test_a_vaults_owner_learns_which_reports_counted(shuffler, small, tmp_path):
    vault = LocalVault(tmp_path / "vault", small.terms, small.keys, small.shuffler)
    vault.start()
    reports = frames_of(vault.sealed(1))
    invitation = invitation_of(small)
    assert len(read_sent(vault.ledger)) == 8
    open_now = statuses(tmp_path, invitation, poster(shuffler))
    assert [(each.user, each.status) for each in open_now] == [(user, OPEN) for user in range(8)]
    # The relay loses the report of user 5.
    shuffler.post([*reports[:5], *reports[6:]])
    found = statuses(tmp_path, invitation, poster(shuffler), 1)
    assert [each.status for each in found] == [MISSING if user == 5 else INCLUDED for user in range(8)]
    assert {each.reports for each in found if each.status == INCLUDED} == {7}
    assert {each.receipt for each in found if each.status == INCLUDED} == {_digest(shuffler)}
    # The next announcement names the release that the analyzer was given: another one than the sender's is noticed.
    vault.sealed(2, previous=bytes.fromhex(_digest(shuffler)))
    assert [each.status for each in statuses(tmp_path, invitation, poster(shuffler), 1)].count(INCLUDED) == 7
    other = LocalVault(tmp_path / "other" / "vault", small.terms, small.keys, small.shuffler)
    other.start()
    theirs = frames_of(other.sealed(1, run=OTHER_RUN))
    shuffler.post(theirs, run=OTHER_RUN)
    other.sealed(2, run=OTHER_RUN, previous=bytes(32))
    (why,) = {
        each.why for each in statuses(tmp_path / "other", invitation_of(small, run=OTHER_RUN), poster(shuffler), 1)
    }
    assert why == "the analyzer was given another receipt of this round"
    other.kill()
    # Receipts that another key signed prove nothing, and neither does silence.
    forged = statuses(tmp_path, replace(invitation, receipts_key="11" * 32), poster(shuffler), 1)
    assert {each.status for each in forged} == {NO_PROOF}
    shuffler.kill()

    def silent(place, data):
        raise ProtocolError("the shuffler does not answer")

    assert {each.why for each in statuses(tmp_path, invitation, silent, 1)} == {"the shuffler does not answer"}
    for other in (replace(invitation, analyzer_key="22" * 32), replace(invitation, run="33" * 16)):
        with pytest.raises(DataError, match="is not the one that this vault joined"):
            statuses(tmp_path, other, silent)
    with pytest.raises(DataError, match="no report in round 3 that"):
        statuses(tmp_path, invitation, silent, 3)
    vault.kill()


def test_where_and_which_round(tmp_path):
    with pytest.raises(ParameterError, match=r"^round must be"):
        check_reports(tmp_path, tmp_path, "localhost:1", 0)
    with pytest.raises(ParameterError, match=r"^shuffler must"):
        check_reports(tmp_path, tmp_path, "localhost")


@pytest.mark.process
def test_the_command_checks_over_tls_and_fails_when_a_report_is_missing(small, tmp_path):
    """Shuffler and vault as processes; the vault runs while its owner asks."""
    authority, terms = Authority(), agreed()
    party = Shuffler(tmp_path / "shuffler", small.policy, small.shuffler)
    certificate, private = authority.issue(HOST)
    write_bytes(party.folder / "tls.pem", certificate)
    write_secret(party.folder / "tls.key", private)
    party.tls.load_verify_locations(cadata=authority.certificate().decode())
    invitation = tmp_path / "invitation"
    write_bytes(invitation / AUTHORITY, authority.certificate())
    terms.write(invitation / TERMS)
    digest = authority_digest(authority.certificate(), invitation / AUTHORITY)
    write_settings(invitation / INVITATION, invitation_of(small, digest))
    vault = VaultProcess(tmp_path / "device" / "vault", terms, small.keys, small.shuffler)
    party.start()
    vault.start()
    command = "federation", "included", tmp_path / "device", "--invitation", invitation, "--shuffler"
    where = f"{HOST}:{party.port}"
    try:
        reports = frames_of(vault.sealed(1))
        assert party.post(reports[1:]).status_code == 200
        code, out, err = apes(*command, where, "--json")
        found = json.loads(out)["reports"]
        assert [each["status"] for each in found] == [MISSING, *([INCLUDED] * 7)]
        assert (code, err) == (1, "apes: NOT EVERY REPORT IS PROVED TO COUNT\n")
        party.kill()
        code, out, err = apes(*command, where)
        assert code == 1
        assert "no proof" in out
    finally:
        vault.kill()
        party.http.close()
