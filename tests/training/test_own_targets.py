"""Personal targets: whoever would pass the own one is left out, the others go on; by budgets alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import apes
from apes.cli.main import app

pytestmark = pytest.mark.service

RNG = np.random.default_rng(1)
ROWS = RNG.random((1200, 5), dtype=np.float32)
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(int)
BUDGETS = np.repeat([0.1, 0.5, 1.0], [700, 350, 150])
PLAN = apes.Plan(clip=0.1, rounds=12, delta=1e-5, target_epsilon="own:0.45", seed=1)
MODEL = apes.LogisticRegression(5, 2)


def people(rows=ROWS, labels=LABELS):
    return apes.People.from_arrays(rows, labels, budgets=BUDGETS, test=(ROWS, LABELS))


@pytest.fixture(scope="module")
def limited():
    reached = []
    return apes.train(MODEL, people(), PLAN, after_round=reached.append), reached


def sizes(run):
    return [exposure.budgets.size for exposure in run.exposures]


def test_nobody_passes_their_own_target_and_the_others_go_on(limited):
    run, _ = limited
    for budget in (0.1, 0.5, 1.0):
        assert 0 < run.guarantee.of(budget).epsilon <= 0.45 * budget
    # The boldest leave first: what they add up to grows faster than their budgets.
    assert sizes(run) == sorted(sizes(run), reverse=True)
    assert len(set(sizes(run))) > 1
    left = run.exposures[-1].budgets.max()
    assert left < 1.0
    free = apes.train(MODEL, people(), replace(PLAN, target_epsilon=None))
    assert free.guarantee.of(1.0).epsilon > 0.45
    # One more round with everybody would have passed somebody's target.
    rounds = sizes(run).count(1200) + 1
    boldest = apes.certify(BUDGETS, delta=1e-5, dimensions=MODEL.dimensions, rounds=rounds).epsilon
    assert boldest > 0.45


def test_who_is_left_out_does_not_depend_on_data(limited):
    other = apes.train(MODEL, people(1 - ROWS, 1 - LABELS), PLAN)
    assert sizes(other) == sizes(limited[0])
    assert [e.as_dict() for e in other.exposures] == [e.as_dict() for e in limited[0].exposures]
    assert other.model_sha256 != limited[0].model_sha256


def test_a_resumed_run_leaves_out_the_same(limited):
    run, reached = limited
    for progress in (reached[0], reached[-2]):
        again = apes.train(MODEL, people(), PLAN, resume=progress)
        assert sizes(again) == sizes(run)
        assert again.model_sha256 == run.model_sha256


def test_out_of_reach_for_everybody():
    with pytest.raises(apes.BudgetExceeded, match="not even one round"):
        apes.train(MODEL, people(), replace(PLAN, target_epsilon="own:1e-6"))


@pytest.mark.parametrize("target", ["own:", "own:0", "own:-1", "own:nan", "own:inf", "mine:2", "zzz", "file:", "file"])
def test_wrong_targets(target):
    with pytest.raises(apes.ParameterError, match="target_epsilon must be a number, own:FACTOR"):
        apes.Plan(target_epsilon=target, seed=1)


@pytest.mark.service
def test_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    budgets = tmp_path / "b.csv"
    budgets.write_text("\n".join(map(str, np.repeat([0.1, 1.0], 150))))
    options = [
        "--users",
        "300",
        "--features",
        "pixels",
        "--rounds",
        "3",
        "--budgets",
        f"file:{budgets}",
        "--target-epsilon",
        "own:17",
    ]
    done = CliRunner().invoke(app, ["train", *options, "--out", "run", "--json"])
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)["certified"]
    for group in said["by_budget"]:
        assert group["epsilon"] <= 17 * group["budget"]
    again = CliRunner().invoke(app, ["account", "--run", "run", "--plot", "run/account.png", "--json"])
    certified = json.loads(again.stdout)["certified"]
    assert certified["epsilon_by_round"] == said["epsilon_by_round"]
    # Everybody's own, and those who had left are in it.
    assert certified["by_budget"] == said["by_budget"]
    assert [group["users"] for group in certified["by_budget"]] == [150, 150]
    assert (tmp_path / "run" / "account.png").read_bytes().startswith(b"\x89PNG")
    refused = CliRunner().invoke(app, ["train", *options[:-1], "own:0.001", "--out", "other"])
    assert (refused.exit_code, (tmp_path / "other").exists()) == (2, False)


def column(values, folder, name="people.csv"):
    """A file with names and targets, in the order of the users."""
    file = folder / name
    file.write_text("who,target\n" + "".join(f"user {number},{value!r}\n" for number, value in enumerate(values)))
    return f"file:{file}:target"


class TestColumn:
    """Everybody's own target, whatever the budget."""

    targets = np.exp(np.random.default_rng(3).uniform(np.log(0.02), np.log(1.0), BUDGETS.size))
    plan = apes.Plan(clip=0.1, rounds=12, delta=1e-5, norm=0.1, seed=1)

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls):
        with_targets = apes.People.from_arrays(ROWS, LABELS, budgets=BUDGETS, targets=cls.targets)
        return apes.train(MODEL, with_targets, cls.plan)

    def test_nobody_passes_their_own(self, run):
        assert len({*run.rounds_by_user.tolist()}) > 5
        for user in range(0, BUDGETS.size, 80):
            own = run.of_user(user)
            assert own.epsilon <= self.targets[user], user
            assert (own.epsilon > 0) == (run.rounds_by_user[user] > 0)

    def test_nobody_leaves_long_before(self, run):
        """With twice the rounds that anybody had, many would have passed; those who were strict did not decide it."""
        delta, left = 1e-5, run.rounds_by_user < len(run.exposures)
        passed = []
        for user in np.flatnonzero(left)[::60]:
            accountant = apes.Accountant(delta, expected_rounds=12, keep_budgets=True)
            rounds = 1 + round(1.5 * run.rounds_by_user[user])
            for exposure in run.exposures[:rounds]:
                accountant.record(exposure)
            passed.append(accountant.guarantee.of(float(BUDGETS[user])).epsilon > self.targets[user])
        assert np.mean(passed) > 0.9

    def test_the_strict_do_not_take_others_of_their_budget_out(self, run):
        for budget in (0.1, 0.5, 1.0):
            rounds, own = run.rounds_by_user[budget == BUDGETS], self.targets[budget == BUDGETS]
            assert (np.diff(rounds[np.argsort(own)]) >= 0).all()
            assert rounds.min() < rounds.max()

    def test_who_is_left_out_does_not_depend_on_data(self, run):
        other = apes.People.from_arrays(1 - ROWS, 1 - LABELS, budgets=BUDGETS, targets=self.targets)
        again = apes.train(MODEL, other, self.plan)
        assert np.array_equal(again.rounds_by_user, run.rounds_by_user)
        assert [e.as_dict() for e in again.exposures] == [e.as_dict() for e in run.exposures]
        assert again.model_sha256 != run.model_sha256

    def test_a_file_says_the_same(self, run, tmp_path):
        again = apes.train(MODEL, people(), replace(self.plan, target_epsilon=column(self.targets.tolist(), tmp_path)))
        assert np.array_equal(again.rounds_by_user, run.rounds_by_user)
        assert again.model_sha256 == run.model_sha256

    def test_it_passes_through_a_feature_map(self, run):
        class Same:
            digest = "same"

            def __call__(self, rows):
                return rows

        again = apes.People.from_arrays(ROWS, LABELS, budgets=BUDGETS, targets=self.targets)
        mapped = apes.train(MODEL, again, self.plan, features=Same())
        assert np.array_equal(mapped.rounds_by_user, run.rounds_by_user)

    def test_a_run_is_not_resumed_with_other_targets(self, tmp_path):
        reached, plan = [], replace(self.plan, rounds=3, target_epsilon=column(self.targets.tolist(), tmp_path))
        apes.train(MODEL, people(), plan, after_round=reached.append)
        column((2 * self.targets).tolist(), tmp_path)
        with pytest.raises(apes.ParameterError, match="resume must be of the same basis"):
            apes.train(MODEL, people(), plan, resume=reached[0])

    @pytest.mark.parametrize(
        ("targets", "said"),
        [
            (np.ones(3), "targets must have one entry per row, 1200, got 3"),
            (np.full(1200, np.nan), r"targets\[0\] must be in \(0, inf\)"),
            (np.append(np.ones(1199), 0), r"targets\[1199\] must be in \(0, inf\)"),
            ({0: 1.0}, "targets must name every user, got none for 1"),
        ],
    )
    def test_wrong_columns(self, targets, said):
        with pytest.raises(apes.ParameterError, match=said):
            apes.People.from_arrays(ROWS, LABELS, budgets=BUDGETS, targets=targets)

    def test_one_entry_per_user(self):
        with pytest.raises(apes.ParameterError, match="targets must have one entry per user, 1200, got 1199"):
            apes.People(ROWS, LABELS, np.arange(1201), BUDGETS, targets=np.ones(1199))

    def test_two_kinds_of_targets_are_refused(self):
        both = apes.People.from_arrays(ROWS, LABELS, budgets=BUDGETS, targets=self.targets)
        for target in (3.0, "own:2"):
            with pytest.raises(apes.ParameterError, match="target_epsilon must be left out: people have targets"):
                apes.train(MODEL, both, replace(self.plan, target_epsilon=target))
        with pytest.raises(apes.ParameterError, match="targets must be left out: nothing central is certified"):
            apes.train(MODEL, both, apes.Plan(framework="s-apes", rounds=1, seed=1))

    def test_a_mean_has_no_people_to_leave_out(self):
        with pytest.raises(apes.ParameterError, match="target_epsilon must be a number: whose vectors come"):
            apes.PrivateMean(apes.Terms(target_epsilon="own:2"), 3)

    def test_targets_tell_people_apart(self):
        digests = {
            apes.People.from_arrays(ROWS, LABELS, budgets=BUDGETS, targets=targets).digest
            for targets in (None, self.targets, 2 * self.targets)
        }
        assert len(digests) == 3


@pytest.mark.service
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1.0"] * 299, "users must equal the 299 targets"),
        (["1.0"] * 299 + ["-1"], "targets[299] must be in (0, inf)"),
        (["1.0"] * 299 + ["none"], "could not convert string to float"),
        ([], "holds no targets"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, monkeypatch, lines, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = ["--users", "300", "--rounds", "2", "--target-epsilon", "file:t.csv", "--out", "run"]
    refused = CliRunner().invoke(app, ["train", *options])
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr
    assert (refused.stdout, (tmp_path / "run").exists()) == ("", False)


@pytest.mark.service
def test_a_column_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = np.repeat([3.0, 30.0], 150).tolist()
    options = ["--users", "300", "--features", "pixels", "--rounds", "2", "--budgets", "constant:0.5", "--norm", "0.8"]
    done = CliRunner().invoke(
        app, ["train", *options, "--target-epsilon", column(own, tmp_path), "--out", "run", "--json"]
    )
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)["certified"]
    again = CliRunner().invoke(app, ["account", "--run", "run", "--json"])
    assert json.loads(again.stdout)["certified"]["epsilon_by_round"] == said["epsilon_by_round"]
