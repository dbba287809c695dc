"""A federation of real processes whose terms cap budgets and map images: one bit per coordinate of public features."""

import json

import numpy as np
import pytest
from trials import begin_up, end_up, is_simulated, looked_at, opened, sealed, told

from apes import LogisticRegression
from apes.federation.trial.layout import Layout
from apes.federation.vault.folder import read_accounts
from apes.shuffler.service.policy import Policy
from apes.storage.arrays import read_arrays
from apes.storage.settings import read_settings

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("capped_federation")]
DEVICES, ROUNDS, CAP = 5, 2, 0.3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c") / "five"
    choices = ["--features", "oriented-gradients", "--norm", 1, "--clip", 0.1, "--cap", CAP, "--seed", 3]
    told("federation", "init", folder, "--devices", DEVICES, "--rounds", ROUNDS, "--keep-sealed", *choices)
    code, output, errors = end_up(begin_up(folder), folder)
    assert code == 0, errors
    return looked_at(folder, json.loads(output))


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
