"""What the users of a vault have spent: the command beside a real vault, and the count of rounds that are left."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from parties import BUDGETS, OTHER_RUN, VaultProcess, apes

from apes.errors import DataError
from apes.federation.vault.folder import read_accounts, rounds_left
from apes.federation.vault.ledger import VaultLedger


def shown(folder):
    """What the command prints."""
    code, output, errors = apes("federation", "spent", folder, "--json")
    assert code == 0, errors
    return json.loads(output)["users"]


@pytest.fixture
def vault(small, tmp_path):
    # Everybody grants what three rounds cost the user with the largest budget.
    party = VaultProcess(tmp_path, small.terms, small.keys, small.shuffler, allowance=3 * (15 * BUDGETS.max()))
    yield party
    party.kill()


@pytest.mark.slow
def test_beside_a_running_vault(vault):
    granted = 3 * (15 * BUDGETS.max())
    left = [rounds_left({}, 15 * budget, granted) for budget in BUDGETS.tolist()]
    expected = [
        {"budget": budget, "rounds": 0, "spent": 0.0, "allowance": granted, "rounds_left": rounds}
        for budget, rounds in zip(BUDGETS.tolist(), left, strict=True)
    ]
    assert min(left) == 3
    vault.start()
    assert shown(vault.folder) == expected
    assert vault.sealed(1)
    assert vault.sealed(1)
    assert vault.sealed(1, run=OTHER_RUN)
    for user in expected:
        user |= {"rounds": 2, "spent": 2 * (15 * user["budget"]), "rounds_left": user["rounds_left"] - 2}
    ledger = (vault.folder / "ledger.sqlite").read_bytes()
    assert shown(vault.folder) == expected
    assert (vault.folder / "ledger.sqlite").read_bytes() == ledger
    assert vault.sealed(2)
    vault.kill()
    for user in expected:
        user |= {"rounds": 3, "spent": 3 * (15 * user["budget"]), "rounds_left": user["rounds_left"] - 1}
    assert shown(vault.folder) == expected
    assert expected[2]["rounds_left"] == 0


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
    larger = VaultLedger(tmp_path / "ledger.sqlite", 9)
    larger.record("00", 1, b"", {8: 1.0})
    larger.close()
    VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)
    with pytest.raises(DataError, match="do not belong together"):
        read_accounts(tmp_path)
    with pytest.raises(DataError, match="do not belong together"):
        VaultLedger(tmp_path / "ledger.sqlite", 8)
    # It let go of the file.
    VaultLedger(tmp_path / "ledger.sqlite", 9).close()


@pytest.mark.parametrize("seed", range(20))
def test_rounds_left_are_those_the_ledger_grants(tmp_path, seed):
    """By asking the ledger round after round, allowances that are met exactly and those just missed included."""
    random = np.random.default_rng(seed)
    cost, other = random.uniform(0.1, 10, 2).tolist()
    before = random.integers(0, 4, 2).tolist()
    fits = int(random.integers(0, 30))
    exact = math.fsum([cost * (before[0] + fits), other * before[1]])
    ledger = VaultLedger(tmp_path / "ledger.sqlite", 1)
    number = 0
    for paid, rounds in zip((cost, other), before, strict=True):
        for _ in range(rounds):
            number += 1
            ledger.record("00", number, b"", {0: paid})
    spent = Counter(dict(zip((cost, other), before, strict=True)))
    assert rounds_left(spent, cost, exact) == fits
    assert rounds_left(spent, cost, math.nextafter(exact, 0)) == max(fits - 1, 0)
    for _ in range(fits):
        assert ledger.spent(np.array([cost]))[0] <= exact
        number += 1
        ledger.record("00", number, b"", {0: cost})
    assert ledger.spent(np.array([cost]))[0] > exact
    ledger.close()


def test_rounds_left_of_huge_and_tiny_allowances():
    assert rounds_left({}, 1e-300, 1e300) > 10**9
    assert rounds_left({}, 1.0, 0.5) == 0
    assert rounds_left({1.0: 5}, 1.0, 3.0) == 0
