"""Two federations of the same people: two real vaults at a time, on one ledger, within one lifetime's limit."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from parties import BUDGETS, OTHER_RUN, RUN, VaultProcess, agreed, opened

from apes.accounting.cost import Cost
from apes.federation.vault.folder import read_accounts
from apes.federation.vault.lifetime import Lifetime
from apes.shuffler.service.policy import Limits

pytestmark = pytest.mark.process
TERMS = {RUN: agreed(rounds=1000), OTHER_RUN: agreed(rounds=1000, clip=0.2, limits=Limits(0.05, 1.2, 5))}
DELTA = 1e-6


@pytest.fixture(scope="module")
def costs():
    """What a round costs each user, by run."""
    return {run: Lifetime(delta=DELTA).costs(terms, BUDGETS) for run, terms in TERMS.items()}


@pytest.fixture(scope="module")
def epsilon(costs):
    """Too little for twenty rounds in both federations, but for those with budgets below 0.4."""
    return Cost(6.5 * costs[RUN][int(BUDGETS.argmax())].mu_squared).epsilon(DELTA)


@pytest.fixture
def vaults(small, tmp_path, epsilon):
    """A vault for each federation, by run."""
    made = {}
    for run, terms in TERMS.items():
        choices = {"runs": (run,), "ledger": "../person/ledger.sqlite"}
        limit = {"lifetime_epsilon": epsilon, "lifetime_delta": DELTA}
        made[run] = VaultProcess(tmp_path / run[:4], terms, small.keys, small.shuffler, **choices, **limit)
    # At the same time: one of them makes the ledger.
    with ThreadPoolExecutor(2) as both:
        list(both.map(VaultProcess.start, made.values()))
    yield made
    for vault in made.values():
        vault.kill()


def asked(vault, run, number, small):
    """Users in the answer of a round; none if it is refused for what was granted."""
    answer = vault.ask(vault.request(number, run=run))
    if answer == b"\1allowance":
        return []
    assert answer[:1] == b"\0", answer
    return [small.policy.senders.index(sender.hex()) for sender in opened(answer[1:], small.shuffler)[2]]


def costs_after(rounds, costs):
    """Each user's cost, by rounds that each run and user had."""
    squares = [sum(costs[run][user].mu_squared * rounds[run][user] for run in TERMS) for user in range(8)]
    return [Cost(square, sum(rounds[run][user] for run in TERMS) * 1e-15) for user, square in enumerate(squares)]


def test_the_limit_holds_across_federations(vaults, small, costs, epsilon):
    def take_part(run):
        return Counter(user for number in range(1, 21) for user in asked(vaults[run], run, number, small))

    assert [asked(vault, run, 1, small) for run, vault in vaults.items()] == 2 * [list(range(8))]
    with ThreadPoolExecutor(2) as both:
        rounds = dict(zip(TERMS, both.map(take_part, TERMS), strict=True))
    spent = costs_after(rounds, costs)
    for user, cost in enumerate(spent):
        assert cost.epsilon(DELTA) <= epsilon
        # Where somebody was missing, one more round would have passed the limit.
        for run in TERMS:
            beyond = Cost(cost.mu_squared + costs[run][user].mu_squared).epsilon(DELTA) > epsilon
            assert beyond or rounds[run][user] == 20
    both_whole = [user for user in range(8) if min(rounds[run][user] for run in TERMS) == 20]
    assert both_whole == np.flatnonzero(BUDGETS < 0.4).tolist()
    # What was spent is the same whichever vault's folder is asked; what is left is counted in its own rounds.
    for run, vault in vaults.items():
        accounts = read_accounts(vault.folder)
        for user, account in enumerate(accounts):
            assert account.rounds == rounds[RUN][user] + rounds[OTHER_RUN][user]
            assert account.central.mu == pytest.approx(spent[user].mu_squared ** 0.5, rel=1e-9)
            assert account.central.epsilon <= account.central.limit == epsilon
            own, left = costs[run][user].mu_squared, account.rounds_left
            assert Cost(spent[user].mu_squared + left * own).epsilon(DELTA) <= epsilon
            assert Cost(spent[user].mu_squared + (left + 1) * own).epsilon(DELTA) > epsilon
