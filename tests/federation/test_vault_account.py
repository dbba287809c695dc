"""What the users of a vault have spent: the command beside a vault, and the count of rounds that are left.

Beside two real vaults on one ledger it is asked in test_lifetime_process.py.
"""

import json
import math
from collections import Counter

import numpy as np
import pytest
from local_vault import LocalVault
from parties import BUDGETS, OTHER_RUN, VaultProcess, agreed, apes

from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure
from apes.accounting.victims import Victims
from apes.errors import DataError
from apes.federation.vault.charges import Charge, Grant, local_epsilon
from apes.federation.vault.folder import read_accounts
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.lifetime import Lifetime

# Of the terms: nobody set a limit, which would have a delta of its own.
DELTA = agreed().terms.delta


def shown(folder):
    """What the command prints."""
    code, output, errors = apes("federation", "spent", folder, "--json")
    assert code == 0, errors
    return json.loads(output)["users"]


@pytest.fixture
def vault(small, tmp_path):
    # Everybody grants what three rounds cost the user with the largest budget.
    party = LocalVault(tmp_path, small.terms, small.keys, small.shuffler, allowance=3 * (15 * BUDGETS.max()))
    yield party
    party.kill()


def expected_of(vault, rounds):
    """The accounts after so many rounds, by the sums and laws themselves."""
    granted, accounts = 3 * (15 * BUDGETS.max()), []
    for budget in BUDGETS.tolist():
        cost = Exposure(np.full(3, 1.0), 15, 16).cost(1e-15 / 15, victims=Victims(budget)).times(rounds)
        central = {"mu": math.sqrt(cost.mu_squared), "epsilon": cost.epsilon(DELTA), "delta": DELTA}
        left = int(granted / (15 * budget) + 1e-9) - rounds
        account = {"budget": budget, "rounds": rounds, "spent": rounds * (15 * budget), "allowance": granted}
        accounts.append(account | {"central": central | {"limit": None, "rounds_left": None}, "rounds_left": left})
    return accounts


def test_beside_a_running_vault(vault):
    vault.start()
    assert shown(vault.folder) == expected_of(vault, 0)
    assert vault.sealed(1)
    assert vault.sealed(1)
    assert vault.sealed(1, run=OTHER_RUN)
    ledger = (vault.folder / "ledger.sqlite").read_bytes()
    assert shown(vault.folder) == expected_of(vault, 2)
    assert (vault.folder / "ledger.sqlite").read_bytes() == ledger
    assert vault.sealed(2)
    vault.kill()
    assert shown(vault.folder) == expected_of(vault, 3)
    assert expected_of(vault, 3)[2]["rounds_left"] == 0


def test_in_one_run_nobody_is_shown_more_than_it_is_certified_for(small, tmp_path):
    """A vault counts every round at the worst cohort; that the shuffler stops at the target is known beside it."""
    terms = agreed(target_epsilon=5.0)
    vault = LocalVault(tmp_path, terms, small.keys, small.shuffler)
    vault.start()
    for number in range(1, terms.rounds + 1):
        assert vault.sealed(number)
    counted = [account["central"]["epsilon"] for account in expected_of(vault, terms.rounds)]
    assert min(counted) < terms.epsilon < max(counted)
    assert 4.9 < terms.epsilon <= terms.target
    for account, alone in zip(shown(vault.folder), counted, strict=True):
        central = account["central"]
        assert central["epsilon"] == min(alone, terms.epsilon)
        assert central["mu"] <= terms.granted.mu_squared**0.5
        assert central["delta"] == terms.terms.delta
    assert vault.sealed(1, run=OTHER_RUN)
    # Another run comes on top of it.
    for account, alone in zip(shown(vault.folder), expected_of(vault, terms.rounds + 1), strict=True):
        assert account["central"]["epsilon"] == alone["central"]["epsilon"]


def test_the_table(small, tmp_path):
    VaultProcess(tmp_path, small.terms, small.keys, small.shuffler, lifetime_epsilon=5.0)
    code, output, errors = apes("federation", "spent", tmp_path)
    assert (code, errors) == (0, "")
    assert "central" in output
    assert "5" in output


def test_a_vault_that_never_ran(small, tmp_path):
    VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)
    before = sorted(tmp_path.iterdir())
    accounts = read_accounts(tmp_path)
    assert [(account.rounds, account.spent, account.allowance, account.rounds_left) for account in accounts] == 8 * [
        (0, 0.0, None, None)
    ]
    assert sorted(tmp_path.iterdir()) == before


def test_what_cannot_be_read(small, tmp_path):
    code, _, errors = apes("federation", "spent", tmp_path)
    assert code == 2
    assert "vault.json" in errors
    assert "Traceback" not in errors
    VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"ledger\.sqlite cannot be read"):
        read_accounts(tmp_path)


def test_the_ledger_of_another_vault(small, tmp_path):
    VaultLedger(tmp_path / "ledger.sqlite", 9, Lifetime()).close()
    VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)
    with pytest.raises(DataError, match="do not belong together"):
        read_accounts(tmp_path)
    with pytest.raises(DataError, match="do not belong together"):
        VaultLedger(tmp_path / "ledger.sqlite", 8, Lifetime())
    VaultLedger(tmp_path / "ledger.sqlite", 9, Lifetime()).close()


UNLIMITED = Cost(math.inf, math.inf)


@pytest.mark.parametrize("seed", range(20))
def test_rounds_left_are_those_the_grant_covers(seed):
    """By asking round after round, allowances that are met exactly and those just missed included."""
    random = np.random.default_rng(seed)
    cost, other = (Charge(epsilon, 1.0, 0.0) for epsilon in random.uniform(0.1, 10, 2).tolist())
    before = random.integers(0, 4, 2).tolist()
    fits = int(random.integers(0, 30))
    exact = math.fsum([cost.epsilon * (before[0] + fits), other.epsilon * before[1]])
    spent = Counter(dict(zip((cost, other), before, strict=True)))
    assert Grant(exact, UNLIMITED).rounds_left(spent, cost) == fits
    assert Grant(math.nextafter(exact, 0), UNLIMITED).rounds_left(spent, cost) == max(fits - 1, 0)
    for further in range(fits):
        assert Grant(exact, UNLIMITED).covers(spent + Counter({cost: further + 1}))
    assert not Grant(exact, UNLIMITED).covers(spent + Counter({cost: fits + 1}))


def test_rounds_left_of_huge_and_tiny_allowances():
    def left(epsilon, allowance, spent=None):
        charge = Charge(epsilon, 1.0, 1e-9)
        return Grant(allowance, UNLIMITED).rounds_left({} if spent is None else {charge: spent}, charge)

    assert left(1e-300, 1e300) > 10**9
    assert left(1.0, 0.5) == 0
    assert left(1.0, 3.0, spent=5) == 0
    assert left(1.0, math.inf) is None


def test_both_limits_count():
    charge = Charge(1.0, 0.5, 1e-9)
    assert Grant(10.0, Cost(2.0, 1.0)).rounds_left({}, charge) == 4
    assert Grant(3.0, Cost(2.0, 1.0)).rounds_left({}, charge) == 3
    assert Grant(10.0, Cost(2.0, 2e-9)).rounds_left({charge: 1}, charge) == 1
    assert Grant(10.0, Cost(2.0, 1.0)).rounds_left({}, Charge(1.0, math.inf, 1e-9)) == 0
    # The same epsilon at two central costs is still counted, not added up.
    other = Charge(0.1, 0.7, 1e-9)
    assert local_epsilon({other: 3, Charge(0.1, 0.5, 1e-9): 4}) == 0.1 * 7
