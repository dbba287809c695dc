"""Reports of one bit from a vault to the analyzer: an eighth of the bytes, and the same counts."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from parties import ANALYZER, BUDGETS, LIMITS, RUN, announced, frames_of, opened, population, release_of

from apes import CountedBatch, LogisticRegression, Terms
from apes.federation.terms import FederationTerms
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.vault import Request, Vault
from apes.people.people import People
from apes.shuffler.service.gate import Gate
from apes.shuffler.service.intake import Intake
from apes.shuffler.service.ledger import ShufflerLedger
from apes.wire.envelope import envelope_size, seal

TERMS = FederationTerms(Terms(rounds=3, norm=0.2, delta=1e-3), LogisticRegression(4, 3), LIMITS)

ROUND = announced(TERMS.digest)


@pytest.fixture
def policy(small):
    return replace(small.policy, terms=TERMS.digest, levels=2, clip=0.1, norm=0.2)


@pytest.fixture
def answer(small, tmp_path):
    people = People(**population(), budgets=BUDGETS)
    held = Holdings(people, small.keys, np.full(8, np.inf))
    with closing(VaultLedger(tmp_path / "vault.sqlite", 8, Lifetime())) as ledger:
        vault = Vault(TERMS, (RUN,), held, small.shuffler.public_key(), ANALYZER.public_key(), ledger, TERMS.model)
        return vault.answer(Request(ROUND.signed(ANALYZER), bytes(60)))


def test_what_a_vault_answers_is_what_the_shuffler_counts(small, policy, answer):
    frames = frames_of(answer, 15, 2)
    assert {len(frame) for frame in frames} == {envelope_size(15, 2)} == {244}
    intake = Intake(policy, ROUND, small.shuffler)
    intake.take(frames)
    bits, budgets, _ = opened(answer, small.shuffler, 15, 2)
    assert not intake.refused
    assert (intake.counts()[:, 1] == bits.sum(axis=0)).all()
    assert (intake.counts().sum(axis=1) == 8).all()
    assert (budgets == BUDGETS).all()
    estimate = TERMS.terms.calibrator().estimate(CountedBatch(intake.counts(), budgets))
    assert estimate.mean.shape == (15,)


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"\xff\xff", "malformed"), (b"\0\x80", "malformed"), (b"\1" * 15, "malformed"), (b"\1", "malformed")],
    ids=["all ones", "a bit of the filling", "a byte per coordinate", "a byte less"],
)
def test_malformed_reports_do_not_count(small, policy, body, reason):
    to, budget, shuffler = ROUND.binding, float(BUDGETS[0]), small.shuffler.public_key()
    intake = Intake(policy, ROUND, small.shuffler)
    intake.take([seal(body, budget, to, small.keys[0], shuffler)])
    assert intake.refused == {reason: 1}
    intake.take([seal(b"\xff\x7f", budget, to, small.keys[0], shuffler)])
    assert intake.counts().tolist() == [[0, 1]] * 15


def test_the_gate_charges_for_the_norm(policy, tmp_path):
    with closing(ShufflerLedger(tmp_path / "shuffler.sqlite")) as ledger:
        receipt = release_of(ROUND).receipt
        assert Gate(policy, ledger)._exposure(receipt).form == TERMS.terms.exposure(1, BUDGETS, 15).form


def test_terms_with_a_norm_are_read_back(tmp_path):
    TERMS.write(tmp_path / "terms.json")
    again = FederationTerms.read(tmp_path / "terms.json")
    assert again.terms.norm == 0.2
    assert again.digest == TERMS.digest != replace(TERMS, terms=replace(TERMS.terms, norm=0.3)).digest
