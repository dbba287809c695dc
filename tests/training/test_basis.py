"""What a run's guarantee rests on is bound to its log: nobody certifies it as another run by editing a number."""

import json
import shutil

import numpy as np
import pytest
from few import folder_of, rewrite, trained
from typer.testing import CliRunner

import apes
from apes.cli.main import app
from apes.errors import ProtocolError
from apes.models.model import check_model
from apes.training.cohort import cohort_names
from apes.training.run import Identity, Run
from apes.training.run_folder import RunFolder

# What somebody may edit into a number's place, and what would become of the guarantee then.
EDITS = {
    "delta": 0.4,
    "expected_rounds": 1,
    "target": 1e-3,
    "colluders": 1,
    "settled": False,
    "limit": {"mu_squared": 1e-9, "delta": 1e-9},
    "keep_budgets": False,
    "rounds": 2,
    "cohorts": None,
    "seeded": True,
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of three planned rounds that was stopped after two."""
    return folder_of(tmp_path_factory.mktemp("stopped") / "run", trained()[1][:2]).path


@pytest.fixture
def run(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def recertified(run):
    return RunFolder.open(run).recertify()


def refused(run):
    """What is said of a folder that is not certified, in one line; nothing in it is touched."""
    before = files(run)
    with pytest.raises(apes.DataError) as caught:
        recertified(run)
    assert files(run) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(run, name, value):
    file = run / "config.json"
    config = json.loads(file.read_text())
    assert name in config["basis"]
    assert config["basis"][name] != value
    config["basis"][name] = value
    file.write_text(json.dumps(config))


def files(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_every_field_can_be_edited():
    accountant = apes.Accountant(1e-4, expected_rounds=3)
    assert set(EDITS) == {*accountant.as_dict(), "rounds", "cohorts", "seeded"}


@pytest.mark.parametrize("name", EDITS)
def test_a_configuration_that_was_edited_is_refused(run, name):
    assert len(recertified(run)[0]) == 2
    edit(run, name, EDITS[name])
    assert f"config.json is not that of its log: {name} is" in refused(run)


@pytest.mark.service
def test_a_configuration_that_was_edited_is_refused_by_the_command(run):
    honest = CliRunner().invoke(app, ["account", "--run", str(run), "--json"])
    assert (honest.exit_code, json.loads(honest.stdout)["rounds"]) == (0, 2)
    edit(run, "delta", EDITS["delta"])
    before = files(run)
    done = CliRunner().invoke(app, ["account", "--run", str(run)])
    assert (done.exit_code, done.stdout, files(run)) == (2, "", before)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "config.json is not that of its log: delta is" in done.stderr


@pytest.mark.parametrize("name", EDITS)
def test_editing_the_log_as_well_is_not_enough(run, name):
    """The checkpoint is bound too."""
    config = json.loads((run / "config.json").read_text())
    config["basis"][name] = EDITS[name]
    rewrite(run, config, config["basis"])
    assert "is of another run than checkpoint.npz" in refused(run)


@pytest.mark.parametrize(
    "basis", [None, [], "x", {}, {"delta": 1e-4}, {"rounds": "many"}, {"limit": 3}], ids=lambda value: json.dumps(value)
)
def test_a_basis_that_is_none_is_one_line(run, basis):
    """In configuration and log alike, without a checkpoint that would say otherwise."""
    (run / "private/checkpoint.npz").unlink()
    config = json.loads((run / "config.json").read_text())
    if isinstance(basis, dict) and basis and "delta" not in basis:
        basis = config["basis"] | basis
    rewrite(run, config | {"basis": basis}, basis)
    refused(run)


def test_all_planned_rounds_count(run):
    by_round, guarantee = recertified(run)
    assert guarantee.epsilon > by_round[-1]
    budgets = np.load(next((run / "budgets").iterdir()))
    line = json.loads((run / "exposures.jsonl").read_text().splitlines()[0])
    form = {name: line[name] for name in ("dimensions", "levels")}
    assert guarantee.epsilon == pytest.approx(apes.certify(budgets, delta=1e-3, rounds=3, **form).epsilon, rel=1e-3)


class TestCohorts:
    """Where people leave, who was to take part is settled too."""

    budgets = np.repeat([0.1, 1.0], [700, 200])
    rows = np.random.default_rng(1).random((900, 5), dtype=np.float32)
    model = apes.LogisticRegression(5, 2)
    plan = apes.Plan(rounds=12, delta=1e-5, target_epsilon="own:0.45", seed=1)

    def test_of_others_than_were_settled_nothing_is_charged(self):
        cohorts = [np.ones(900, dtype=bool), self.budgets < 1]
        facts = {"users": 900, "test": None, "cohorts": cohort_names(cohorts, self.budgets)}
        of = (self.plan.terms, self.plan.schedule, self.model, Identity("", "", ""))
        run = Run(*of, start=check_model(self.model), **facts)
        with pytest.raises(ProtocolError, match="round 1 is of other people than were settled beforehand"):
            run.charge(self.budgets[cohorts[1]])
        run.charge(self.budgets)

    def test_stopped_before_anybody_left_is_not_certified_as_if_nobody_would(self, tmp_path):
        """All rounds so far had everybody; that the plan goes on with fewer is known all the same."""
        people = apes.People.from_arrays(self.rows, np.arange(900) % 2, budgets=self.budgets)
        reached = []
        whole = apes.train(self.model, people, self.plan, after_round=reached.append)
        sizes = [exposure.budgets.size for exposure in whole.exposures]
        assert sizes[:2] == [900, 900] > sizes[-2:]
        folder = RunFolder.create(tmp_path / "run", {}, json.loads(reached[0].identity.basis), data="")
        for progress in reached:
            folder.save(progress)
            if progress.rounds < len(sizes):
                with pytest.raises(apes.DataError, match="was stopped while people were leaving: finish it first"):
                    folder.recertify()
        by_round, guarantee = folder.recertify()
        assert guarantee.epsilon == whole.guarantee.epsilon == by_round[-1]
