"""The cap on budgets and the feature map, which are part of the terms: every party applies them, nobody asks again."""

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import (
    ANALYZER,
    BUDGETS,
    LIMITS,
    RUN,
    VaultProcess,
    agreed,
    announced,
    apes,
    joining,
    opened,
    population,
    release_of,
    task_for_few,
)

from apes import Examples, LogisticRegression
from apes.errors import DataError, ParameterError, ProtocolError
from apes.features.oriented_gradients import OrientedGradients
from apes.federation.analyzer import AnalyzerRun
from apes.federation.parties import Servers, invite
from apes.federation.terms import FederationTerms
from apes.federation.vault.folder import open_vault, read_accounts, read_vault
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.vault import Request, Vault, charges_of
from apes.shuffler.service.policy import Limits
from apes.wire.roster import Roster

CAP = 0.3
CAPPED = np.minimum(BUDGETS, CAP)


@pytest.fixture
def capped(small, tmp_path):
    """A vault's folder under terms with a cap."""
    return VaultProcess(tmp_path, agreed(cap=CAP), small.keys, small.shuffler)


def test_the_shuffler_takes_what_the_cap_leaves():
    assert agreed().taken == LIMITS == Limits(0.05, 1.0, 3, 8, 0)
    assert agreed(cap=CAP).taken == Limits(0.05, CAP, 3, 8, 0)
    assert agreed(cap=0.01).taken == Limits(0.01, 0.01, 3, 8, 0)
    assert agreed(cap=2.0).taken == LIMITS
    assert agreed(cap=CAP).worst.budgets.tolist() == 3 * [CAP]
    assert agreed(cap=CAP).digest != agreed().digest
    assert agreed(cap=CAP).limit.mu_squared < agreed().limit.mu_squared


def test_who_has_more_uses_the_cap():
    terms = agreed(cap=CAP)
    # Beyond the limits as well: it is the cap that is used.
    assert terms.applied([0.05, 0.3, 0.31, 5.0]).tolist() == [0.05, 0.3, 0.3, 0.3]
    with pytest.raises(ParameterError, match=r"budgets must be in \[0\.05, 0\.3\]"):
        terms.applied([0.04])
    with pytest.raises(ParameterError, match=r"budgets must be in \[0\.05, 1\]"):
        agreed(cap=2.0).applied([1.5])


def test_reports_and_charges_are_of_the_cap(small, capped, tmp_path):
    _, terms, holdings = read_vault(capped.folder / "vault.json")
    with closing(VaultLedger(tmp_path / "x.sqlite", 8, Lifetime())) as ledger:
        keys = small.shuffler.public_key(), ANALYZER.public_key()
        vault = Vault(terms, (RUN,), holdings, *keys, ledger, terms.model)
        answer = vault.answer(Request(announced(terms.digest).signed(ANALYZER), bytes(60)))
        _, budgets, _ = opened(answer, small.shuffler)
        assert (budgets == CAPPED).all()
        spent = [sum(charge.epsilon * count for charge, count in rounds.items()) for rounds in ledger.spending()]
        assert spent == (15 * CAPPED).tolist()


def test_accounts_are_of_the_cap(small, capped):
    accounts = read_accounts(capped.folder)
    assert [account.budget for account in accounts] == CAPPED.tolist()
    _, terms, holdings = read_vault(capped.folder / "vault.json")
    charges = charges_of(terms, holdings, Lifetime())
    assert [charge.epsilon for charge in charges] == (15 * CAPPED).tolist()
    # Among others of at most the cap, at the own budget or the cap: what the accountant says of just that.
    (alone,) = Lifetime().costs(terms, np.array([CAP]))
    assert {charge.mu_squared for charge, own in zip(charges, BUDGETS, strict=True) if own > CAP} == {alone.mu_squared}
    with pytest.raises(ParameterError, match="budgets must be in"):
        Lifetime().costs(terms, BUDGETS)


@pytest.fixture
def org(tmp_path):
    """The folders of shuffler and analyzer under a cap."""
    test = Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    invite(tmp_path / "org", task_for_few(agreed(cap=CAP), test), Servers(("here", 1), ("there", 2), 1))
    return tmp_path / "org"


def test_who_joins_allows_one_run_at_the_cap(org, tmp_path):
    np.savez(tmp_path / "data.npz", **population(), budgets=BUDGETS)
    assert apes(*joining(tmp_path / "d", org / "invitation", tmp_path / "data.npz"))[0] == 0
    assert [account.allowance for account in read_accounts(tmp_path / "d")] == (15 * CAPPED * 3).tolist()
    assert {account.rounds_left for account in read_accounts(tmp_path / "d")} == {3}
    assert apes("federation", "admit", org, tmp_path / "d" / "card.json")[0] == 0
    policy = json.loads((org / "shuffler" / "policy.json").read_text())
    assert (policy["smallest_budget"], policy["largest_budget"]) == (0.05, CAP)
    assert policy["budgets"] == CAPPED.tolist()
    assert (org / "shuffler" / "policy.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("budgets", [BUDGETS, CAPPED], ids=["own", "capped"])
def test_the_analyzer_takes_no_release_beyond_the_cap(org, monkeypatch, budgets):
    run = AnalyzerRun(org / "analyzer" / "analyzer.json")
    key = Ed25519PrivateKey.from_private_bytes((org / "shuffler" / "receipts.key").read_bytes())
    roster = Roster(run.settings.run, run.terms.digest, budgets).signed(key)
    monkeypatch.setattr(run._shuffler, "roster", lambda _: roster)
    monkeypatch.setattr(run._shuffler, "release", lambda *_: release_of(run._announced(), range(8), budgets, key=key))
    if budgets is CAPPED:
        assert not run.begin_round()
    else:
        with pytest.raises(ProtocolError, match="beyond the terms' limits"):
            run.begin_round()


@pytest.fixture
def seen(small, tmp_path):
    """A vault's folder under terms with a feature map, and the images in it."""
    terms = replace(agreed(features=200), features="oriented-gradients")
    vault = VaultProcess(tmp_path, terms, small.keys, small.shuffler)
    rng = np.random.default_rng(3)
    images = rng.random((population()["labels"].size, 784), dtype=np.float32)
    with np.load(tmp_path / "data.npz") as stored:
        arrays = dict(stored) | {"features": images}
    np.savez(tmp_path / "data.npz", **arrays)
    return vault, images


def test_the_vault_maps_its_rows_once(seen, monkeypatch):
    vault, images = seen
    calls = []
    of_rows = OrientedGradients.__call__
    monkeypatch.setattr(
        OrientedGradients, "__call__", lambda self, rows: calls.append(len(rows)) or of_rows(self, rows)
    )
    _, terms, holdings = read_vault(vault.folder / "vault.json")
    for _ in range(3):
        (block,) = holdings.blocks()
        assert (block.features == OrientedGradients()(images)).all()
    assert terms.model == LogisticRegression(200, 3)
    assert calls[0] == len(images)
    assert len(calls) == 4


def test_rows_that_cannot_be_mapped(seen):
    vault, images = seen
    with np.load(vault.folder / "data.npz") as stored:
        arrays = dict(stored) | {"features": images[:, :700]}
    np.savez(vault.folder / "data.npz", **arrays)
    with pytest.raises(DataError, match=r"data\.npz .*images of 28 x 28 pixels"):
        open_vault(vault.folder / "vault.json")


def test_the_map_is_part_of_the_digest(tmp_path):
    terms = agreed(features=200)
    names = "pixels", "oriented-gradients", "oriented-gradients:7", "oriented-gradients:05"
    others = [replace(terms, features=name) for name in names]
    assert len({other.digest for other in others}) == 4
    for other in others:
        other.write(tmp_path / "terms.json")
        assert FederationTerms.read(tmp_path / "terms.json") == other


def test_the_analyzer_judges_what_users_see(tmp_path):
    images = np.random.default_rng(2).random((4, 784), dtype=np.float32)
    terms = replace(agreed(features=200), features="oriented-gradients")
    test = Examples(images, np.array([0, 1, 2, 0]))
    invite(tmp_path / "org", task_for_few(terms, test), Servers(("here", 1), ("there", 2), 1))
    run = AnalyzerRun(tmp_path / "org" / "analyzer" / "analyzer.json")
    assert (run._run._test.features == OrientedGradients()(images)).all()
    np.savez(tmp_path / "org" / "analyzer" / "test.npz", features=images[:, :50], labels=np.zeros(4, int))
    with pytest.raises(DataError, match=r"test\.npz: .*28 x 28 pixels"):
        AnalyzerRun(tmp_path / "org" / "analyzer" / "analyzer.json")
