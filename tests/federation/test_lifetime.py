"""The filter on the device: what a user's rounds cost centrally at most, over all federations, and where they end."""

import functools
import math
from collections import Counter

import numpy as np
import pytest
from levels import sampled
from local_vault import Crash, LocalVault
from parties import ANALYZER, BUDGETS, LIMITS, OTHER_RUN, RUN, agreed, announced, apes, opened, population

from apes import People
from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure
from apes.accounting.victims import Victims
from apes.errors import DataError, ParameterError
from apes.federation.vault.charges import Grant, central_cost
from apes.federation.vault.folder import read_accounts
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import VaultLedger, read_ledger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.vault import Request, Vault, VaultRefusal, VaultRefused, charges_of
from apes.shuffler.service.policy import Limits

pytestmark = pytest.mark.service

# Two federations of the same people, with different terms.
FIRST = agreed(rounds=1000)
SECOND = agreed(rounds=1000, clip=0.2, limits=Limits(0.05, 1.2, 5))
DELTA = 1e-6


def lifetime_of(rounds):
    """A limit that so many rounds of the first federation cost the user with the largest budget."""
    (cost,) = Lifetime().costs(FIRST, np.array([BUDGETS.max()]))
    return Lifetime(Cost(rounds * cost.mu_squared).epsilon(DELTA), DELTA)


@pytest.fixture
def people(small):
    return Holdings(People(**population(), budgets=BUDGETS), small.keys, np.full(8, np.inf))


@pytest.fixture
def open_two(small, people, tmp_path):
    """Open a vault for each federation, on the same ledger, by the limits that their owner set."""
    made = []

    def make(first, second):
        for lifetime in (first, second):
            made.append(VaultLedger(tmp_path / "ledger.sqlite", 8, lifetime))
        runs = ((FIRST, RUN), (SECOND, OTHER_RUN))
        return [
            Vault(terms, (run,), people, small.shuffler.public_key(), ANALYZER.public_key(), ledger, terms.model)
            for (terms, run), ledger in zip(runs, made, strict=True)
        ]

    yield make
    for ledger in made:
        ledger.close()


def ask(vault, number):
    """The answer of a round; empty if it is refused for what was granted."""
    weights = bytes(4 * vault.terms.dimensions)
    signed = announced(vault.terms.digest, number, vault.runs[0], weights).signed(ANALYZER)
    request = Request(signed, weights)
    try:
        return vault.answer(request)
    except VaultRefused as refused:
        return {VaultRefusal.ALLOWANCE: b""}[refused.reason]


def users_in(answer, small):
    senders = opened(answer, small.shuffler)[2] if answer else []
    return [small.policy.senders.index(sender.hex()) for sender in senders]


EXTREME = [np.full(3, 1.0), np.array([0.05, 1.0, 1.0]), np.full(4, 1.0), np.full(3, np.nextafter(1.0, 0))]
RANDOM = [np.random.default_rng(1).uniform(0.05, 1, size) for size in (3, 3, 4, 6, 12)]
SPARSE = {"framework": "s-apes-first", "keep": 0.2}
# A sparse round has a curve for every number of coordinates that may come, each with a certificate of its own.
COHORTS = [
    *(pytest.param({}, budgets) for budgets in EXTREME),
    *sampled([pytest.param({}, budgets) for budgets in RANDOM], 1),
    pytest.param(SPARSE, EXTREME[1], marks=pytest.mark.service),
    *(pytest.param(SPARSE, budgets, marks=pytest.mark.exhaustive) for budgets in [EXTREME[0], *EXTREME[2:], *RANDOM]),
]


@functools.cache
def worst_and_own(sparse):
    """Terms, their accountant, and what a round costs somebody with 0.4 at most."""
    terms = agreed(**(SPARSE if sparse else {}))
    accountant, (own,) = terms.terms.accountant(1, settled=False), Lifetime().costs(terms, np.array([0.4]))
    assert terms.limit.mu_squared == terms.rounds * accountant.cost(terms.worst).mu_squared
    return terms, accountant, own


@pytest.mark.parametrize(("choice", "budgets"), COHORTS)
def test_no_cohort_that_may_come_costs_more(choice, budgets):
    """Cohorts of all sizes and budgets within the limits, the extreme ones included."""
    terms, accountant, own = worst_and_own(choice == SPARSE)
    exposure = terms.terms.exposure(0, budgets, terms.dimensions)
    assert accountant.cost(exposure).times(terms.rounds).fits(terms.limit)
    # The victim with 0.4 is one of them, and the others are as they are.
    mine = terms.terms.exposure(0, np.append(budgets[1:], 1.0), terms.dimensions)
    assert mine.cost(1e-15 / max(mine.uses), victims=Victims(0.4)).mu_squared <= own.mu_squared * (1 + 1e-9)


def test_costs_are_those_of_the_worst_cohort():
    costs = Lifetime(delta=DELTA).costs(FIRST, BUDGETS)
    for budget, cost in zip(BUDGETS.tolist(), costs, strict=True):
        # A million rounds of 15 coordinates leave a thousandth of delta uncovered.
        assert cost == Exposure(np.full(3, 1.0), 15, 16).cost(1e-3 * DELTA / 1e6 / 15, victims=Victims(budget))
    assert [cost.mu_squared for cost in costs] != sorted(cost.mu_squared for cost in costs)
    assert np.argsort([cost.mu_squared for cost in costs]).tolist() == np.argsort(BUDGETS).tolist()
    with pytest.raises(ParameterError, match=r"budgets must be in \[0\.05, 1\]"):
        Lifetime().costs(FIRST, np.array([1.1]))


@pytest.mark.parametrize("smallest", [0.6, pytest.param(0.05, marks=pytest.mark.exhaustive)])
def test_many_budgets_are_rounded_up(smallest):
    """To a few, spread over all that the terms take: a certificate each."""
    budgets = np.random.default_rng(2).uniform(smallest, 1, 200)
    few = [0, 50, 199, int(budgets.argmin()), int(budgets.argmax())]
    rounded, exact = Lifetime().costs(FIRST, budgets), Lifetime().costs(FIRST, budgets[few])
    assert len({cost.mu_squared for cost in rounded}) <= 32
    for user, cost in zip(few, exact, strict=True):
        assert cost.mu_squared <= rounded[user].mu_squared <= 1.25 * cost.mu_squared


def test_totals_add_up_over_federations(open_two):
    first, second = open_two(Lifetime(), Lifetime())
    for vault, numbers in ((first, (1, 2, 3)), (second, (1, 2)), (first, (4,))):
        assert all(ask(vault, number) for number in numbers)
    costs = [Lifetime().costs(terms, BUDGETS) for terms in (FIRST, SECOND)]
    for user, rounds in enumerate(second.ledger.spending()):
        assert rounds.total() == 6
        total = costs[0][user].times(4) + costs[1][user].times(2)
        assert central_cost(rounds).mu_squared == pytest.approx(total.mu_squared, rel=1e-12)
        # A delta is far below what would count as nearly nothing otherwise.
        assert total.delta > 0
        assert central_cost(rounds).delta == pytest.approx(total.delta, rel=1e-12, abs=0)


BOTH_OR_THE_FIRST = [pytest.param(limited, marks=pytest.mark.service) for limited in ((True, True), (True, False))]


@pytest.mark.parametrize("limited", [(False, True), *BOTH_OR_THE_FIRST], ids=str)
def test_the_limit_holds_over_two_federations(open_two, small, people, limited):
    """Each round once in one federation and once in the other, until nobody is left who takes part."""
    lifetime = lifetime_of(2.5)
    vaults = open_two(*(lifetime if is_limited else Lifetime() for is_limited in limited))
    charges = [charges_of(terms, people, lifetime) for terms in (FIRST, SECOND)]
    spent, present = [Counter() for _ in BUDGETS], list(range(8))
    # Those with the smallest budgets could go on for hundreds of rounds.
    for number in range(1, 16):
        for vault, charge in zip(vaults, charges, strict=True):
            fitting = []
            for user in range(8):
                after = central_cost(spent[user] + Counter({charge[user]: 1}))
                if after.epsilon(DELTA) <= lifetime.epsilon:
                    fitting.append(user)
                    spent[user][charge[user]] += 1
            answer = ask(vault, number)
            assert users_in(answer, small) == fitting
            present = fitting
    assert 0 < len(present) < 8
    assert vaults[0].ledger.spending() == spent
    for user, rounds in enumerate(spent):
        assert central_cost(rounds).epsilon(DELTA) <= lifetime.epsilon
        if user not in present:
            beyond = central_cost(rounds + Counter({charges[0][user]: 1}))
            assert beyond.epsilon(DELTA) > lifetime.epsilon


def test_rounds_left_are_those_the_vault_answers(open_two, small, people):
    lifetime = lifetime_of(7.5)
    first, second = open_two(lifetime, lifetime)
    assert ask(second, 1)
    charges = charges_of(FIRST, people, lifetime)
    left = [
        Grant(math.inf, lifetime.limit).rounds_left(rounds, charge)
        for rounds, charge in zip(first.ledger.spending(), charges, strict=True)
    ]
    answers = [users_in(ask(first, number), small) for number in range(1, 26)]
    counted = Counter(user for users in answers for user in users)
    assert [counted[user] for user in range(8)] == [min(rounds, 25) for rounds in left]
    assert min(left) < 10 < 25 < max(left)


@pytest.fixture
def shared(small, tmp_path):
    """A vault for each federation on one ledger, opened by their settings, with one limit of their owner's."""
    limit = lifetime_of(5.5)
    made = {}
    for terms, run in ((FIRST, RUN), (SECOND, OTHER_RUN)):
        choices = {"runs": (run,), "ledger": "../person/ledger.sqlite", "lifetime_epsilon": limit.epsilon}
        made[run] = LocalVault(tmp_path / run[:4], terms, small.keys, small.shuffler, **choices)
        made[run].start()
    yield made
    for vault in made.values():
        vault.kill()


def test_stopped_between_writing_and_answering(shared):
    """The other federation's vault goes on meanwhile; what was written is charged once, and handed out again."""
    vault, other = shared.values()
    assert vault.sealed(1)
    assert other.sealed(1, run=OTHER_RUN)
    # Its witness hears of the other's answer.
    assert vault.sealed(1)
    vault.fail("after the ledger's commit")
    with pytest.raises(Crash):
        vault.ask(vault.request(2))
    rounds = "select rounds from spent order by rounds"
    assert vault.rows(rounds) == 8 * [(1,)] + 8 * [(2,)]
    ((kept,),) = vault.rows("select answer from answers where run = ? and round = 2", RUN)
    assert other.sealed(2, run=OTHER_RUN)
    vault.restart()
    assert vault.sealed(2) == kept
    assert vault.rows(rounds) == 16 * [(2,)]
    costs = [Lifetime().costs(terms, BUDGETS) for terms in (FIRST, SECOND)]
    for account, first, second in zip(read_accounts(other.folder), *costs, strict=True):
        assert account.rounds == 4
        assert account.central.mu == pytest.approx((2 * first.mu_squared + 2 * second.mu_squared) ** 0.5, rel=1e-9)


def test_a_vault_with_another_limit_does_not_start(shared, small, tmp_path):
    choices = {"runs": ("ab" * 16,), "ledger": "../person/ledger.sqlite", "lifetime_epsilon": 77.0}
    third = LocalVault(tmp_path / "third", FIRST, small.keys, small.shuffler, **choices)
    code, output, errors = apes("vault", third.folder / "vault.json")
    assert (code, output) == (2, "")
    assert "for ever" in errors
    assert not third.socket.exists()
    assert shared[RUN].sealed(1)


def test_nobody_left_is_a_refusal_that_costs_nothing(open_two):
    vaults = open_two(Lifetime(1e-3, DELTA), Lifetime())
    assert [ask(vault, 1) for vault in vaults] == [b"", b""]
    assert [rounds.total() for rounds in vaults[0].ledger.spending()] == 8 * [0]


def test_whoever_sets_a_limit_sets_it_for_all(tmp_path):
    path = tmp_path / "ledger.sqlite"
    early = VaultLedger(path, 8, Lifetime())
    assert early.lifetime == Lifetime()
    VaultLedger(path, 8, Lifetime(3.0, 1e-5)).close()
    assert early.lifetime == Lifetime(3.0, 1e-5)
    early.close()
    assert read_ledger(path, 8, Lifetime())[1] == Lifetime(3.0, 1e-5)
    for other in (Lifetime(4.0, 1e-5), Lifetime(3.0, 1e-6)):
        for opened_by in (VaultLedger, read_ledger):
            with pytest.raises(DataError, match=r"lifetime epsilon is 3 at delta 1e-05 for ever"):
                opened_by(path, 8, other)
    VaultLedger(path, 8, Lifetime(3.0, 1e-5)).close()


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", True])
def test_a_limit_is_positive(epsilon):
    with pytest.raises(ParameterError, match="lifetime_epsilon"):
        Lifetime(epsilon)


@pytest.mark.parametrize("delta", [0, -1, math.nan, 0.6, 1e-101, "1", None])
def test_its_delta_is_in_range(delta):
    with pytest.raises(ParameterError, match="lifetime_delta"):
        Lifetime(1.0, delta)


def test_limits_are_what_was_agreed():
    assert FIRST.limits == LIMITS
    assert (FIRST.worst.budgets == np.full(3, 1.0)).all()
    assert (SECOND.worst.budgets == np.full(5, 1.2)).all()
