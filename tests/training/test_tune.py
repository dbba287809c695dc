"""Tuning: on the training part alone, under the same target; what it finds can be trained by, elsewhere."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from few import patterns
from typer.testing import CliRunner

import apes
from apes.cli.choices import make_choices
from apes.cli.main import app
from apes.data import Dataset, load
from apes.errors import DataError, ParameterError
from apes.storage.settings import read_settings, write_settings
from apes.terms.fitting import fitted
from apes.training.plan_file import PlanFile
from apes.training.tuning import DEFAULTS, KNOBS, _Search, fit_and_judge, tune

pytestmark = pytest.mark.service

USERS = 96
SIMULATION = apes.Simulation(users=USERS, budgets="constant:0.3")
# Whose budgets need a cap.
BOLD = replace(SIMULATION, budgets="0.5:50%,1:50%")
PLAN = apes.Plan(target_epsilon=2.0, delta=1e-3, seed=1)
IMAGES = patterns(130, 20)


class Sealed:
    """Stands for what must not be looked at, at all."""

    def __getattribute__(self, name):
        raise AssertionError(f"the test part was touched: {name}")

    def __getitem__(self, key):
        raise AssertionError("the test part was touched")

    def __len__(self):
        raise AssertionError("the test part was touched")


@pytest.fixture(scope="module", autouse=True)
def few_rounds():
    """So many rounds of an open plan that a training takes a moment."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("apes.training.tuning", "apes.terms.fitting"):
            patch.setattr(f"{module}.ROUNDS", 4)
        yield


@pytest.fixture(scope="module")
def sealed():
    known = {field.name: getattr(IMAGES, field.name) for field in fields(Dataset)}
    return Dataset(**known | {"test_images": Sealed(), "test_labels": Sealed()})


@pytest.fixture(scope="module")
def tuned(sealed):
    reports = []
    found = tune(sealed, SIMULATION, PLAN, runs=8, progress=lambda done, total, what: reports.append((done, total)))
    return found, reports


def test_the_seal_breaks(sealed):
    """A training that is judged by the test part does not get far."""
    people = SIMULATION.people(sealed)
    with pytest.raises(AssertionError, match="touched"):
        apes.train(apes.LogisticRegression.of(people), people, replace(PLAN, rounds=1))


def test_tune_never_touches_the_test_part(tuned):
    found, reports = tuned
    assert sum(len(trial.accuracies) for trial in found.trials) == 8
    assert reports == sorted(reports)
    assert reports[-1] == (8, 8)


def test_nothing_is_chosen_that_did_worse_than_the_defaults(tuned):
    found = tuned[0]
    assert found.default.choices == {}
    assert found.best.accuracy >= found.default.accuracy
    # Compared over as many runs, more than one.
    assert len(found.best.accuracies) == len(found.default.accuracies) == 2
    assert found.best in found.trials


def test_same_seed_same_search(tuned, sealed):
    assert tune(sealed, SIMULATION, PLAN, runs=8, workers=apes.Workers(threads=1)) == tuned[0]


def test_who_trains_does_not_judge():
    people = fit_and_judge(IMAGES, SIMULATION)
    assert people.budgets.size == USERS
    block, test = people.block(0, USERS), people.test
    assert len(block.labels) + len(test.labels) == len(IMAGES.train_labels)
    # A quarter as many as train; of the images that do not go round, the first get one more.
    assert USERS / 4 <= len(test.labels) <= len(block.labels) / 4
    everything = np.concatenate([block.features, test.features])
    assert (np.sort(everything.sum(axis=1)) == np.sort(IMAGES.train_images.sum(axis=1))).all()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cells", marks=pytest.mark.service),
        pytest.param("rounds", marks=pytest.mark.service),
        pytest.param("norm", marks=pytest.mark.service),
        pytest.param("cap", marks=pytest.mark.service),
        "learning_rate",
        "last_step",
    ],
)
def test_every_knob_does_something_and_keeps_to_the_target(name, sealed):
    """At a place that is not the default, exactly one choice is made; the plan that comes of it costs the target."""
    plan = replace(PLAN, target_epsilon=1.0)
    search = _Search(sealed, BOLD, plan, ())
    setting, turned = list(DEFAULTS), [knob.name for knob in KNOBS].index(name)
    setting[turned] = KNOBS[turned].places[-1]
    choices = search.choices(tuple(setting))
    assert list(choices) == ["features" if KNOBS[turned].name == "cells" else KNOBS[turned].name]
    if "features" in choices:
        return
    people, model = fit_and_judge(sealed, BOLD), BOLD.model(sealed)
    settled = fitted(replace(plan, **choices), people.budgets, model)
    terms = settled.terms
    exposure = terms.exposure(0, terms.applied(people.budgets), model.dimensions)
    assert terms.accountant(USERS, settled=True).after(exposure, terms.rounds) <= 1.0


def test_a_fixed_knob_stays(sealed):
    search = _Search(sealed, SIMULATION, PLAN, ("cells",))
    assert {search.knobs.anywhere()[0] for _ in range(30)} == {KNOBS[0].default}
    assert len({search.knobs.anywhere()[1] for _ in range(60)}) == len(KNOBS[1].places)


@pytest.mark.parametrize(
    ("plan", "simulation", "runs", "name"),
    [
        (PLAN, SIMULATION, 7, "runs"),
        (apes.Plan(clip=0.1, seed=1), SIMULATION, 8, "plan"),
        (PLAN, replace(SIMULATION, users=105), 8, r"users must be in \[1, 104\]"),
    ],
)
def test_refused(plan, simulation, runs, name):
    with pytest.raises(ParameterError, match=name):
        tune(IMAGES, simulation, plan, runs=runs)


@pytest.mark.service
def test_files_of_the_test_part_are_not_read(mnist_copy):
    for path in mnist_copy.glob("t10k-*"):
        path.write_bytes(b"nothing that could be read")
    images = load("mnist", data_dir=mnist_copy, only_training=True)
    assert images.train_images.shape == (60_000, 784)
    assert images.test_images.shape == (0, 784)
    assert images.test_labels.shape == (0,)
    with pytest.raises(DataError):
        load("mnist", data_dir=mnist_copy)


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    write_settings(
        path, PlanFile({"rounds": 7, "norm": 0.5, "features": "pixels", "target_epsilon": 2.0}, "qmnist", {})
    )
    return path


def test_plan_file_comes_back(plan_file):
    read = read_settings(plan_file, PlanFile)
    chosen = make_choices({}, plan=plan_file)
    assert read.found_on == "qmnist"
    assert (chosen.plan.rounds, chosen.plan.norm, chosen.plan.target_epsilon) == (7, 0.5, 2.0)
    assert chosen.simulation.features == "pixels"
    assert chosen.plan.is_open


def test_options_override_a_plan(plan_file):
    chosen = make_choices({"rounds": 9, "target_epsilon": "0.5"}, plan=plan_file)
    assert (chosen.plan.rounds, chosen.plan.norm, chosen.plan.target_epsilon) == (9, 0.5, 0.5)


def test_a_resumed_run_takes_no_plan(plan_file):
    with pytest.raises(ParameterError, match="plan must be left out"):
        make_choices({}, earlier={"rounds": 3}, plan=plan_file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold an object"),
        ('{"choices": {}}', "is missing"),
        ('{"choices": 3, "found_on": "mnist", "found": {}}', "choices must be an object"),
        ('{"choices": {"data": "mnist"}, "found_on": "mnist", "found": {}}', "leave the data"),
        ('{"choices": {"colour": 3}, "found_on": "mnist", "found": {}}', "not known here: colour"),
        ('{"choices": {"rounds": 0}, "found_on": "mnist", "found": {}}', "rounds must be"),
        ('{"choices": {}, "found_on": "digits", "found": {}}', "data must be other than the plan was found on"),
    ],
)
def test_bad_plan_files(content, message, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(content)
    outcome = CliRunner().invoke(app, ["train", "--plan", str(path), "--out", str(tmp_path / "run")])
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert not (tmp_path / "run").exists()


def test_no_plan_file(tmp_path):
    outcome = CliRunner().invoke(app, ["train", "--plan", str(tmp_path / "none.json")])
    assert outcome.exit_code == 2
    assert "there is no" in outcome.stderr


@pytest.mark.service
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "cats"], "data must be one of"),
        (["--for", "digits"], "data must be public"),
        (["--runs", "3"], "runs must be"),
        (["--target-epsilon", "-1"], "--target-epsilon must be"),
        (["--features", "cats"], "features must be"),
        (["--users", "100000"], "users must be"),
    ],
)
def test_command_refuses(options, message, tmp_path):
    outcome = CliRunner().invoke(app, ["tune", *options, "--out", str(tmp_path / "plan.json")])
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.service
def test_what_is_there_is_not_overwritten(plan_file):
    before = plan_file.read_text()
    outcome = CliRunner().invoke(app, ["tune", "--out", str(plan_file)])
    assert outcome.exit_code == 2
    assert "not there yet" in outcome.stderr
    assert plan_file.read_text() == before


@pytest.mark.service
def test_from_tune_to_train(tmp_path, monkeypatch):
    """The two commands together: what is tuned on one set trains another."""
    asked = []

    def small(name, **options):
        asked.append((name, options.get("only_training", False)))
        return replace(IMAGES, name=name)

    for module in ("apes.cli.tune", "apes.cli.display"):
        monkeypatch.setattr(f"{module}.load", small)
    path, who = tmp_path / "plan.json", ["--users", str(USERS), "--budgets", "constant:0.3", "--delta", "1e-3"]
    options = ["--target-epsilon", "2", "--for", "mnist", "--runs", "8", "--out", str(path), "--json"]
    outcome = CliRunner().invoke(app, ["tune", *who, *options])
    assert outcome.exit_code == 0, outcome.stderr
    facts = json.loads(outcome.stdout)
    assert facts["choices"] == json.loads(path.read_text())["choices"]
    outcome = CliRunner().invoke(app, ["train", "--plan", str(path), "--data", "mnist", "--json"])
    assert outcome.exit_code == 0, outcome.stderr
    summary = json.loads(outcome.stdout)
    assert summary["users"] == USERS
    assert summary["certified"]["epsilon"] <= 2.0
    assert summary["certified"]["delta"] == 1e-3
    for name, value in facts["found"]["best"]["choices"].items():
        assert summary.get(name, value) == value
    assert asked == [("digits", True), ("mnist", False)]
