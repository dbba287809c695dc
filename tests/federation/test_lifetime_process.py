"""Two federations of the same people: two real vaults at a time, on one ledger, within one lifetime's limit."""

import socket
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from parties import APES, BUDGETS, OTHER_RUN, RUN, VaultProcess, agreed, opened, until

from apes.accounting.cost import Cost
from apes.federation.vault.folder import read_accounts
from apes.federation.vault.lifetime import Lifetime
from apes.shuffler.service.policy import Limits

pytestmark = pytest.mark.slow
TERMS = {RUN: agreed(rounds=1000), OTHER_RUN: agreed(rounds=1000, clip=0.2, limits=Limits(0.05, 1.2, 5))}
DELTA = 1e-6
COSTS = {run: Lifetime(delta=DELTA).costs(terms, BUDGETS) for run, terms in TERMS.items()}
# Too little for twenty rounds in both federations, but for those with budgets below 0.4.
EPSILON = Cost(6.5 * COSTS[RUN][int(BUDGETS.argmax())].mu_squared).epsilon(DELTA)


@pytest.fixture
def vaults(small, tmp_path):
    """A vault for each federation, by run."""
    made = {}
    for run, terms in TERMS.items():
        choices = {"runs": (run,), "ledger": "../person/ledger.sqlite"}
        limit = {"lifetime_epsilon": EPSILON, "lifetime_delta": DELTA}
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


def costs_after(rounds):
    """Each user's cost, by rounds that each run and user had."""
    squares = [sum(COSTS[run][user].mu_squared * rounds[run][user] for run in TERMS) for user in range(8)]
    return [Cost(square, sum(rounds[run][user] for run in TERMS) * 1e-15) for user, square in enumerate(squares)]


def test_the_limit_holds_across_federations(vaults, small):
    def take_part(run):
        return Counter(user for number in range(1, 21) for user in asked(vaults[run], run, number, small))

    assert [asked(vault, run, 1, small) for run, vault in vaults.items()] == 2 * [list(range(8))]
    with ThreadPoolExecutor(2) as both:
        rounds = dict(zip(TERMS, both.map(take_part, TERMS), strict=True))
    spent = costs_after(rounds)
    for user, cost in enumerate(spent):
        assert cost.epsilon(DELTA) <= EPSILON
        # Where somebody was missing, one more round would have passed the limit.
        for run in TERMS:
            beyond = Cost(cost.mu_squared + COSTS[run][user].mu_squared).epsilon(DELTA) > EPSILON
            assert beyond or rounds[run][user] == 20
    both_whole = [user for user in range(8) if min(rounds[run][user] for run in TERMS) == 20]
    assert both_whole == np.flatnonzero(BUDGETS < 0.4).tolist()
    # What was spent is the same whichever vault's folder is asked; what is left is counted in its own rounds.
    for run, vault in vaults.items():
        accounts = read_accounts(vault.folder)
        for user, account in enumerate(accounts):
            assert account.rounds == rounds[RUN][user] + rounds[OTHER_RUN][user]
            assert account.central.mu == pytest.approx(spent[user].mu_squared ** 0.5, rel=1e-9)
            assert account.central.epsilon <= account.central.limit == EPSILON
            own, left = COSTS[run][user].mu_squared, account.rounds_left
            assert Cost(spent[user].mu_squared + left * own).epsilon(DELTA) <= EPSILON
            assert Cost(spent[user].mu_squared + (left + 1) * own).epsilon(DELTA) > EPSILON


def spent_in(vault):
    return vault.rows("select * from spent order by user, epsilon, mu_squared")


def test_killed_between_writing_and_answering(vaults, small):
    """The other federation's vault goes on meanwhile; what was written is charged once, and handed out again."""
    vault, other = vaults.values()
    assert asked(vault, RUN, 1, small) == asked(other, OTHER_RUN, 1, small) == list(range(8))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(vault.socket))
        connection.sendall(vault.request(2))
        query = "select answer from answers where run = ? and round = ?"
        ((kept,),) = until(lambda: vault.rows(query, RUN, 2))
        vault.kill()
    before = spent_in(vault)
    assert sorted(row[-1] for row in before) == 8 * [1] + 8 * [2]
    assert asked(other, OTHER_RUN, 2, small) == list(range(8))
    vault.start()
    assert vault.sealed(2) == kept
    assert [row[-1] for row in spent_in(vault)] == 16 * [2]
    for user, account in enumerate(read_accounts(other.folder)):
        total = 2 * sum(COSTS[run][user].mu_squared for run in TERMS)
        assert account.central.mu == pytest.approx(total**0.5, rel=1e-9)


def test_a_vault_with_another_limit_does_not_start(vaults, small, tmp_path):
    choices = {"runs": ("ab" * 16,), "ledger": "../person/ledger.sqlite", "lifetime_epsilon": 2 * EPSILON}
    third = VaultProcess(tmp_path / "third", TERMS[RUN], small.keys, small.shuffler, **choices)
    done = subprocess.run([APES, "vault", third.folder / "vault.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "for ever" in done.stderr
    assert not third.socket.exists()
    assert asked(vaults[RUN], RUN, 1, small) == list(range(8))
