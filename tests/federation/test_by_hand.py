"""A federation put together by hand, party by party, as on several hosts: invite, join, admit, train.

Here in one process; its start scripts run in test_hostile_server.py.
"""

import json
from unittest.mock import ANY

import numpy as np
import pytest
from local_federation import LocalFederation
from parties import PAPERS_INVITED, apes, joining
from trials import is_simulated

from apes.federation.trial.layout import Federation, Layout
from apes.storage.settings import write_settings

pytestmark = pytest.mark.service


def write_data(path, seed, budgets, features=784):
    rng = np.random.default_rng(seed)
    users = len(budgets)
    np.savez(
        path,
        features=rng.random((3 * users, features), dtype=np.float32),
        labels=rng.integers(0, 10, 3 * users, dtype=np.uint8),
        offsets=np.arange(0, 3 * users + 1, 3),
        budgets=np.array(budgets),
    )
    return path


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("h")
    options = ["--users", 3, "--rounds", 1, "--nodes", 2, "--smallest-cohort", 1, "--largest-card", 2, "--levels", 16]
    options += ["--smallest-budget", 0.5, "--largest-budget", 2, "--budgets", "constant:1", *PAPERS_INVITED]
    servers = ["--shuffler", "127.0.0.1:1", "--superlink", "127.0.0.1:2"]
    code, output, errors = apes("federation", "invite", folder / "org", *options, *servers, "--json")
    assert code == 0, errors
    return folder, json.loads(output)["run"]


def test_from_the_invitation_to_the_model(invited):
    folder, run = invited
    org = folder / "org"
    layout = Layout(org)
    for number, budgets in enumerate(([0.5], [1.0, 2.0]), 1):
        data = write_data(folder / f"data{number}.npz", number, budgets)
        joined = apes(*joining(layout.device(number), org / "invitation", data))
        assert joined[0] == 0, joined[2]
    cards = [layout.device(number) / "card.json" for number in (1, 2)]
    assert apes("federation", "admit", org, *cards)[0] == 0
    settings = json.loads((org / "analyzer" / "analyzer.json").read_text())
    (org / "analyzer" / "analyzer.json").write_text(json.dumps(settings | {"keep_sealed": True}))
    # What lies together is a trial, whoever made its parts.
    write_settings(layout.settings, Federation(run, 2, 3, 1, 1, 2))
    with LocalFederation(org) as federation:
        federation.train()
    trained = federation.finished()
    assert trained.summary["run"] == run
    assert trained.summary["participants_by_round"] == [3]
    assert is_simulated(trained)


@pytest.mark.parametrize(
    ("budgets", "features", "said"),
    [
        ([3.0], 784, "budgets must be in [0.5, 2]"),
        ([0.4], 784, "budgets must be in"),
        ([1.0], 700, "rows of 784 numbers"),
    ],
)
def test_who_does_not_fit_cannot_join(invited, budgets, features, said, tmp_path):
    data = write_data(tmp_path / "data.npz", 1, budgets, features)
    invitation = invited[0] / "org" / "invitation"
    code, _, errors = apes(*joining(tmp_path / "d", invitation, data))
    assert code == 2
    assert said in errors
    assert not (tmp_path / "d").exists()


def test_who_joins_may_set_a_limit_for_life(invited, tmp_path):
    data, invitation = write_data(tmp_path / "data.npz", 1, [1.0]), invited[0] / "org" / "invitation"
    join = joining(tmp_path / "d", invitation, data)
    code, _, errors = apes(*join, "--lifetime-epsilon", 0)
    assert (code, "--lifetime-epsilon must be in (0, inf)" in errors) == (2, True)
    assert not (tmp_path / "d").exists()
    assert apes(*join, "--lifetime-epsilon", 5000, "--lifetime-delta", 1e-7)[0] == 0
    (user,) = json.loads(apes("federation", "spent", tmp_path / "d", "--json")[1])["users"]
    # The allowance is for one run of one round; centrally, there is room for more.
    assert user["central"] == {"mu": 0, "epsilon": 0, "delta": 1e-7, "limit": 5000, "rounds_left": ANY}
    assert user["central"]["rounds_left"] > user["rounds_left"] == 1


def test_too_few_cards_are_not_admitted(invited, tmp_path):
    folder = invited[0]
    data = write_data(tmp_path / "data.npz", 1, [1.0])
    assert apes(*joining(tmp_path / "d", folder / "org" / "invitation", data))[0] == 0
    code, _, errors = apes("federation", "admit", folder / "org", tmp_path / "d" / "card.json")
    assert code == 2
    said = "smallest_cohort 1 of honest senders beside colluding 2 needs at least 3 senders in all, got 1"
    assert errors == f"apes: {said}\n"


def test_an_address_needs_a_port(tmp_path):
    options = ["--nodes", 1, "--smallest-cohort", 2, "--smallest-budget", 0.5, "--largest-budget", 1]
    code, _, errors = apes(
        "federation", "invite", tmp_path / "o", *options, "--shuffler", "here", "--superlink", "there:99999"
    )
    assert code == 2
    assert "shuffler must be HOST:PORT" in errors
