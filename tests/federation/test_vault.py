"""The vault in memory: one sealed report per round, words of refusal, and nothing else."""

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
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
    population,
)
from scipy.stats import chi2

from apes import FedProx, People
from apes.errors import DataError
from apes.federation.vault.charges import local_epsilon
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.vault import Request, Vault, VaultRefusal, VaultRefused
from apes.mathematics.levels import level_probabilities
from apes.shuffler.service.intake import Intake
from apes.shuffler.service.policy import Limits

FALSE_ALARM = 1e-6


@pytest.fixture
def ledgers(tmp_path):
    """Make ledgers, and close them."""
    made = []

    def make(users=8):
        made.append(VaultLedger(tmp_path / f"{len(made)}.sqlite", users, Lifetime()))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


def holdings(keys, rounds=np.inf, dimensions=15, **changes):
    """The holdings of eight users who grant so many rounds each."""
    arrays = {**population(), "budgets": BUDGETS, **changes}
    allowances = dimensions * arrays["budgets"] * np.broadcast_to(rounds, 8)
    return Holdings(People(**arrays), keys, allowances)


def spent_in(ledger):
    """Local epsilon that each user has spent."""
    return np.array([local_epsilon(rounds) for rounds in ledger.spending()])


def vault_of(small, held, ledger, terms=None):
    terms = terms or small.terms
    keys = small.shuffler.public_key(), ANALYZER.public_key()
    return Vault(terms, (RUN, OTHER_RUN), held, *keys, ledger, terms.model)


def request(small, number, run=RUN, digest=None, weights=None, terms=None, told=None, stranger=False, **choices):
    """A request, which the analyzer announced; ``told`` are weights that are announced in place of those sent."""
    terms = terms or small.terms
    sent = np.asarray(np.zeros(terms.dimensions) if weights is None else weights, dtype="<f4").tobytes()
    digest = terms.digest if digest is None else digest
    key = Ed25519PrivateKey.generate() if stranger else ANALYZER
    return Request(announced(digest, number, run, sent if told is None else told, **choices).signed(key), sent)


def refusal_of(vault, asked):
    with pytest.raises(VaultRefused) as refused:
        vault.answer(asked)
    return refused.value.reason


def counts_for_the_shuffler(small, answer, number, run=RUN):
    """Whether the shuffler takes all reports of an answer, and counts them as NumPy does."""
    intake = Intake(small.policy, small.announced(number, run=run), small.shuffler)
    intake.take(frames_of(answer))
    levels, _, senders = opened(answer, small.shuffler)
    return not intake.refused and (intake.counts() == counts_of(levels)).all() and intake.senders == set(senders)


def test_an_answer_is_what_the_shuffler_counts(small, ledgers):
    answer = vault_of(small, holdings(small.keys), ledgers()).answer(request(small, 1))
    assert counts_for_the_shuffler(small, answer, 1)
    _, budgets, senders = opened(answer, small.shuffler)
    assert [sender.hex() for sender in senders] == list(small.policy.senders)
    assert (budgets == BUDGETS).all()


def test_a_round_has_one_answer(small, ledgers):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys), ledger)
    first = vault.answer(request(small, 1))
    spent = spent_in(ledger).tolist()
    assert vault.answer(request(small, 1)) == first
    # Of the same announcement, that is: another one of an answered round is refused, whoever signed it.
    assert refusal_of(vault, request(small, 1, weights=np.arange(15))) == VaultRefusal.ANNOUNCEMENT
    assert refusal_of(vault, request(small, 1, previous=bytes(range(32)))) == VaultRefusal.ANNOUNCEMENT
    assert vault.answer(request(small, 1)) == first
    assert spent_in(ledger).tolist() == spent == (15 * BUDGETS).tolist()
    assert vault.answer(request(small, 2)) != first
    assert vault.answer(request(small, 1, OTHER_RUN)) != first


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"digest": "00" * 32}, VaultRefusal.TERMS),
        ({"run": "00" * 16}, VaultRefusal.RUN),
        ({"number": 4}, VaultRefusal.ROUND),
        ({"number": 2**32 - 1}, VaultRefusal.ROUND),
        ({"stranger": True}, VaultRefusal.ANNOUNCEMENT),
        # What a stranger sends first does not poison a round, nor does what asks for the last one end the run.
        ({"stranger": True, "weights": np.full(15, 9.0)}, VaultRefusal.ANNOUNCEMENT),
        ({"stranger": True, "number": 3}, VaultRefusal.ANNOUNCEMENT),
        ({"told": bytes(60), "weights": np.full(15, 9.0)}, VaultRefusal.WEIGHTS),
        ({"weights": np.full(15, np.nan)}, VaultRefusal.WEIGHTS),
        ({"weights": [*np.zeros(14), np.inf]}, VaultRefusal.WEIGHTS),
        ({"weights": [-np.inf, *np.zeros(14)]}, VaultRefusal.WEIGHTS),
        ({"weights": np.zeros(14)}, VaultRefusal.WEIGHTS),
        ({"weights": np.zeros(16)}, VaultRefusal.WEIGHTS),
        ({"weights": []}, VaultRefusal.WEIGHTS),
    ],
    ids=str,
)
def test_refusals_cost_nothing(small, ledgers, changes, reason):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys, 1), ledger)
    assert refusal_of(vault, request(small, **({"number": 1} | changes))) == reason
    assert spent_in(ledger).tolist() == 8 * [0]
    assert counts_for_the_shuffler(small, vault.answer(request(small, 1)), 1)


def test_a_past_round_is_over(small, ledgers):
    vault = vault_of(small, holdings(small.keys), ledgers())
    first, third = (vault.answer(request(small, number)) for number in (1, 3))
    assert refusal_of(vault, request(small, 2)) == VaultRefusal.PAST
    # The answer to round 1 is forgotten by now.
    assert refusal_of(vault, request(small, 1)) == VaultRefusal.PAST
    assert vault.answer(request(small, 3)) == third != first
    assert counts_for_the_shuffler(small, vault.answer(request(small, 2, OTHER_RUN)), 2, OTHER_RUN)


@pytest.mark.parametrize(
    "asked",
    [[(RUN, 1), (RUN, 2), (RUN, 3)], [(RUN, 1), (OTHER_RUN, 1), (RUN, 2)], [(OTHER_RUN, 2), (RUN, 1), (OTHER_RUN, 3)]],
)
def test_an_allowance_is_for_so_many_rounds(small, ledgers, asked):
    ledger, held = ledgers(), holdings(small.keys, 3)
    vault = vault_of(small, held, ledger)
    answers = [vault.answer(request(small, number, run)) for run, number in asked]
    assert all(len(frames_of(answer)) == 8 for answer in answers)
    assert (spent_in(ledger) == held.allowances).all()
    refused = [
        refusal_of(vault, request(small, number, run))
        for run, number in itertools.product((RUN, OTHER_RUN), (1, 2, 3))
        if ledger.find(run, number) is None
    ]
    assert VaultRefusal.ALLOWANCE in refused
    assert set(refused) <= {VaultRefusal.ALLOWANCE, VaultRefusal.PAST}
    assert (spent_in(ledger) == held.allowances).all()
    assert vault.answer(request(small, asked[-1][1], asked[-1][0])) == answers[-1]


def test_a_little_less_is_a_round_less(small, ledgers):
    vault = vault_of(small, holdings(small.keys, np.nextafter(2, 0)), ledgers())
    vault.answer(request(small, 1))
    assert refusal_of(vault, request(small, 2)) == VaultRefusal.ALLOWANCE


@pytest.mark.parametrize(
    ("choice", "coordinates"),
    [
        ({"framework": "s-apes-first", "keep": 0.2}, 6),
        ({"framework": "s-apes", "sparsifier": "random-b", "keep": 0.2}, 3),
        ({"framework": "s-apes-threshold"}, 15),
    ],
    ids=str,
)
def test_a_sparse_report_costs_what_its_sparsifier_says(small, ledgers, choice, coordinates):
    terms = agreed(**choice)
    # Two different ones: each has a certificate of its own, which takes its time where reports are sparse.
    ledger, budgets = ledgers(), np.tile(BUDGETS[:2], 4)
    held = holdings(small.keys, budgets=budgets)
    answer = vault_of(small, held, ledger, terms).answer(request(small, 1, terms=terms))
    levels, _, _ = opened(answer, small.shuffler)
    assert levels.shape == (8, 15)
    assert (spent_in(ledger) == coordinates * budgets).all()


def test_users_of_a_silo_drop_out_one_by_one(small, ledgers):
    terms = agreed(rounds=10)
    vault = vault_of(small, holdings(small.keys, np.arange(1, 9)), ledgers(), terms)
    for number in range(1, 9):
        _, budgets, senders = opened(vault.answer(request(small, number, terms=terms)), small.shuffler)
        assert [sender.hex() for sender in senders] == list(small.policy.senders[number - 1 :])
        assert (budgets == BUDGETS[number - 1 :]).all()
    assert refusal_of(vault, request(small, 9, terms=terms)) == VaultRefusal.ALLOWANCE


EXTREME_FEATURES = {"usual": 1.0, "zero": 0.0, "3e38": 3e38, "-3e38": -3e38, "tiny": 1e-45}


@pytest.mark.parametrize("local", [None, FedProx()], ids=["gradient", "fedprox"])
@pytest.mark.parametrize("weights", EXTREME_WEIGHTS)
def test_extreme_weights_tell_nothing_about_the_data(small, ledgers, local, weights):
    """Whatever the data is, the answer has the same form: an error that depends on data would say something of it."""
    terms = agreed(local=local)
    sizes = set()
    for scale in EXTREME_FEATURES.values():
        features = np.full_like(population()["features"], scale)
        features[::2] *= -1
        vault = vault_of(small, holdings(small.keys, features=features), ledgers(), terms)
        answer = vault.answer(request(small, 1, weights=EXTREME_WEIGHTS[weights], terms=terms))
        levels, _, senders = opened(answer, small.shuffler)
        assert levels.max() < 16
        sizes.add((len(answer), len(senders)))
    assert sizes == {(8 * (4 + 257), 8)}


# Inputs are beyond the clip, so the level that goes into the randomizer is known: 0 in the coordinates of the user's
# own class, 15 in the others. 64 users of 3 x 401 coordinates give 25,664 and 51,328 draws, at least 111 of them
# expected at every level; a budget 10 % too large is missed with probability 4e-10.
LAW = agreed(rounds=1, clip=1e-3, features=400, limits=Limits(4.0, 5.0, 64))
LAW_BUDGET = 4.0


def levels_by_input(small, ledger, budget):
    """Draws of a vault under this budget, for input level 0 and for input level 15."""
    labels = np.arange(64, dtype=np.uint8) % 3
    people = People(np.full((64, 400), 100.0, np.float32), labels, np.arange(65), np.full(64, budget))
    held = Holdings(people, [Ed25519PrivateKey.generate() for _ in labels], np.full(64, np.inf))
    vault = Vault(LAW, (RUN,), held, small.shuffler.public_key(), ANALYZER.public_key(), ledger, LAW.model)
    levels, _, _ = opened(vault.answer(request(small, 1, terms=LAW)), small.shuffler, LAW.dimensions)
    own = np.repeat(np.arange(3) == labels[:, None], 401, axis=1)
    return levels[own], levels[~own]


def misfit(levels, law):
    """Pearson's statistic against the law, and what it exceeds once in a million tests."""
    expected = levels.size * law
    assert expected.min() > 100
    observed = np.bincount(levels, minlength=16)
    return ((observed - expected) ** 2 / expected).sum(), chi2.isf(FALSE_ALARM, 15)


def test_levels_have_the_law_of_the_randomizer(small, ledgers):
    low, high = levels_by_input(small, ledgers(64), LAW_BUDGET)
    assert (low.size, high.size) == (64 * 401, 2 * 64 * 401)
    law = level_probabilities(np.array([LAW_BUDGET]), 16)[0]
    for levels, row in ((low, law[0]), (high, law[15])):
        statistic, limit = misfit(levels, row)
        assert statistic < limit


def test_the_test_of_the_law_sees_a_budget_ten_percent_too_large(small, ledgers):
    low, high = levels_by_input(small, ledgers(64), 1.1 * LAW_BUDGET)
    law = level_probabilities(np.array([LAW_BUDGET]), 16)[0]
    for levels, row in ((low, law[0]), (high, law[15])):
        statistic, limit = misfit(levels, row)
        assert statistic > limit


def test_a_ledger_that_fails(small, ledgers):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys), ledger)
    ledger.close()
    assert refusal_of(vault, request(small, 1)) == VaultRefusal.LEDGER


@pytest.mark.parametrize("allowance", [0, -1, np.nan])
def test_what_a_user_grants_is_positive(small, allowance):
    with pytest.raises(DataError, match="a vault of 8 users needs 8 signing keys and positive allowances"):
        Holdings(People(**population(), budgets=BUDGETS), small.keys, np.array([*7 * [1.0], allowance]))
