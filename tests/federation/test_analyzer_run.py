"""The analyzer's run, without a network: its guarantee is the limit that was agreed, and no other cohorts count."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from parties import BUDGETS, LEVELS, LIMITS, agreed, counts_of
from typer.testing import CliRunner

from apes import Examples, Schedule
from apes.cli.main import app
from apes.errors import ProtocolError
from apes.federation.analyzer import AnalyzerRun
from apes.federation.parties import Servers, Task, invite
from apes.messages import CountedBatch
from apes.training.run_folder import RunFolder
from apes.wire.release import Release

USERS = [range(8), range(3), range(2, 7)]


@pytest.fixture
def open_run(tmp_path, monkeypatch):
    """Open the run of an analyzer whose shuffler has released these rounds; after the first time, once more."""
    terms, test = agreed(), Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    invitation = invite(tmp_path / "f", Task(terms, Schedule(), test), Servers(("here", 1), ("there", 2), 1))
    released = {}

    def open_again(rounds):
        for number, users in enumerate(rounds, 1):
            batch = CountedBatch(counts_of(LEVELS[list(users)]), np.sort(BUDGETS[list(users)]))
            released[number] = Release(invitation.run, number, terms.digest, batch)
        run = AnalyzerRun(tmp_path / "f" / "analyzer" / "analyzer.json")
        monkeypatch.setattr(run._shuffler, "release", lambda _, number: released.get(number))
        return run, released

    return open_again


def spent_by(terms, rounds):
    """What cohorts have spent after each round, by the Gaussians that a filter counts in."""
    accountant, figures = terms.terms.accountant(1, settled=False), []
    for users in rounds:
        figures.append(accountant.record(terms.terms.exposure(0, BUDGETS[list(users)], terms.dimensions)))
    return figures


def test_the_guarantee_is_the_limit(open_run):
    """Also for a run that was stopped, opened again, and certified from its folder."""
    run, _ = open_run(USERS)
    assert not run.begin_round()
    run, _ = open_run(USERS)
    assert not any(run.begin_round() for _ in range(2))
    assert run.is_done
    run.finish()
    certified = json.loads((run.folder / "summary.json").read_text())["certified"]
    limit = run.terms.limit
    assert (certified["epsilon"], certified["road"]) == (limit.epsilon(1e-3), "adaptive")
    assert certified["mu"] == limit.mu_squared**0.5
    assert certified["epsilon_by_round"] == spent_by(run.terms, USERS)
    assert certified["epsilon_by_round"][-1] < certified["epsilon"]
    by_round, guarantee = RunFolder.open(run.folder).recertify()
    assert (by_round, guarantee.epsilon) == (certified["epsilon_by_round"], certified["epsilon"])


def test_the_worst_cohort_in_every_round_is_within_the_limit(open_run):
    run, released = open_run(USERS)
    for number in (1, 2, 3):
        batch = replace(released[number].batch, counts=counts_of(LEVELS[:3]), budgets=np.full(3, 1.0))
        released[number] = replace(released[number], batch=batch)
        assert not run.begin_round()
    run.finish()
    certified = json.loads((run.folder / "summary.json").read_text())["certified"]
    assert certified["epsilon_by_round"][-1] == pytest.approx(certified["epsilon"], rel=1e-3)


@pytest.mark.parametrize(
    "budgets", [[1.0, 1.0], [0.5, 0.5, 1.001], [0.5, 0.5, 0.049]], ids=["too few", "too large", "too small"]
)
def test_a_cohort_beyond_the_limits_does_not_count(open_run, budgets):
    run, released = open_run(USERS)
    batch = CountedBatch(counts_of(LEVELS[: len(budgets)]), np.array(budgets))
    released[1] = replace(released[1], batch=batch)
    with pytest.raises(ProtocolError, match="release 1 is of a cohort beyond the terms' limits"):
        run.begin_round()
    assert (run.progress.rounds, Counter(path.name for path in run.folder.iterdir())) == (0, {"config.json": 1})
    assert LIMITS.takes(np.array([0.05, 1.0]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta", 0.4),
        ("expected_rounds", 1),
        ("target", 1e-3),
        ("colluders", 1),
        ("settled", True),
        ("limit", None),
        ("limit", {"mu_squared": 1e-9, "delta": 1e-9}),
        ("rounds", 1),
        ("cohorts", "0" * 64),
    ],
)
def test_a_finished_run_is_not_certified_as_another(open_run, name, value):
    """As settled, say, for what was spent; or for a smaller limit."""
    run, _ = open_run(USERS)
    while not run.is_done:
        assert not run.begin_round()
    run.finish()
    file = run.folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"basis": config["basis"] | {name: value}}))
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    refused = CliRunner().invoke(app, ["account", "--run", str(run.folder)])
    assert (refused.exit_code, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1)
    assert f"config.json is not that of its log: {name} is" in refused.stderr
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before
