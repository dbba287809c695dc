"""The gate of a run cannot be forgotten: targets, resumed runs, accounts; from outside, as a stranger would."""

import copy
import json
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from typer.testing import CliRunner

import apes
from apes.cli.main import app
from apes.training.run import RoundMetrics

DATA = np.random.default_rng(1).random((600, 5), dtype=np.float32)
LABELS = (DATA[:, 0] > 0.5).astype(int)


def people(budgets=0.5, data=DATA):
    return apes.People.from_arrays(data, LABELS, budgets=np.full(600, budgets))


MODEL = apes.LogisticRegression(5, 2)
PLAN = apes.Plan(clip=0.1, rounds=4, delta=1e-5)


@pytest.fixture(scope="module")
def free():
    """A run without a target, and where it stood after every round."""
    reached = []
    return apes.train(MODEL, people(), PLAN, after_round=reached.append), reached


def epsilons(run):
    return [entry.epsilon for entry in run.metrics]


def test_a_run_carries_its_guarantee(free):
    run, _ = free
    assert run.guarantee.epsilon == epsilons(run)[-1] == max(epsilons(run))
    assert (run.guarantee.delta, run.guarantee.neighbours) == (1e-5, "replace-one-user")
    assert run.guarantee.why_not_certified is None


def test_a_target_stops_training_before_the_round_that_would_pass_it(free):
    spent = epsilons(free[0])
    limited = apes.train(MODEL, people(), replace(PLAN, target_epsilon=(spent[1] + spent[2]) / 2))
    assert epsilons(limited) == spent[:2]
    assert limited.guarantee.epsilon == spent[1]


def test_a_target_below_the_first_round_is_an_error_before_it(free):
    reached = []
    with pytest.raises(apes.BudgetExceeded, match="not even one round"):
        apes.train(
            MODEL, people(), replace(PLAN, target_epsilon=epsilons(free[0])[0] * 0.99), after_round=reached.append
        )
    assert reached == []


def test_a_guarantee_by_budget():
    mixed = apes.People.from_arrays(DATA, LABELS, budgets=np.repeat([0.1, 0.5, 1.0], 200))
    guarantee = apes.train(MODEL, mixed, PLAN).guarantee
    own = [guarantee.of(budget).epsilon for budget in (0.1, 0.5, 1.0)]
    assert own[0] < own[1] / 3 < own[2] / 5
    assert own[2] == guarantee.epsilon
    alone = apes.certify(mixed.budgets, delta=1e-5, dimensions=MODEL.dimensions, rounds=4)
    assert own[0] == pytest.approx(alone.of(0.1).epsilon, rel=0.02)
    for bad in (1.01, 0.0, np.nan):
        with pytest.raises(apes.ParameterError, match="budget must be in"):
            guarantee.of(bad)


def test_resumed_runs_charge_what_was_recorded(free):
    run, reached = free
    for progress in reached[:-1]:
        again = apes.train(MODEL, people(), PLAN, resume=progress)
        assert epsilons(again) == epsilons(run)
        assert again.model_sha256 == run.model_sha256


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"people": people(0.1)}, "people"),
        ({"people": people(data=DATA[::-1])}, "people"),
        ({"plan": replace(PLAN, delta=1e-3)}, "terms"),
        ({"plan": replace(PLAN, clip=0.2)}, "terms"),
        ({"plan": replace(PLAN, target_epsilon=1e9)}, "terms"),
        ({"plan": replace(PLAN, rounds=5)}, "terms"),
        ({"plan": replace(PLAN, seed=2)}, "schedule"),
        ({"plan": replace(PLAN, learning_rate=0.5)}, "schedule"),
        ({"model": apes.LogisticRegression(5, 2, apes.FedProx())}, "terms"),
    ],
    ids=["budgets", "data", "delta", "clip", "target", "rounds", "seed", "rate", "model"],
)
def test_a_run_is_resumed_as_what_it_began(free, change, what):
    given = {"model": MODEL, "people": people(), "plan": PLAN} | change
    with pytest.raises(apes.ParameterError, match=f"resume must be of the same {what}"):
        apes.train(given["model"], given["people"], given["plan"], resume=free[1][1])


def altered(thing, **changes):
    """A copy of something frozen, unchecked."""
    thing = copy.copy(thing)
    for name, value in changes.items():
        object.__setattr__(thing, name, value)
    return thing


class Cheap(apes.Exposure):
    def curves(self, *others):
        return replace(apes.Exposure(np.full(600, 0.001), 1)).curves(*others)


def cheaper(e):
    """Other budgets under the name of those that were charged."""
    return altered(e, budgets=e.budgets / 10, budgets_sha256=e.budgets_sha256)


def broken(p, **changes):
    return replace(p, state=replace(p.state, **changes))


@pytest.mark.parametrize(
    "forged",
    [
        lambda p: "abc",
        lambda p: replace(p, exposures=tuple(cheaper(e) for e in p.exposures)),
        lambda p: replace(p, exposures=p.exposures[::-1]),
        lambda p: broken(p, weights=np.full(12, np.nan)),
        lambda p: broken(p, velocity=np.zeros(11)),
        lambda p: broken(p, average=np.zeros(12, dtype="<U3")),
        lambda p: broken(p, step=np.inf),
        lambda p: replace(p, exposures=()),
        lambda p: replace(p, exposures=p.exposures[:1]),
        lambda p: replace(p, metrics=p.metrics[:1]),
        lambda p: replace(p, exposures=tuple(altered(e, charged=1) for e in p.exposures)),
        lambda p: replace(p, exposures=tuple(replace(e, budgets=e.budgets / 10) for e in p.exposures)),
    ],
)
def test_a_run_whose_charges_were_forged_is_not_resumed(free, forged):
    with pytest.raises(apes.ParameterError, match=r"^resume(\.state\.\w+)? must|^resume\.state\.weights\[0\] must"):
        apes.train(MODEL, people(), PLAN, resume=forged(free[1][1]))


def test_what_recorded_exposures_say_of_themselves_is_not_believed(free):
    reached = free[1][1]
    cheap = [Cheap(**{field.name: getattr(e, field.name) for field in fields(e)}) for e in reached.exposures]
    with pytest.raises(apes.ParameterError, match=r"exposure must be of apes's own class Exposure, got Cheap"):
        apes.train(MODEL, people(), PLAN, resume=replace(reached, exposures=tuple(cheap)))
    honest = tuple(altered(e, budgets_sha256="0" * 64) for e in reached.exposures)
    again = apes.train(MODEL, people(), PLAN, resume=replace(reached, exposures=honest))
    assert epsilons(again) == epsilons(free[0])
    assert [e.as_dict() for e in again.exposures] == [e.as_dict() for e in free[0].exposures]


@pytest.mark.parametrize("change", [{"seconds": None}, {"accuracy": "0.5"}, {"loss": [1.0]}, {"round": None}])
def test_metrics_are_numbers(change):
    with pytest.raises(apes.ParameterError, match=f"{next(iter(change))} must be a number"):
        RoundMetrics(**({"round": 1, "accuracy": None, "loss": None, "seconds": 0.0} | change))


@pytest.mark.parametrize(
    ("form", "least"),
    [({}, 50), ({"sparsifier": "threshold"}, 50), ({"top_b_first": 3, "sparsifier": "top-b-first"}, 6)],
)
def test_no_fewer_coordinates_are_charged_than_can_differ(form, least):
    budgets = np.full(100, 0.5)
    assert apes.Exposure(budgets, least, dimensions=50, **form).charged == least
    with pytest.raises(apes.ParameterError, match=rf"charged must be in \[{least}, 50\]"):
        apes.Exposure(budgets, least - 1, dimensions=50, **form)
    assert apes.Exposure(budgets, 3, dimensions=50, sparsifier="random-b").charged == 3


class Fewer(apes.Terms):
    def charged(self, dimensions):
        return 1


class Other(apes.Plan):
    terms = Fewer()


def test_terms_with_methods_of_ones_own_are_not_believed():
    for given, kind in ((Fewer(), "Terms"), (None, "Terms"), (PLAN, "Terms")):
        with pytest.raises(apes.ParameterError, match=f"terms must be of apes's own class {kind}"):
            apes.PrivateMean(given, 3)
    for given in (Other(), None, apes.Terms()):
        with pytest.raises(apes.ParameterError, match="plan must be of apes's own class Plan"):
            apes.train(MODEL, people(), given)
    forged = altered(PLAN, terms=Fewer())
    assert apes.train(MODEL, people(), forged).exposures[0].charged == MODEL.dimensions


def test_what_is_no_model_and_who_are_no_people():
    with pytest.raises(apes.ParameterError, match=r"model must have start, .* got NoneType"):
        apes.train(None, people(), PLAN)
    with pytest.raises(apes.ParameterError, match="people must have block, got NoneType"):
        apes.train(MODEL, None, PLAN)


def test_an_accountant_belongs_to_one_run():
    accountant = apes.Accountant(1e-5, expected_rounds=3)
    first = apes.Exposure(np.full(100, 0.5), 10, round=1)
    accountant.charge(first)
    with pytest.raises(apes.ParameterError, match="round must be 2, the next to be charged; got 1"):
        accountant.charge(first)
    with pytest.raises(apes.ParameterError, match="exposure must have the form"):
        accountant.charge(apes.Exposure(np.full(100, 0.5), 7850, round=2))
    assert accountant.rounds == 1


def test_an_accountant_keeps_its_delta_and_target():
    accountant = apes.Accountant(1e-5, expected_rounds=1, target=1.0)
    for name in ("delta", "target"):
        with pytest.raises(AttributeError):
            setattr(accountant, name, 0.4)
    assert (accountant.delta, accountant.target) == (1e-5, 1.0)


def test_asking_about_one_form_does_not_change_what_another_costs():
    budgets = np.full(200, 0.5)
    asked, honest = (apes.Accountant(1e-5, expected_rounds=1) for _ in range(2))
    asked.after(apes.Exposure(budgets, 1))
    assert asked.charge(apes.Exposure(budgets, 1000)) == honest.charge(apes.Exposure(budgets, 1000))


def test_what_was_charged_cannot_be_changed_afterwards(free):
    for exposure in free[0].exposures:
        with pytest.raises(ValueError, match="read-only"):
            exposure.budgets[:] = 0.001
        with pytest.raises(ValueError, match="WRITEABLE"):
            exposure.budgets.setflags(write=True)


@pytest.mark.parametrize("change", [{"mechanism": "laplace"}, {"sparsifier": "top-b"}, {"shuffled": False}])
def test_only_what_is_proved_has_a_certificate(change):
    with pytest.raises(apes.ParameterError, match="why_not_certified must say why"):
        apes.Exposure(np.full(100, 0.5), 10, **change)
    assert apes.Exposure(np.full(100, 0.5), 10, why_not_certified="unproved", **change).why_not_certified


def test_top_b_cannot_be_resumed_as_certified():
    plan = apes.Plan(framework="s-apes", rounds=2)
    reached = []
    apes.train(MODEL, people(), plan, after_round=reached.append)
    assert reached[0].exposures[0].why_not_certified is not None
    honest = apes.Exposure(np.full(600, 0.5), 12, round=1, clip=0.1, sparsifier="threshold")
    with pytest.raises(apes.ParameterError, match="resume must be of rounds under these terms"):
        apes.train(MODEL, people(), plan, resume=replace(reached[0], exposures=(honest,)))


def test_what_is_not_certified_costs_infinitely_much():
    accountant = apes.Accountant(1e-5, expected_rounds=3, target=1e6)
    unproved = apes.Exposure(np.full(100, 0.5), 10, why_not_certified="nobody knows")
    assert not accountant.allows(unproved)
    with pytest.raises(apes.BudgetExceeded):
        accountant.charge(unproved)
    with pytest.raises(apes.ParameterError, match="why_not_certified must say why"):
        apes.Exposure(np.full(100, 0.5), 10, shuffled=False)


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Run a command in this process: a start takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "run"
    options = ["train", "--users", "50", "--rounds", "1", "--out", str(path)]
    assert CliRunner().invoke(app, options).exit_code == 0
    return path


@pytest.fixture
def killed_after(tmp_path):
    """Kill a run in the folder ``run`` once so many rounds are over; the last is never among them."""

    def kill(rounds, *arguments):
        command = [sys.executable, "-m", "apes", *map(str, arguments)]
        process, metrics = subprocess.Popen(command, cwd=tmp_path), tmp_path / "run" / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < rounds:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.wait()

    return kill


def test_a_resumed_run_refuses_budgets_that_changed_meanwhile(cli, killed_after, tmp_path):
    """3,000 users at 3.0, stopped, the file rewritten to 0.1: once that was certified at 0.63."""
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("\n".join(["3.0"] * 300))
    options = ["--budgets", f"file:{budgets}", "--users", 300, "--rounds", 20, "--seed", 3]
    whole = json.loads(cli("train", *options, "--json").stdout)
    killed_after(2, "train", *options, "--out", "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    budgets.write_text("\n".join(["0.1"] * 300))
    refused = cli("train", "--resume", "run")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "resume must be of the same people (data or budgets)" in refused.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    budgets.write_text("\n".join(["3.0"] * 300))
    resumed = json.loads(cli("train", "--resume", "run", "--json").stdout)
    assert resumed["certified"]["epsilon_by_round"] == whole["certified"]["epsilon_by_round"]


def test_a_log_that_was_cut_is_refused(cli, tmp_path):
    assert cli("train", "--preset", "paper", "--users", 50, "--rounds", 2, "--out", "run").exit_code == 0
    log = tmp_path / "run" / "exposures.jsonl"
    lines = log.read_text().splitlines()
    forged = [line.replace('"charged": 7850', '"charged": 1') for line in lines]
    deep = ["[" * 100_000]
    mixed = [lines[0], lines[1].replace('"terms": "', '"terms": "0')]
    for name in (None, "checkpoint.npz", "metrics.jsonl"):
        if name is not None:
            (tmp_path / "run" / name).unlink()
        for cut, said in (
            (lines[:1], "not the whole log"),
            ([], "has released nothing"),
            (forged, "charged must be in [7850, 7850] here, got 1"),
            (deep, "is not the log of a run"),
            (["null"], "is not the log of a run"),
            (mixed, "it has lines of several"),
        ):
            log.write_text("".join(line + "\n" for line in cut))
            refused = cli("account", "--run", "run")
            assert (refused.exit_code, said in refused.stderr) == (2, True), (said, refused.stderr)
    (tmp_path / "run" / "config.json").unlink()
    assert "out must be a new folder" in cli("train", "--users", 50, "--out", "run").stderr
    assert "users must be left out: a run has its own" in cli("account", "--run", "run", "--users", 5).stderr


def test_rounds_without_their_checkpoint_are_not_released_again(cli, tmp_path):
    run = tmp_path / "run"
    assert cli("train", "--users", 50, "--rounds", 2, "--out", "run").exit_code == 0
    (run / "checkpoint.npz").unlink()
    config, log = (run / "config.json").read_text(), (run / "exposures.jsonl").read_text()
    (run / "config.json").write_text(config.replace('"seed": 1', '"seed": 2'))
    for name in ("metrics.jsonl", "model.npz", "summary.json"):
        refused = cli("train", "--resume", "run")
        assert (refused.exit_code, "its checkpoint is gone" in refused.stderr) == (2, True)
        (run / name).unlink()
    assert (run / "exposures.jsonl").read_text() == log
    # One round too many is what a crash leaves: it is done again by the same run, and by no other.
    (run / "exposures.jsonl").write_text(log.splitlines()[0] + "\n")
    refused = cli("train", "--resume", "run")
    assert (refused.exit_code, "is of another run than this" in refused.stderr) == (2, True)
    (run / "config.json").write_text(config)
    assert cli("train", "--resume", "run").exit_code == 0
    assert (run / "exposures.jsonl").read_text() == log


@pytest.mark.parametrize(
    "damage",
    [
        {"step": np.array(np.inf)},
        {"step": np.array("x")},
        {"velocity": np.zeros(3)},
        {"weights": np.full(7850, np.nan)},
        {"weights": np.full(7850, "a")},
        {"header": np.frombuffer(b"[" * 100_000, np.uint8)},
        {"metrics": [None]},
        {"metrics": [{"round": 1, "accuracy": None, "loss": None, "seconds": None}]},
    ],
    ids=str,
)
def test_a_damaged_checkpoint_is_one_line(cli, tmp_path, damage, small_run):
    shutil.copytree(small_run, tmp_path / "run")
    file = tmp_path / "run" / "checkpoint.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    if "metrics" in damage:
        header = json.loads(bytes(arrays["header"])) | damage
        damage = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    np.savez(file, **(arrays | damage))
    refused = cli("train", "--resume", "run")
    assert (refused.exit_code, refused.stderr.splitlines()[-1][:6]) == (2, "apes: "), refused.stderr


def test_a_configuration_that_is_too_deep_is_one_line(cli, tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    for command in (["account", "--run", "."], ["train", "--resume", "."]):
        refused = cli(*command)
        assert (refused.exit_code, "is not the configuration of a run" in refused.stderr) == (2, True)


def test_a_target_out_of_reach_leaves_no_folder(cli, tmp_path):
    refused = cli("train", "--clip", 0.1, "--users", 50, "--rounds", 2, "--target-epsilon", 0.01, "--out", "run")
    assert (refused.exit_code, "not even one round" in refused.stderr) == (2, True)
    assert not (tmp_path / "run").exists()


def test_the_log_alone_gives_the_guarantee_again(cli, tmp_path):
    options = ["--users", 200, "--rounds", 2, "--framework", "s-apes-first", "--keep", 0.01, "--out", "run"]
    trained = json.loads(cli("train", *options, "--json").stdout)
    for file in ("checkpoint.npz", "model.npz", "summary.json", "metrics.jsonl"):
        (tmp_path / "run" / file).unlink()
    again = json.loads(cli("account", "--run", "run", "--json").stdout)
    for name in ("epsilon", "delta", "epsilon_by_round"):
        assert again["certified"][name] == trained["certified"][name]
    budgets = next((tmp_path / "run" / "budgets").iterdir())
    np.save(budgets, np.full(200, 0.01))
    forged = cli("account", "--run", "run")
    assert forged.exit_code == 2
    assert "other budgets than those that were kept" in forged.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budgets", "zzz"], "budgets must be one of"),
        (["--budgets", "file:none.csv"], "cannot read the budgets"),
        (["--split", "zzz"], "split must be"),
        (["--data", "zzz"], "data must be one of"),
        (["--normalise", "zzz"], "normalise must be"),
        (["--threads", "0"], "threads must be"),
        (["--users", "70000"], "users"),
    ],
)
def test_a_failed_start_leaves_nothing(cli, tmp_path, options, said):
    failed = cli("train", *options, "--rounds", 1, "--out", "run")
    assert failed.exit_code == 2
    assert said in failed.stderr
    assert not (tmp_path / "run").exists()
    assert cli("train", "--users", 50, "--rounds", 1, "--out", "run").exit_code == 0
