"""A federation without options is planned as `apes train` is, and none begins that protects nobody."""

import json
from dataclasses import replace

import numpy as np
import pytest
from local_federation import LocalFederation, few_people, small_federation, without_ports
from parties import apes

from apes import LogisticRegression, ParameterError, Plan, defaults, fitted, train
from apes.accounting.roster import charged_as
from apes.cli import answers
from apes.federation.parties import Servers, Task, invite
from apes.federation.subject import Subject
from apes.federation.terms import FederationTerms
from apes.federation.trial import setup
from apes.federation.trial.comparison import simulate
from apes.federation.trial.layout import Layout
from apes.federation.trial.trial import Trial
from apes.federation.vault.folder import read_accounts
from apes.shuffler.service.policy import Limits

USERS, VAULTS, ROUNDS = 150, 3, 3
MODEL = LogisticRegression(4, 3)


def crowd():
    return few_people(USERS, budgets=(0.1, 0.3, 0.9, 2.0))


def planned(folder, plan, **how):
    """Set up a federation of a crowd in three silos."""
    people = crowd()
    with without_ports():
        setup.set_up(folder, plan, Subject(MODEL, people.test, USERS), people, VAULTS, **how)
    return FederationTerms.read(Layout(folder).invitation / "terms.json")


@pytest.mark.service
def test_the_plan_is_that_of_train(tmp_path):
    agreed, alone = planned(tmp_path / "f", Plan()), fitted(Plan(), crowd().budgets, MODEL)
    terms = agreed.terms
    same = ("framework", "norm", "rounds", "levels", "target_epsilon")
    assert [getattr(terms, name) for name in same] == [getattr(alone, name) for name in same]
    assert (terms.rounds, agreed.target) == (defaults.ROUNDS, defaults.TARGET_EPSILON)
    assert terms.delta == alone.terms.central_delta(USERS)
    assert agreed.levels == 2
    assert 0.999 < agreed.epsilon <= defaults.TARGET_EPSILON
    # Those who may collude hide nobody, and whoever chooses who is there costs something.
    assert terms.cap / terms.clip < alone.cap / alone.clip


@pytest.mark.service
@pytest.mark.parametrize("missing", [0, 1])
def test_all_rounds_fit_if_everybody_is_there(tmp_path, missing):
    """The shuffler's gate takes the last round of a whole federation, and not many more; with fewer there are fewer."""
    agreed = planned(tmp_path / "f", Plan(delta=1e-5))
    roster, colluding = agreed.terms.applied(crowd().budgets), USERS // VAULTS
    charged = charged_as(roster, USERS - missing, colluding)
    gate = agreed.terms.accountant(1, settled=False)
    exposure = agreed.terms.exposure(0, charged, agreed.dimensions)
    assert gate.allows(exposure, agreed.rounds) == (missing == 0)
    assert gate.allows(exposure, agreed.rounds - 2)
    assert not gate.allows(exposure, agreed.rounds + 3)


@pytest.mark.service
def test_a_whole_federation_is_certified_within_its_target(tmp_path):
    planned(tmp_path / "f", Plan(rounds=ROUNDS))
    with LocalFederation(tmp_path / "f") as federation:
        federation.train()
    summary = federation.finished().summary
    certified = summary["certified"]
    assert summary["rounds"] == ROUNDS
    assert 0.9 < certified["epsilon_by_round"][-1] <= certified["epsilon"] <= defaults.TARGET_EPSILON
    accounts = [account for number in (1, 2, 3) for account in read_accounts(Layout(tmp_path / "f").device(number))]
    assert {account.rounds for account in accounts} == {ROUNDS}
    # No user's own figure is above everybody's, and all are at the same delta.
    assert max(account.central.epsilon for account in accounts) <= certified["epsilon"]
    assert {account.central.delta for account in accounts} == {certified["delta"]}


@pytest.mark.parametrize(
    "plan",
    [
        Plan(levels=16, rounds=40),
        Plan(levels=16, rounds=40, target_epsilon=10.5),
        Plan(target_epsilon=11.0, rounds=2),
        Plan(delta=2e-3, rounds=2),
    ],
    ids=["no target", "a large target", "a large open target", "a large delta"],
)
@pytest.mark.service
def test_what_protects_nobody_is_refused_and_leaves_nothing(tmp_path, plan):
    with pytest.raises(ParameterError, match="allow_no_protection must be given to begin a federation"):
        planned(tmp_path / "f", plan)
    assert list(tmp_path.iterdir()) == []
    planned(tmp_path / "f", plan, allow_no_protection=True)
    assert Trial(tmp_path / "f").federation.allow_no_protection


@pytest.mark.service
def test_an_invitation_that_protects_nobody_is_refused(tmp_path):
    people, limits, servers = crowd(), Limits(0.1, 2.0, 50), Servers(("here", 1), ("there", 2), 1)
    subject = Subject(MODEL, people.test, USERS)
    task = setup.task_of(Plan(levels=16), subject, limits)
    with pytest.raises(ParameterError, match=r"which certify epsilon .*protects nobody"):
        invite(tmp_path / "org", task, servers)
    invite(tmp_path / "org", replace(task, allow_no_protection=True), servers)
    # Without a clip bound it is fitted to the worst cohort that may come, so that the limit itself keeps the target.
    open_task = setup.task_of(Plan(), subject, limits)
    assert isinstance(open_task, Task)
    terms = open_task.terms
    assert 0.95 < terms.limit.epsilon(terms.terms.delta) <= defaults.TARGET_EPSILON
    invite(tmp_path / "other", open_task, servers)


@pytest.mark.service
def test_up_refuses_it_too(tmp_path):
    """A folder of a version that asked nobody, say: no party is started."""
    folder = small_federation(tmp_path / "f")
    file = Layout(folder).settings
    plain = json.loads(file.read_text())
    assert plain.pop("allow_no_protection")
    file.write_text(json.dumps(plain))
    code, _, errors = apes("federation", "up", folder)
    assert (code, "--allow-no-protection must be given" in errors) == (2, True)
    assert not Layout(folder).logs.exists()
    with pytest.raises(ParameterError, match="allow_no_protection"):
        Trial(folder).start([])
    Trial(folder, allow_no_protection=True).start([])


@pytest.mark.service
def test_the_same_people_in_one_process(capsys):
    people = crowd()
    beside = simulate(Plan(rounds=ROUNDS, seed=5), Subject(MODEL, people.test, USERS), people)
    alone = train(MODEL, people, Plan(rounds=ROUNDS, seed=5))
    assert (beside.accuracy, beside.epsilon, beside.rounds) == (alone.accuracy, alone.guarantee.epsilon, ROUNDS)
    certified = {"epsilon": 1.0, "delta": 1e-4, "epsilon_by_round": [0.5], "meaning": "strong protection"}
    certified["caveats"] = []
    summary = {"rounds": 1, "participants_by_round": [9], "accuracy": 0.5, "loss": 1.0, "certified": certified}
    answers.federation(summary | {"simulated": {**vars(beside), "accuracy": 0.8125}})
    said = " ".join(capsys.readouterr().out.split())
    assert "1 round with 9 to 9 participants: accuracy 50.00 %, certified epsilon 1" in said
    assert "the same people in one process, 3 rounds: accuracy 81.25 %, certified epsilon 0.9" in said


@pytest.mark.service
def test_init_without_devices_or_silos(tmp_path):
    """Ten silos, or as many as there are people; with the accuracy to compare with beside them."""
    code, output, errors = apes("federation", "init", tmp_path / "f", "--users", 120, "--rounds", 2, "--json")
    assert code == 0, errors
    facts = json.loads(output)
    assert (facts["vaults"], facts["users"], facts["rounds"]) == (defaults.FEDERATION_SILOS, 120, 2)
    beside = Trial(tmp_path / "f").simulated()
    assert beside.rounds == 2
    assert 0.1 < beside.accuracy <= 1
    assert 0.9 < beside.epsilon <= defaults.TARGET_EPSILON


def test_no_figure_is_cut(capsys):
    """At 80 columns, with the largest figures that there are."""
    own = {"mu": 123456.7, "epsilon": 1.0567e9, "delta": 1.234e-10, "limit": 9.8765e7, "rounds_left": 10**9}
    account = {"budget": 0.012345, "rounds": 10**6, "spent": 2.3456e8, "allowance": 7.654e9, "rounds_left": 10**9}
    answers.spent([account | {"central": own}] * 2)
    said = capsys.readouterr().out
    assert "\u2026" not in said
    assert max(map(len, said.splitlines())) <= 80
    for figure in ("1.057e+09", "1.235e+05", "1.24e-10", "9.877e+07", "2.346e+08", "7.654e+09", "1000000000"):
        assert figure in said


def test_a_crowd_has_budgets_that_differ():
    """What the tests above say of caps needs some."""
    assert np.unique(crowd().budgets).size == 4
