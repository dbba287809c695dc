"""A federation whose terms cap budgets and map images: one bit per coordinate of public features; in one process."""

import numpy as np
import pytest
from local_federation import LocalFederation, without_ports
from trials import is_simulated, opened, sealed

from apes import LogisticRegression, Plan, Simulation
from apes.federation.subject import Subject
from apes.federation.trial.layout import Layout
from apes.federation.trial.setup import set_up
from apes.federation.vault.folder import read_accounts
from apes.shuffler.service.policy import Policy
from apes.storage.arrays import read_arrays
from apes.storage.settings import read_settings

pytestmark = pytest.mark.service
DEVICES, ROUNDS, CAP = 5, 2, 0.3


@pytest.fixture(scope="module")
def trained(small_digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("c") / "five"
    plan = Plan(rounds=ROUNDS, norm=1, clip=0.1, cap=CAP, seed=3)
    people = Simulation(users=DEVICES, features="oriented-gradients")
    with without_ports():
        subject, everybody = Subject.of_images(people, small_digits), people.people(small_digits)
        set_up(folder, plan, subject, everybody, DEVICES, keep_sealed=True, allow_no_protection=True)
    with LocalFederation(folder) as federation:
        federation.train()
    return federation.finished()


def own_budgets(layout):
    """What people chose, device by device."""
    folders = [layout.vault(number) for number in range(1, DEVICES + 1)]
    return np.concatenate([read_arrays(folder / "data.npz", ("budgets",))["budgets"] for folder in folders])


def test_the_model_is_the_simulations_bit_for_bit(trained):
    assert is_simulated(trained)
    assert trained.terms.model == LogisticRegression(200, 10)
    assert trained.terms.features == "oriented-gradients"


def test_nobody_spends_more_than_the_cap(trained):
    own = own_budgets(trained.layout)
    assert own.min() < CAP < own.max()
    capped = np.minimum(own, CAP)
    for number, release in enumerate(trained.releases, 1):
        assert release.receipt.users == len(capped)
        assert sorted(budget for budget, _ in opened(trained, number)) == sorted(capped.tolist())
    for number, budget in enumerate(capped, 1):
        (account,) = read_accounts(trained.layout.device(number))
        assert (account.budget, account.rounds, account.rounds_left) == (budget, ROUNDS, 0)
        assert account.spent == pytest.approx(2010 * budget * ROUNDS, rel=1e-12)
    policy = read_settings(Layout(trained.layout.folder).shuffler / "policy.json", Policy)
    assert policy.largest_budget == CAP


def test_reports_are_bits(trained):
    assert {len(envelope.sealed) for envelope in sealed(trained, 1)} == {8 + -(-2010 // 8) + 48}
    assert {level for _, levels in opened(trained, 1) for level in levels.tolist()} == {0, 1}


def test_images_stay_raw_in_the_vault(trained):
    """Features are made when the vault opens; what lies on its disk is what its owner put there."""
    rows = read_arrays(trained.layout.vault(1) / "data.npz", ("features",))["features"]
    assert rows.shape[1] == 784
