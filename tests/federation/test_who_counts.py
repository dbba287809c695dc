"""Who hides whom: the shuffler against sybils, an analyzer that never stops, and one that subtracts.

Before, a card might bring as many senders as it liked, all of them counted as company, and each release told the sorted
budgets of those in it.
"""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from local_shuffler import LocalShuffler
from parties import RECEIPTS, RUN, announced, path, public
from scipy.stats import hypergeom

import apes
from apes.accounting.cost import Cost
from apes.wire.announcement import FIRST
from apes.wire.envelope import seal
from apes.wire.frames import framed
from apes.wire.packing import packed
from apes.wire.receipt import Receipt, check_next
from apes.wire.release import Release
from apes.wire.roster import ROSTER, Roster

pytestmark = pytest.mark.service
DIMENSIONS = 15


class Crowd:
    """Senders with keys and budgets, and a shuffler that takes their bits."""

    def __init__(self, small, folder, budgets, **changes):
        self.small, self.budgets = small, budgets
        self.keys = [Ed25519PrivateKey.generate() for _ in budgets]
        who = {"senders": tuple(map(public, self.keys)), "budgets": tuple(budgets)}
        policy = {"levels": 2, "rounds": 1000, "smallest_cohort": 1, "largest_card": 1, "colluding": None}
        self.policy = replace(small.policy, **(policy | who | changes))
        self.shuffler = LocalShuffler(folder, self.policy, small.shuffler)
        self.previous, self.number = FIRST, 0

    def send(self, users, bits, number=None):
        """Announce the next round, or this one, and send these users' bits; the shuffler's answer."""
        number = self.number + 1 if number is None else number
        choices = {"number": number, "previous": self.previous}
        self.shuffler.announce(**choices)
        to, shuffler = announced(self.policy.terms, **choices).binding, self.small.shuffler.public_key()
        sealed = [
            seal(packed(row, 2), self.budgets[user], to, self.keys[user], shuffler)
            for user, row in zip(users, bits, strict=True)
        ]
        answer = self.shuffler.http.post(path(number), content=b"".join(framed(sealed)))
        if answer.status_code == 200:
            self.previous, self.number = bytes.fromhex(Release.decode(answer.content).receipt.digest), number
        return answer


@pytest.fixture
def crowd(small, tmp_path):
    """Start the shuffler of a crowd; all are stopped at the end."""
    made = []

    def make(budgets, **changes):
        made.append(Crowd(small, tmp_path, budgets, **changes))
        made[-1].shuffler.start()
        return made[-1]

    yield make
    for each in made:
        each.shuffler.kill()
        each.shuffler.http.close()


def coins(rng, users):
    return rng.integers(0, 2, (users, DIMENSIONS), dtype=np.uint8)


# One victim and 29 senders of one card, made up by whoever runs the analyzer.
VICTIM, SYBILS = 0.9, 29


def test_sybils_hide_nobody(crowd):
    """A smallest cohort of 30 is not met by a victim and 29 made-up senders, where a card may have as many."""
    rng, budgets = np.random.default_rng(1), [VICTIM, *SYBILS * [0.05], *60 * [0.5]]
    hostile = crowd(budgets, smallest_cohort=30, largest_card=SYBILS)
    answer = hostile.send(range(1 + SYBILS), coins(rng, 1 + SYBILS))
    told = answer.json()
    assert (answer.status_code, told["refused"], told["accepted"], told["needed"]) == (422, "cohort", 30, 59)
    # With 30 who are honest besides, it is released, and charged as 30 of the largest budgets.
    assert hostile.send(range(59), coins(rng, 59)).status_code == 200


def test_what_sybils_bring_is_not_counted_as_company(crowd):
    """At the target that 30 users cost by themselves no round with a victim, 29 honest and 29 sybils is too much."""
    budgets, rng = [VICTIM, *SYBILS * [0.05], *SYBILS * [0.5]], np.random.default_rng(2)

    def cost(some):
        return apes.Exposure(np.array(some), DIMENSIONS, 2).cost(1e-3 * 1e-3 / (1e3 * 1000 * DIMENSIONS)).epsilon(1e-3)

    # The certificate that counted everybody, and the one that counts the honest.
    with_sybils, honest = cost(budgets), cost([VICTIM, VICTIM, *28 * [0.5]])
    assert with_sybils < 0.9 * honest
    choices = {"smallest_cohort": 30, "largest_card": SYBILS}
    hostile = crowd(budgets, target_epsilon=(with_sybils + honest) / 2, **choices)
    answer = hostile.send(range(59), coins(rng, 59))
    assert (answer.status_code, answer.json()["refused"]) == (403, "target")


def verified(crowd):
    """The receipts of all that a crowd's shuffler released, each checked with the one before it."""
    receipts, before = [], None
    for (release,) in crowd.shuffler.rows("select release from rounds where run = ? order by round", RUN):
        receipt = Receipt.read(Release.decode(release).receipt.line())
        check_next(receipt, before, RECEIPTS.public_key())
        receipts.append(receipt)
        before = receipt
    return receipts


def test_an_analyzer_that_never_stops_gets_nothing_beyond_the_target(crowd):
    """It asks on for 30 rounds, with whoever it likes, after a restart too; the receipts prove what it got."""
    rng, budgets = np.random.default_rng(3), [*10 * [0.1], *10 * [1.0]]
    delta_0 = 1e-3 * 1e-3 / (1e3 * 1000 * DIMENSIONS)
    one = apes.Exposure(np.array([*9 * [0.1], *11 * [1.0]]), DIMENSIONS, 2).cost(delta_0)
    target = one.times(7).epsilon(1e-3) * 1.001
    hostile = crowd(budgets, target_epsilon=target, smallest_cohort=5, colluding=0)
    answers = []
    for number in range(1, 31):
        users = sorted(rng.choice(20, rng.choice([8, 14, 20]), replace=False).tolist())
        answers.append(hostile.send(users, coins(rng, len(users)), number))
        if number == 15:
            hostile.shuffler.kill()
            hostile.shuffler.start()
    reasons = [answer.json()["refused"] for answer in answers if answer.status_code != 200]
    receipts, spent = verified(hostile), 0.0
    assert set(reasons) == {"target"}
    assert len(receipts) == 30 - len(reasons)
    roster = Roster.decode(hostile.shuffler.http.get(ROSTER.format(run=RUN)).content)
    roster.check(RECEIPTS.public_key())
    for receipt in receipts:
        assert receipt.roster == roster.digest
        largest = roster.budgets[::-1][: receipt.users - 1]
        spent += apes.Exposure(np.append(largest, roster.budgets[-1]), DIMENSIONS, 2).cost(delta_0).mu_squared
    assert 0 < Cost(spent).epsilon(1e-3) <= target
    # Not by much: one more round with everybody, the cheapest of all, would have been too much, and was refused.
    assert Cost(spent + one.mu_squared).epsilon(1e-3) > target
    assert hostile.send(range(20), coins(rng, 20)).json()["refused"] == "target"
    # Nor does another round number, an earlier one, or the same once more.
    for number in (1, 2, 31, 999):
        assert hostile.send(range(20), coins(rng, 20), number).status_code in (403, 409)
    assert verified(hostile) == receipts


USERS, LOUD, ROUNDS = 40, 20, 200
# Of 20 guesses, as many as are right by chance less than once in a million: P(18 or more of 20) = 2.7e-7.
MOST = 17


def told_by(release, budgets=None):
    """All numbers that a release tells, in one row; ``budgets`` are those that it used to tell."""
    receipt = release.receipt
    # The number of the round is public, and has more digits with time.
    size = len(release.encode()) - len(str(receipt.round))
    facts = [size, receipt.users, receipt.later, sum(receipt.refused.values())]
    facts += [((release.counts[:, 1] - receipt.users / 2) ** 2).sum()]
    return np.array(facts + ([] if budgets is None else [sum(budgets)]), dtype=float)


def found(rows, left_out, loud):
    """How many of the loud an attacker finds who subtracts rounds from one another, told that they are 20.

    Whoever is left out takes away what is theirs: of every number that a release tells the mean over the rounds without
    a user is compared with that over all rounds, in its own standard deviation; what falls most was loudest.
    """
    rows, left_out = np.array(rows), np.array(left_out)
    spread = rows.std(axis=0)
    moved = (rows - rows.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    scores = np.array([moved[left_out == user].mean(axis=0).sum() for user in range(USERS)])
    return len(set(np.argsort(scores, kind="stable")[:LOUD].tolist()) & set(loud))


def test_whose_budget_is_whose_cannot_be_had_by_subtracting(crowd):
    """200 rounds, one sender left out in each; half have budget 0.05, half 1, bits of updates at 0.3 of the clip."""
    assert hypergeom.sf(MOST, USERS, LOUD, LOUD) < 1e-6 < hypergeom.sf(MOST - 1, USERS, LOUD, LOUD)
    rng = np.random.default_rng(4)
    loud = rng.choice(USERS, LOUD, replace=False).tolist()
    budgets = [1.0 if user in loud else 0.05 for user in range(USERS)]
    hostile = crowd(budgets, smallest_cohort=10)
    inputs = rng.choice([-0.3, 0.3], (USERS, DIMENSIONS))
    releases, left_out = [], []
    for number in range(ROUNDS):
        gone = number % USERS
        users = [user for user in range(USERS) if user != gone]
        ones = (1 + np.tanh(np.array(budgets)[users, None] / 2) * inputs[users]) / 2
        answer = hostile.send(users, (rng.random(ones.shape) < ones).astype(np.uint8))
        releases.append(Release.decode(answer.content))
        left_out.append(gone)
    rows = [told_by(release) for release in releases]
    assert found(rows, left_out, loud) <= MOST
    # But for the counts, whoever is left out: the same numbers in every round.
    assert len({tuple(row[:4]) for row in rows}) == 1
    assert {release.receipt.roster for release in releases} == {releases[0].receipt.roster}
    # The same attack on releases as they were, with the budgets of those in them, finds all.
    before = [sum(own for user, own in enumerate(budgets) if user != gone) for gone in left_out]
    told = [told_by(release, [total]) for release, total in zip(releases, before, strict=True)]
    assert found(told, left_out, loud) > MOST


def test_the_roster_is_fixed_when_it_is_asked_for(crowd):
    """Members who come later change neither it nor who counts for what: they are charged at the largest budget."""
    rng, budgets = np.random.default_rng(5), [0.1, 0.2, 0.3, 0.4, 0.5]
    federation = crowd(budgets[:4])
    place = ROSTER.format(run=RUN)
    first = federation.shuffler.http.get(place).content
    assert Roster.decode(first).budgets.tolist() == budgets[:4]
    Roster.decode(first).check(RECEIPTS.public_key())
    federation.keys.append(Ed25519PrivateKey.generate())
    federation.budgets = budgets
    who = {"senders": tuple(map(public, federation.keys)), "budgets": tuple(budgets)}
    federation.shuffler.kill()
    federation.shuffler.write_policy(replace(federation.policy, **who))
    federation.shuffler.start()
    assert federation.shuffler.http.get(place).content == first
    receipt = Release.decode(federation.send(range(5), coins(rng, 5)).content).receipt
    assert (receipt.users, receipt.later, receipt.roster) == (5, 1, Roster.decode(first).digest)


def test_nobody_asks_for_the_roster_without_the_token(crowd):
    federation = crowd([0.1, 0.2, 0.3])
    answer = federation.shuffler.http.get(ROSTER.format(run=RUN), headers={"authorization": ""})
    assert (answer.status_code, answer.json()["refused"]) == (401, "token")
    unknown = federation.shuffler.http.get(ROSTER.format(run="00" * 16))
    assert (unknown.status_code, unknown.json()["refused"]) == (404, "wrong-run")
