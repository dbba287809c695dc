"""Rounds beyond those that were planned: only under a target that was there before the first of them."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import apes
from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.cli.main import app
from apes.training.going_on import filter_of, rounds_within
from apes.training.run_folder import RunFolder

DATA = np.random.default_rng(1).random((600, 5), dtype=np.float32)
LABELS = (DATA[:, 0] > 0.5).astype(int)
PEOPLE = apes.People.from_arrays(DATA, LABELS, budgets=np.repeat([0.1, 0.5], 300))
MODEL = apes.LogisticRegression(5, 2)
PLAN = apes.Plan(clip=0.1, rounds=3, delta=1e-5, target_epsilon=1.0, seed=1)


def trained(plan=PLAN, **options):
    reached = []
    return apes.train(MODEL, PEOPLE, plan, after_round=reached.append, **options), reached


@pytest.fixture(scope="module")
def first():
    """A run that is over, and where it stood."""
    return trained()


def test_what_is_guaranteed_is_the_target_for_everybody(first):
    run, reached = first
    assert run.guarantee.epsilon < PLAN.target_epsilon / 2
    more, _ = trained(resume=reached[-1], rounds=5)
    assert (len(more.metrics), more.stopped, more.guarantee.is_adaptive) == (5, "rounds", True)
    assert 0.999 * PLAN.target_epsilon < more.guarantee.epsilon <= PLAN.target_epsilon
    # Nobody has less: how many rounds there were was chosen by somebody who had seen the first ones.
    for user, budget in ((0, 0.1), (599, 0.5)):
        assert more.of_user(user).epsilon == more.guarantee.of(budget).epsilon == more.guarantee.epsilon
    # The first rounds are as they were, what they cost is charged to the filter.
    assert [entry.loss for entry in more.metrics[:3]] == [entry.loss for entry in run.metrics]
    assert [entry.epsilon for entry in more.metrics[:3]] > [entry.epsilon for entry in run.metrics]


def test_again_and_again_comes_to_the_same(first):
    reached = first[1]
    at_once, _ = trained(resume=reached[-1], rounds=6)
    _, to_five = trained(resume=reached[-1], rounds=5)
    twice, _ = trained(resume=to_five[-1], rounds=6)
    assert (twice.model_sha256, twice.guarantee) == (at_once.model_sha256, at_once.guarantee)
    # Without saying so again it stands where it stood, and is no settled run.
    still, nothing = trained(resume=to_five[-1])
    assert (nothing, len(still.metrics), still.guarantee.is_adaptive) == ([], 5, True)


def test_no_more_than_the_target_lets_through(first):
    reached = first[1]
    basis = json.loads(reached[-1].identity.basis)
    most = rounds_within(basis, reached[0].exposures[0])
    run, _ = trained(resume=reached[-1], rounds=most + 7)
    assert (len(run.metrics), run.stopped) == (most, "target")
    gate = filter_of(basis)
    gate.charge(replace(reached[0].exposures[0], round=0), most)
    with pytest.raises(apes.BudgetExceeded):
        gate.charge(replace(reached[0].exposures[0], round=0))
    _, last = trained(resume=reached[-1], rounds=most)
    with pytest.raises(apes.BudgetExceeded, match=f"rounds must be at most {most} to resume this run, got {most + 1}"):
        trained(resume=last[-1], rounds=most + 1)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"target_epsilon": None}, apes.ParameterError, "and there was none; start a new run with --rounds 9"),
        ({"target_epsilon": "own:20"}, apes.ParameterError, "and there was none"),
        # What an open plan is fitted to is spent by the rounds that were planned.
        pytest.param(
            {"clip": None, "target_epsilon": 0.2},
            apes.BudgetExceeded,
            r"fit into the target 0\.2 so; start a new run",
            marks=pytest.mark.service,
        ),
    ],
    ids=["no target", "own targets", "spent"],
)
def test_otherwise_it_is_refused(change, error, words):
    plan = replace(PLAN, **change)
    _, reached = trained(plan)
    with pytest.raises(error, match=words):
        trained(plan, resume=reached[-1], rounds=9)
    # Nor is a record of more rounds taken for one of those that were planned.
    longer = replace(reached[-1], **{name: getattr(reached[-1], name) * 2 for name in ("metrics", "exposures")})
    with pytest.raises((apes.ParameterError, apes.BudgetExceeded)):
        trained(plan, resume=longer)


@pytest.mark.parametrize(("rounds", "words"), [(2, "at least 3"), (0, "in \\[1"), (True, "whole"), (math.nan, "whole")])
def test_numbers_of_rounds_that_cannot_be(first, rounds, words):
    with pytest.raises(apes.ParameterError, match=f"rounds must be .*{words}"):
        trained(resume=first[1][-1], rounds=rounds)


def test_a_new_run_has_its_plans_rounds():
    with pytest.raises(apes.ParameterError, match="rounds must be left out: no run is resumed"):
        trained(rounds=5)


def test_where_nothing_is_certified_nothing_is_after_more_rounds_either():
    plan = apes.Plan(framework="non-private", rounds=2, seed=1)
    _, reached = trained(plan)
    more, _ = trained(plan, resume=reached[-1], rounds=4)
    assert len(more.metrics) == 4
    assert more.guarantee.why_not_certified is not None


def test_the_filter_is_stricter_than_what_was_settled():
    """Rounds that a settled run fits exactly do not all fit one whose end is chosen on the way."""
    exposure = Exposure(np.full(2000, 0.5), 100)
    settled = Accountant(1e-5, expected_rounds=50, target=1.0, settled=True)
    fits = next(n for n in range(50, 0, -1) if settled.allows(exposure, n))
    basis = {**Accountant(1e-5, expected_rounds=50, target=1.0, settled=True).as_dict(), "rounds": 50, "cohorts": "x"}
    assert 0 < rounds_within(basis, exposure) <= fits


TABLE = (
    "--user-column",
    "who",
    "--label-column",
    "is",
    "--budget-column",
    "budget",
    "--bounds",
    "0:1",
    "--test-share",
    "0",
)
OPTIONS = (*TABLE, "--clip", "0.1", "--rounds", "2", "--delta", "1e-4", "--seed", "3")


def cli(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 and "--json" in arguments else done


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of a small table that is over."""
    folder = tmp_path_factory.mktemp("going-on")
    rows = [
        f"p{user},{row[0]:.3f},{row[1]:.3f},0.05,{label}"
        for user, (row, label) in enumerate(zip(DATA, LABELS, strict=True))
    ]
    (folder / "people.csv").write_text("\n".join(["who,x,y,budget,is", *rows]) + "\n")
    cli("train", "--data", folder / "people.csv", *OPTIONS, "--target-epsilon", "5", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(done, tmp_path):
    return shutil.copytree(done, tmp_path / "run")


@pytest.mark.service
class TestFolders:
    """The same from the command line; the log alone tells what is guaranteed."""

    def test_more_rounds(self, run):
        before = cli("account", "--run", run, "--json")["certified"]
        more = cli("train", "--resume", run, "--rounds", 4, "--json")
        assert (more["rounds"], more["planned_rounds"], more["stopped"]) == (4, 2, "rounds")
        again = cli("account", "--run", run, "--json")["certified"]
        assert (before["road"], again["road"]) == ("fixed sequence", "adaptive")
        assert before["epsilon"] < 4 < 4.99 < again["epsilon"] == more["certified"]["epsilon"] <= 5
        shown = cli("show", run, "--json")
        assert (shown["state"], shown["rounds"], shown["certified"]["epsilon"]) == ("finished", 4, again["epsilon"])
        assert shown["model"]["epsilon"] == again["epsilon"]
        assert shown["model"]["rounds"] == 4
        text = (run / "private/report.html").read_text()
        assert "4 rounds, 2 of them planned beforehand" in text
        assert "chosen on the way, after looking" in text

    def test_not_with_other_choices(self, run):
        files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        for options in (["--clip", "0.2"], ["--target-epsilon", "50"], ["--delta", "0.1"], ["--seed", "4"]):
            done = cli("train", "--resume", run, "--rounds", 4, *options, code=2)
            assert "to resume this run, got" in done.stderr
        done = cli("train", "--resume", run, "--rounds", 1, code=2)
        assert "rounds must be at least 2 to resume this run, got 1" in done.stderr
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files

    def test_a_log_with_a_round_too_many_is_not_certified_as_planned(self, run):
        """Whoever adds lines of rounds to the log gets the target, or nothing; never what was settled."""
        log = run / "exposures.jsonl"
        lines = log.read_text().splitlines()
        extra = json.loads(lines[-1]) | {"round": 3}
        log.write_text("\n".join([*lines, json.dumps(extra)]) + "\n")
        found = cli("account", "--run", run, "--json")["certified"]
        assert (found["road"], found["epsilon"] > 4.99) == ("adaptive", True)

    def test_killed_on_the_way(self, run, monkeypatch):
        kept = RunFolder.save

        def save(folder, progress):
            kept(folder, progress)
            if progress.rounds == 3:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "save", save)
            done = cli("train", "--resume", run, "--rounds", 5, code=130)
        assert f"apes: stopped; go on with: apes train --resume {run} --rounds 5" in done.stderr
        shown = cli("show", run, "--json")
        assert (shown["state"], shown["rounds"], shown["model"]["rounds"]) == ("unfinished", 3, 2)
        assert shown["certified"]["epsilon"] > 4.99
        assert cli("train", "--resume", run, "--rounds", 5, "--json")["rounds"] == 5
