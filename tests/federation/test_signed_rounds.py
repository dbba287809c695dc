"""Signed rounds: vaults answer the analyzer's announcements alone, a round is of one of them.

Before, whoever reached a vault could ask it: the first to ask chose the weights, asking for the last round made it
answer `past` for ever, and the shuffler took reports on as many models as there were senders. Every test here failed.
"""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from local_shuffler import LocalShuffler
from local_vault import LocalVault
from parties import (
    ANALYZER,
    BUDGETS,
    EXTREME_WEIGHTS,
    OTHER_RUN,
    RUN,
    agreed,
    announced,
    counts_of,
    frames_of,
    opened,
    path,
    public,
)

from apes.wire.release import Release

pytestmark = pytest.mark.service
ROUNDS = 50
RUNS = (RUN, OTHER_RUN, *(f"{number:032x}" for number in range(1, 20)))
STRANGER = Ed25519PrivateKey.generate()
OVERFLOWING, NINES, ZEROS = EXTREME_WEIGHTS["3e38"].astype("<f4").tobytes(), np.full(15, 9, "<f4").tobytes(), bytes(60)


@pytest.fixture(scope="module")
def terms():
    return agreed(rounds=ROUNDS)


@pytest.fixture(scope="module")
def vaults(small, terms, tmp_path_factory):
    """Two silos of eight users each."""
    keys = [small.keys, [Ed25519PrivateKey.generate() for _ in range(8)]]
    made = []
    for some in keys:
        made.append(LocalVault(tmp_path_factory.mktemp("v"), terms, some, small.shuffler, runs=RUNS))
        made[-1].keys = some
        made[-1].start()
    yield made
    for vault in made:
        vault.kill()


@pytest.fixture(scope="module")
def shuffler(small, terms, vaults, tmp_path_factory):
    senders = tuple(public(key) for vault in vaults for key in vault.keys)
    who = {"senders": senders, "budgets": 2 * small.policy.budgets}
    policy = replace(small.policy, terms=terms.digest, rounds=ROUNDS, runs=RUNS, **who)
    party = LocalShuffler(tmp_path_factory.mktemp("shuffler"), policy, small.shuffler)
    party.start()
    yield party
    party.kill()
    party.http.close()


def word(vault, *arguments, **changes):
    return vault.ask(vault.request(*arguments, **changes))[:20]


def close(shuffler, run, *answers):
    """The release of the reports in these answers, on the round that was announced."""
    answer = shuffler.http.post(path(run=run), content=b"".join(answers))
    assert answer.status_code == 200, answer.text
    return Release.decode(answer.content)


def test_a_stranger_who_asks_first_poisons_nothing(small, vaults, shuffler):
    """With weights of 9, or for the last round: one word, and the next round is of the analyzer's weights."""
    run = shuffler.next_run()
    for vault in vaults:
        assert word(vault, 1, NINES, run=run, key=STRANGER) == b"\1announcement"
        assert word(vault, ROUNDS, run=run, key=STRANGER) == b"\1announcement"
        # Nor does it help to send other weights beside the analyzer's announcement.
        signed = vault.request(1, ZEROS, run=run)
        assert vault.ask(signed[: -len(ZEROS)] + NINES) == b"\1weights"
    shuffler.announce(run=run)
    answers = [vault.sealed(1, run=run) for vault in vaults]
    release = close(shuffler, run, *answers)
    levels = np.concatenate([opened(answer, small.shuffler)[0] for answer in answers])
    assert (release.counts == counts_of(levels)).all()
    assert (release.receipt.users, release.receipt.refused) == (16, {})
    assert release.receipt.announcement == announced(shuffler.terms, run=run).digest.hex()


def test_reports_on_several_models_do_not_count_together(vaults, shuffler):
    """An analyzer that sends weights that overflow to all but its victims, announced and signed as well."""
    run, before = shuffler.next_run(), shuffler.refused("reports", "announcement")
    shuffler.announce(run=run)
    victims, others = vaults[0].sealed(1, run=run), vaults[1].sealed(1, run=run, weights=OVERFLOWING)
    release = close(shuffler, run, victims, others)
    assert release.receipt.users == 8
    assert release.receipt.refused == {"announcement": 8}
    assert shuffler.refused("reports", "announcement") == before + 8
    # Whoever answered one announcement of a round does not answer another.
    assert word(vaults[1], 1, ZEROS, run=run) == b"\1announcement"
    assert word(vaults[0], 1, OVERFLOWING, run=run) == b"\1announcement"


def test_a_round_of_which_nothing_was_announced_is_not_opened(vaults, shuffler):
    run, before = shuffler.next_run(), shuffler.refused("requests", "announcement")
    answer = shuffler.http.post(path(run=run), content=vaults[0].sealed(1, run=run))
    assert (answer.status_code, answer.json()["refused"]) == (403, "announcement")
    assert "is not announced" in answer.json()["message"]
    assert shuffler.refused("requests", "announcement") == before + 1
    assert shuffler.get(run=run).json()["refused"] == "open"


def refused(answer):
    assert (answer.status_code, answer.json()["refused"]) == (403, "announcement"), answer.text
    return answer.json()["message"]


def test_a_round_is_announced_once(shuffler):
    """Also by an analyzer that changes its mind, and after a restart."""
    run, before = shuffler.next_run(), shuffler.refused("requests", "announcement")
    assert shuffler.announce(run=run).status_code == 204
    assert shuffler.announce(run=run).status_code == 204
    assert "announced otherwise before" in refused(shuffler.announce(run=run, weights=NINES))
    assert shuffler.refused("requests", "announcement") == before + 1
    shuffler.kill()
    shuffler.start()
    assert "announced otherwise before" in refused(shuffler.announce(run=run, weights=NINES))
    assert shuffler.announce(run=run).status_code == 204
    assert shuffler.rows("select count(*) from announcements where run = ?", run) == [(1,)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": STRANGER}, "not signed by the analyzer"),
        ({"previous": bytes(range(32))}, "does not follow on a run without a release"),
    ],
    ids=["stranger", "history"],
)
def test_what_is_not_taken_as_an_announcement(shuffler, changes, said):
    run = shuffler.next_run()
    assert said in refused(shuffler.announce(run=run, **changes))
    assert shuffler.rows("select count(*) from announcements where run = ?", run) == [(0,)]


def test_an_announcement_of_another_round_run_or_terms(shuffler):
    run, place = shuffler.next_run(), f"{path()}/announcement"
    for other in (announced(shuffler.terms, 2), announced(shuffler.terms, run=run), announced("ab" * 32)):
        assert "not of round 1 of this run" in refused(shuffler.http.put(place, content=other.signed(ANALYZER)))
    for data in (b"", b"x", bytes(186), bytes(185)):
        assert refused(shuffler.http.put(place, content=data))
    answer = shuffler.http.put(place, content=bytes(187))
    assert (answer.status_code, answer.json()["refused"]) == (413, "size")


def test_releases_are_a_chain(vaults, shuffler):
    """The next announcement names the release before it; the receipts of a run follow on one another."""
    run, previous, digests = shuffler.next_run(), bytes(32), []
    for number in (1, 2, 4):
        choices = {"number": number, "run": run, "previous": previous}
        if number > 1:
            assert "does not follow on the release" in refused(shuffler.announce(number, run))
        assert shuffler.announce(**choices).status_code == 204
        answer = shuffler.http.post(path(number, run), content=vaults[0].sealed(**choices))
        receipt = Release.decode(answer.content).receipt
        assert receipt.previous == previous.hex()
        previous = bytes.fromhex(receipt.digest)
        digests.append(receipt.digest)
    assert len(set(digests)) == 3
    # A round that was left out is over, for the shuffler as for the vault.
    assert "does not follow on the release of round 4" in refused(shuffler.announce(3, run, previous=previous))
    assert word(vaults[0], 3, run=run, previous=previous) == b"\1past"


def test_a_report_under_another_budget_than_enrolled_does_not_count(small, vaults, shuffler):
    run = shuffler.next_run()
    shuffler.announce(run=run, number=1)
    other = small.report(0, budget=0.05, run=run, terms=shuffler.terms)
    release = Release.decode(shuffler.post([other, *frames_of(vaults[1].sealed(1, run=run))], run=run).content)
    assert release.receipt.refused == {"budget": 1}
    assert BUDGETS[0] != 0.05
