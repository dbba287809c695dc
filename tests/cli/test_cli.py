"""The command line as a person uses it: real files, and real processes where a process is what matters.

A process takes seconds to start, so what is only said or counted is asked of the same commands inside this one.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from apes import ApesError, DataError, ParameterError, make_budgets
from apes.cli import shared
from apes.cli.choices import Choices, make_choices
from apes.cli.main import app

TRAIN = ["train", "--preset", "paper", "--users", "300", "--rounds", "4", "--seed", "3"]
# Trains as TRAIN says, and ends as a kill -9 ends it, right after the third round was kept.
KILLED_AFTER_ROUND_3 = """
import os, signal, sys
from apes.cli.main import main
from apes.training.run_folder import RunFolder

kept = RunFolder.save

def save(folder, progress):
    kept(folder, progress)
    if progress.rounds == 3:
        os.kill(os.getpid(), signal.SIGKILL)

RunFolder.save = save
sys.argv = ["apes", *sys.argv[1:]]
main()
"""


def run_apes(folder, *arguments, **options):
    environment = dict(os.environ, COLUMNS="200")
    command = [sys.executable, "-m", "apes", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, **options)


@pytest.fixture
def apes(tmp_path):
    """Run a command in a process of its own."""
    return lambda *arguments, **options: run_apes(tmp_path, *arguments, **options)


@pytest.fixture
def apes_here(tmp_path, monkeypatch):
    """Run a command in this process."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is done, of which tests take copies."""
    run = tmp_path_factory.mktemp("finished") / "run"
    done = CliRunner().invoke(app, [*TRAIN, "--out", str(run), "--json"])
    assert done.exit_code == 0, done.output
    return run


def model(folder):
    with np.load(folder / "model.npz") as stored:
        return stored["weights"]


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.process
def test_train_writes_everything_and_prints_one_json_object(apes, tmp_path):
    done, run = apes(*TRAIN, "--out", "run", "--json"), tmp_path / "run"
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    promised = (
        "framework budgets users dimensions rounds seed data accuracy accuracy_by_round seconds seconds_per_round "
        "peak_memory_mb model_sha256"
    )
    assert set(promised.split()) <= set(result)
    assert (result["framework"], result["users"], result["dimensions"], result["data"]) == ("apes", 300, 7850, "digits")
    assert len(result["accuracy_by_round"]) == 4
    assert result["accuracy"] == result["accuracy_by_round"][-1] > 0.2
    metrics = [json.loads(line) for line in (run / "private/metrics.jsonl").read_text().splitlines()]
    assert [entry["accuracy"] for entry in metrics] == result["accuracy_by_round"]
    exposures = [json.loads(line) for line in (run / "exposures.jsonl").read_text().splitlines()]
    assert [exposure["round"] for exposure in exposures] == [1, 2, 3, 4]
    assert exposures[0]["neighbours"] == "replace-one-user"
    kept = np.load(run / "budgets" / f"{exposures[0]['budgets_sha256']}.npy")
    assert kept.tolist() == np.sort(make_budgets("uniform2", 300, 3)).tolist()
    assert model(run).shape == (7850,)
    assert result["model_sha256"] == hashlib.sha256(model(run).astype("<f8").tobytes()).hexdigest()
    assert (run / "private/accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((run / "config.json").read_text())["choices"]["users"] == 300
    assert done.stderr.splitlines()[-1].startswith("training apes on ")
    assert ": round 4 of 4, accuracy " in done.stderr.splitlines()[-1]


@pytest.mark.service
def test_out_that_holds_a_run_is_left_alone(apes_here, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    before = contents(tmp_path / "run")
    again = apes_here(*TRAIN, "--out", "run")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "out must be a new folder" in again.stderr
    assert contents(tmp_path / "run") == before


def charged(run):
    lines = [json.loads(line) for line in (run / "exposures.jsonl").read_text().splitlines()]
    assert {line["run"].pop("name") for line in lines if line["run"]}
    return lines


@pytest.mark.process
def test_killed_run_resumes_to_the_same_model(apes, finished, tmp_path):
    command = [sys.executable, "-c", KILLED_AFTER_ROUND_3, *TRAIN, "--out", "killed"]
    killed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len((tmp_path / "killed" / "private/metrics.jsonl").read_text().splitlines()) == 3
    assert not (tmp_path / "killed" / "model.npz").exists()
    resumed = apes("train", "--resume", "killed", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert np.array_equal(model(tmp_path / "killed"), model(finished))
    assert len(json.loads(resumed.stdout)["accuracy_by_round"]) == 4
    # What was spent is told from either folder alike, with whose budgets; each run has a name of its own.
    assert charged(tmp_path / "killed") == charged(finished)
    name = f"budgets/{next((finished / 'budgets').iterdir()).name}"
    assert (tmp_path / "killed" / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budgets", "constant:0"], "budgets must be in (0, inf)"),
        (["--budgets", "constant:-1"], "budgets must be in (0, inf)"),
        (["--budgets", "constant:nan"], "budgets must be in (0, inf)"),
        (["--budgets", "file:none.csv"], "cannot read the budgets in "),
        (["--users", "0"], "users must be in [1, 100000000], got 0"),
        (["--users", "60001"], "users"),
        (["--clip", "0"], "clip must be in (0, inf), got 0.0"),
        (["--clip", "nan"], "clip must be in (0, inf), got nan"),
        (["--norm", "0"], "norm must be in (0, inf), got 0.0"),
        (["--norm", "1", "--levels", "16"], "levels must be 2 with a norm, got 16"),
        (["--levels", "1"], "levels must be in [2, 256], got 1"),
        (["--levels", "many"], "levels must be in [2, 256] or 'continuous', got 'many'"),
        (["--levels", "\u00b2"], "levels must be in [2, 256] or 'continuous', got '\u00b2'"),
        (["--levels", "9" * 5000], "levels must be in [2, 256] or 'continuous', got '99999999999999999999'"),
        (["--out", ""], "out must name a folder of its own"),
        pytest.param(
            ["--clip", "0.1", "--budgets", "constant:1e-300", "--users", "50"],
            "budgets must be larger",
            marks=pytest.mark.service,
        ),
        (["--threads", "0"], "threads must be in [1, inf), got 0"),
        (["--data", "cifar"], "data must be one of"),
        (["--data", "qmnist"], "apes data get qmnist"),
        (["--split", "dirichlet:0"], "dirichlet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line_and_exit_code_2(apes_here, arguments, said):
    done = apes_here("train", *arguments, "--rounds", "1")
    assert (done.exit_code, done.stdout) == (2, "")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("apes: ")
    assert said in last


@pytest.mark.parametrize("levels", ["\u00b2", "9" * 5000, "2.5", ""])
@pytest.mark.parametrize("command", ["account", "audit", "plan --target-epsilon 1 --delta 1e-5 --solve cap"])
def test_levels_are_read_alike_everywhere(apes_here, command, levels):
    done = apes_here(*command.split(), "--levels", levels)
    assert (done.exit_code, done.stderr) == (
        2,
        f"apes: --levels must be in [2, 256] or 'continuous', got {levels[:20]!r}\n",
    )


def test_what_is_printed_as_json_is_json(capsys):
    shared.tell({"finite": 1.5, "user": [float("inf"), float("nan")]}, as_json=True)
    assert capsys.readouterr().out == '{"finite": 1.5, "user": [null, null]}\n'


@pytest.mark.service
def test_truncated_data_file_is_named(apes_here, mnist_copy):
    file = mnist_copy / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:100_000])
    done = apes_here("train", "--data", "mnist", "--data-dir", mnist_copy, "--rounds", "1")
    assert done.exit_code == 2
    assert file.name in done.stderr


@pytest.mark.service
def test_checkpoint_of_another_plan_is_refused(apes_here, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "one")
    assert apes_here(*TRAIN, "--clip", "0.2", "--out", "two").exit_code == 0
    before = (tmp_path / "one" / "model.npz").read_bytes()
    contradicting = apes_here("train", "--resume", "one", "--clip", "0.2")
    assert contradicting.exit_code == 2
    assert "clip must be 0.1 to resume this run, got 0.2" in contradicting.stderr
    (tmp_path / "one" / "private/checkpoint.npz").write_bytes(
        (tmp_path / "two" / "private/checkpoint.npz").read_bytes()
    )
    mixed = apes_here("train", "--resume", "one")
    assert mixed.exit_code == 2
    assert "choices.json and checkpoint.npz are not of the same run" in mixed.stderr
    shutil.rmtree(tmp_path / "one" / "budgets")
    unknown = apes_here("train", "--resume", "one")
    assert (unknown.exit_code, "so what was spent is not known" in unknown.stderr) == (2, True)
    assert (tmp_path / "one" / "model.npz").read_bytes() == before


@pytest.mark.service
def test_damaged_checkpoint_and_missing_run(apes_here, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    file = tmp_path / "run" / "private/checkpoint.npz"
    file.write_bytes(file.read_bytes()[:1000])
    damaged = apes_here("train", "--resume", "run")
    assert (damaged.exit_code, "is damaged" in damaged.stderr) == (2, True)
    missing = apes_here("train", "--resume", "nowhere")
    assert (missing.exit_code, "holds no run" in missing.stderr) == (2, True)


def test_a_run_with_choices_that_are_not_known_here():
    choices = Choices.of({"users": 300}).as_dict()
    assert make_choices({}, choices).as_dict() == make_choices({"users": 300}, choices).as_dict() == choices
    with pytest.raises(DataError, match=r"choices that are not known here: flavour$"):
        make_choices({}, choices | {"flavour": "sweet"})


def test_a_run_is_resumed_under_its_own_terms_alone():
    earlier = Choices.of({"users": 300, "clip": 0.1}).as_dict()
    with pytest.raises(ParameterError, match=r"^clip must be 0\.1 to resume this run, got 0\.2$"):
        make_choices({"clip": 0.2}, earlier)
    with pytest.raises(ParameterError, match=r"^cap must be left out to resume this run, got 0\.5$"):
        make_choices({"cap": 0.5}, earlier)


def test_options_count_for_more_than_a_plan_file_and_that_for_more_than_the_preset(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"choices": {"clip": 0.3, "rounds": 7}, "found_on": "qmnist", "found": {}}))
    chosen = make_choices({"rounds": 9}, preset="paper", plan=plan)
    assert (chosen.plan.rounds, chosen.plan.clip, chosen.people.features) == (9, 0.3, "pixels")


def test_a_plan_that_was_found_on_the_data_to_train_on_is_refused(tmp_path):
    """Its search looked at them, and nobody charged for that."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"choices": {"clip": 0.3}, "found_on": "digits", "found": {}}))
    with pytest.raises(ApesError, match="digits"):
        make_choices({"data": "digits"}, plan=plan)


@pytest.mark.parametrize(("text", "shown"), [("a\x1b[2Jb", "a\\x1b[2Jb"), ("a\nb\rc", "a b c"), ("\u202e", "\\u202e")])
def test_nothing_that_would_move_a_cursor_is_said_as_it_is(text, shown):
    assert shared.spelt_out(text) == shown


@pytest.mark.parametrize(
    "error", [ParameterError("no"), DataError("no"), ApesError("no"), OSError("no"), MemoryError("no")]
)
def test_every_error_that_can_be_mended_is_one_line(error, capsys):
    with pytest.raises(typer.Exit) as left, shared.in_one_line():
        raise error
    assert left.value.exit_code == 2
    said = capsys.readouterr().err
    assert said.startswith("apes: ")
    assert said.count("\n") == 1


@pytest.mark.process
def test_full_disk_keeps_the_last_checkpoint(apes, tmp_path):
    # A limit on the size of written files stands in for a full disk: the write itself fails, for real.
    done = apes(*TRAIN, "--out", "run", preexec_fn=_no_large_files)
    assert done.returncode == 2
    assert "apes: " in done.stderr.splitlines()[-1]
    left = {file.name for file in contents(tmp_path / "run") if file.parent.name in ("run", "private")}
    # The configuration, and what the round was charged for; no checkpoint, nothing half-written.
    assert left == {
        "config.json",
        "exposures.jsonl",
        "README.txt",
        "choices.json",
        "identity.json",
        "digest.key",
        "run.lock",
    }


def _no_large_files():
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


@pytest.mark.service
def test_train_with_a_norm(apes_here):
    done = apes_here("train", "--preset", "paper", "--users", "100", "--rounds", "1", "--norm", "1", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["levels"] == 2


@pytest.mark.process
def test_version(apes):
    done = apes("--version")
    assert (done.returncode, done.stdout.count(".")) == (0, 2)


@pytest.mark.service
def test_audit(apes_here):
    options = ["--users", "3", "--budgets", "constant:2", "--levels", "4", "--dimensions", "5", "--trials", "20000"]
    done = apes_here("audit", *options, "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["passed"]
    assert 0.5 < result["coordinate_audited"] <= result["coordinate_certified"] <= 2
    assert 1 < result["user_audited"] <= result["user_certified"] <= 10
    assert apes_here("audit", "--levels", "continuous").exit_code == 2


@pytest.mark.service
def test_without_options_the_target_is_one_and_everything_is_fitted_to_it(apes_here, tmp_path):
    done = apes_here("train", "--users", "400", "--rounds", "5", "--seed", "2", "--out", "run", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["features"], result["levels"], result["norm"], result["rounds"]) == ("oriented-gradients", 2, 1.0, 5)
    assert 0.9 < result["certified"]["epsilon"] <= 1
    assert result["local_epsilon"]["coordinate"][1] <= result["cap"] < 1
    assert result["clip"] >= 0.1
    before = contents(tmp_path / "run")
    refused = apes_here("train", "--resume", "run", "--clip", "0.2")
    assert (refused.exit_code, "clip must be left out to resume this run, got 0.2" in refused.stderr) == (2, True)
    assert contents(tmp_path / "run") == before
    again = json.loads(apes_here("account", "--run", "run", "--json").stdout)
    assert again["certified"]["epsilon"] == result["certified"]["epsilon"]
    hopeless = apes_here("train", "--preset", "papers")
    assert (hopeless.exit_code, "preset must be one of private, paper" in hopeless.stderr) == (2, True)


@pytest.mark.service
def test_certified_guarantee_is_charged_and_kept(apes_here):
    options = ["train", "--preset", "paper", "--users", "500", "--rounds", "4", "--budgets", "constant:0.2", "--json"]
    free = json.loads(apes_here(*options).stdout)["certified"]
    spent = free["epsilon_by_round"]
    assert len(spent) == 4
    assert 0 < spent[0] < spent[1] < spent[2] < spent[3] == free["epsilon"]
    assert free["delta"] == 1 / 5000
    limited = json.loads(apes_here(*options, "--target-epsilon", spent[1] * 1.01).stdout)
    assert (limited["rounds"], len(limited["accuracy_by_round"])) == (2, 2)
    assert limited["certified"]["epsilon"] == spent[1]
    none = apes_here(*options, "--target-epsilon", spent[0] * 0.5)
    assert none.exit_code == 2
    assert "not even one round" in none.stderr
    unproved = json.loads(apes_here(*options, "--framework", "s-apes").stdout)["certified"]
    assert (unproved["epsilon"], "top-b looks at all" in unproved["why"]) == (None, True)
    sparse = json.loads(apes_here(*options, "--framework", "s-apes-first", "--keep", 0.02).stdout)
    assert 0 < sparse["certified"]["epsilon"] < free["epsilon"] / 3
    assert sparse["local_epsilon"]["user"] == [314 * 0.2, 314 * 0.2]
