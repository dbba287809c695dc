"""An own table and a torch model in a federation of five devices, joined by command, trained in one process.

First a server names another model than the owners did, and gets nothing; then an honest one trains. Real processes with
a model that their owners installed are in test_hostile_server.py.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from local_federation import LocalFederation
from own_models import TORCH_PACKAGE, forget, write_package
from own_tables import LIMITS, OPTIONS, WITH_LEVELS, rows_of, write_table
from parties import apes, joining
from trials import is_simulated, opened, told

import apes as library
from apes.errors import ProtocolError
from apes.federation.installed import InstalledModel, installed_model
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import HOST, Federation, Layout
from apes.federation.vault.folder import read_accounts
from apes.storage.settings import write_settings

pytest.importorskip("torch")
pytestmark = pytest.mark.service
DEVICES, ROUNDS, USERS = 5, 2, 12
MAKE, OTHER = "torch_models:make", "torch_models:other"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package that everybody installed."""
    folder = write_package(tmp_path_factory.mktemp("site"), "torch_models", TORCH_PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    forget("torch_models")


@pytest.fixture(scope="module")
def invited(package, tmp_path_factory):
    """Five devices that joined with tables of their own, after an invitation by a public table."""
    folder = tmp_path_factory.mktemp("m")
    org = folder / "five"
    public = write_table(folder / "public.csv", rows_of(range(90, 110)))
    servers = ["--shuffler", f"{HOST}:1", "--superlink", f"{HOST}:2", "--nodes", DEVICES]
    options = [
        *OPTIONS,
        *WITH_LEVELS,
        *servers,
        "--smallest-cohort",
        USERS - 3,
        "--largest-card",
        3,
        *LIMITS,
        "--model",
        MAKE,
    ]
    run = told("federation", "invite", org, "--data", public, *options)["run"]
    layout, rows, cards = Layout(org), rows_of(range(USERS), seed=1), []
    for device in range(1, DEVICES + 1):
        own = [row for row in rows if int(row[0][1:]) % DEVICES + 1 == device]
        table, home = write_table(folder / f"{device}.csv", own), layout.device(device)
        columns = "--user-column", "person", "--budget-column", "privacy", "--model", MAKE
        told(*joining(home, layout.invitation, table, *columns))
        cards.append(home / "card.json")
    told("federation", "admit", org, *cards)
    change(layout.analyzer / "analyzer.json", keep_sealed=True)
    # What lies together is a trial, whoever made its parts.
    write_settings(layout.settings, Federation(run, DEVICES, USERS, ROUNDS, 1, 2))
    return layout


def change(file, **changes):
    """Change a settings file by hand."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture(scope="module")
def refused(invited):
    """What came of a server that named another model, which it had installed itself."""
    honest = {name: (invited.analyzer / name).read_bytes() for name in ("terms.json", "analyzer.json")}
    terms = FederationTerms.read(invited.analyzer / "terms.json")
    named = InstalledModel.of(OTHER, installed_model(OTHER))
    change(invited.analyzer / "terms.json", model=vars(named))
    change(invited.analyzer / "analyzer.json", model=OTHER, folder="other")
    with LocalFederation(invited.folder) as federation, pytest.raises(ProtocolError) as error:
        federation.train()
    accounts = [account for device in range(1, DEVICES + 1) for account in read_accounts(invited.device(device))]
    events = [event for vault in federation.vaults for event in vault.events()]
    for name, content in honest.items():
        (invited.analyzer / name).write_bytes(content)
    return SimpleNamespace(said=str(error.value), accounts=accounts, events=events, agreed=terms)


@pytest.fixture(scope="module")
def trained(invited, refused):
    """The same federation with the model that was agreed."""
    with LocalFederation(invited.folder) as federation:
        federation.train()
    return federation.finished()


def test_a_server_that_names_another_model_gets_nothing(invited, refused):
    assert not (invited.analyzer / "other" / "private/metrics.jsonl").exists()
    assert {account.rounds for account in refused.accounts} == {0}
    assert len(refused.accounts) == USERS


def test_the_shufflers_roster_is_of_other_terms(refused):
    """It does not come to asking a vault: what would be said there is in test_vault_process.py."""
    assert {event["event"] for event in refused.events} == {"vault"}
    assert refused.said == "the roster is not that of this run under these terms"


def test_the_model_is_the_simulations_bit_for_bit(trained):
    assert is_simulated(trained)


def test_everybody_took_part_with_the_own_budget(trained):
    assert trained.summary["participants_by_round"] == [USERS] * ROUNDS
    chosen = sorted(0.9 if user % 2 else 0.3 for user in range(USERS))
    for number in range(1, ROUNDS + 1):
        assert sorted(budget for budget, _ in opened(trained, number)) == chosen


def test_terms_name_model_and_columns(trained, package):
    terms = trained.terms
    assert terms.model == InstalledModel.of(MAKE, installed_model(MAKE))
    assert terms.dimensions == 5 * 8 + 8 + 8 * 3 + 3
    assert terms.schema.columns.feature_names == ("age", "height", "city=Bonn", "city=Kyiv", "city=Lima")


def test_weights_go_back_into_the_module(trained, package):
    """What the analyzer hands out is the network's state, in the order of its parameters."""
    with np.load(trained.layout.analyzer / "run" / "model.npz") as stored:
        state = installed_model(MAKE).state_dict(stored["weights"])
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert state["0.weight"].shape == (8, 5)
    assert isinstance(installed_model(MAKE), library.TorchModel)


def test_an_owner_without_the_package_starts_no_vault(trained, tmp_path):
    """Another version, or none: the vault says so and does not start."""
    file = trained.layout.vault(1) / "vault.json"
    before = file.read_bytes()
    try:
        change(file, model=OTHER)
        code, _, errors = apes("vault", file)
    finally:
        file.write_bytes(before)
    assert code == 2
    assert f"model must be {MAKE}, which the terms name, got {OTHER}" in errors
