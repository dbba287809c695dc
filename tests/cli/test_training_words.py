"""What `apes train` says while it trains and afterwards: on terminals of any width, in files, and of going on."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apes import make_budgets
from apes.cli import watching
from apes.cli.main import app
from apes.cli.train import data_dir_of
from apes.terms.spelling import train_words
from apes.training.run import RoundMetrics
from apes.training.run_folder import RunFolder

SMALL = ("train", "--preset", "paper", "--users", "200", "--seed", "3")


def cli(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def watched(console, rounds=60, framework="s-apes-threshold"):
    """All that is shown of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "console", console)
        with watching.training_rounds(framework, rounds, 0, lambda: " on 16 processes") as show:
            for number in range(1, rounds + 1):
                show(RoundMetrics(number, 0.8512, 0.5123, 0.1, 0.4321))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_bar_is_one_line_on_any_terminal(width):
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, legacy_windows=False)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", watched(screen))
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    last = lines[-1]
    assert len(last) <= width
    assert all(word in last for word in ("s-apes-threshold", "60/60", "85.12 %", "epsilon 0.433", "left"))
    assert ("loss" in last) == ("processes" in last) == (width >= 120)


def test_piped_there_are_a_few_plain_lines():
    shown = watched(Console(file=io.StringIO(), width=80))
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert 10 <= len(lines) <= 12
    said = "training s-apes-threshold on 16 processes: round {} of 60, accuracy 85.12 %, loss 0.512, epsilon 0.433"
    # Nothing of the time that is left: in the first round loops may have been compiled.
    assert lines[0] == said.format(1)
    assert lines[1].startswith(said.format(6) + ", about ")
    assert lines[-1] == said.format(60)


@pytest.mark.service
def test_what_was_asked_for_goes_to_stdout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(*SMALL, "--rounds", 2, "--budgets", "constant:0.05")
    assert "test accuracy" in done.stdout
    assert "round 2 of 2" in done.stderr
    assert "round 2 of 2" not in done.stdout
    quiet = cli(*SMALL, "--rounds", 2, "--budgets", "constant:0.05", "--json")
    assert json.loads(quiet.stdout)["stopped"] == "rounds"
    assert "test accuracy" not in quiet.stdout


@pytest.mark.service
def test_a_run_that_ended_at_its_target_says_so_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = (*SMALL, "--rounds", 5, "--budgets", "constant:0.5", "--delta", "1e-4")
    spent = json.loads(cli(*options, "--json").stdout)["certified"]["epsilon_by_round"]
    done = cli(*options, "--target-epsilon", spent[1], "--out", "run", "--json")
    summary = json.loads(done.stdout)
    assert (summary["stopped"], summary["rounds"], summary["planned_rounds"]) == ("target", 2, 5)
    more = summary["more_rounds"]
    assert more["epsilon_after_next"] == pytest.approx(spent[2])
    assert more["epsilon_of_all"] == pytest.approx(spent[4])
    # What it says lets all rounds take place, and keeps to the target.
    again = json.loads(cli(*more["command"].split()[1:], "--json").stdout)
    assert (again["stopped"], again["rounds"]) == ("rounds", 5)
    assert again["certified"]["epsilon"] <= spent[1]
    text = " ".join(cli("train", "--resume", "run").stdout.split())
    assert "2 rounds (5 were planned)" in text
    assert "at the target: a further round would bring epsilon to" in text
    assert more["command"] in text
    assert "stopped at the target" in cli("show", "run").stdout


@pytest.mark.service
def test_from_another_folder(tmp_path, monkeypatch):
    """Files that were named from where one stood are found again from elsewhere."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    budgets = make_budgets("uniform2", 200, 1)
    rows = [f"{budget},{500 * budget}" for budget in budgets.tolist()]
    (here / "people.csv").write_text("own,wish\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(here)
    kept = RunFolder.save

    def save(folder, progress):
        kept(folder, progress)
        raise KeyboardInterrupt

    options = ("--budgets", "file:people.csv:own", "--target-epsilon", "file:people.csv:wish", "--rounds", 2)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        cli(*SMALL, *options, "--out", "run", code=130)
    monkeypatch.chdir(there)
    done = json.loads(cli("train", "--resume", "../here/run", "--json").stdout)
    assert done["rounds"] == 2
    # Said again from where it was said first, it is the same.
    monkeypatch.chdir(here)
    cli("train", "--resume", "run", "--budgets", "file:people.csv:own")
    refused = cli("train", "--resume", "run", "--budgets", "file:people.csv:wish", code=2)
    assert "budgets must be" in refused.stderr


def test_where_a_named_sets_files_are_is_remembered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(tmp_path / "run", {}, {}, data="mnist", data_dir=Path("sets"))
    for opened in (folder, RunFolder.open(tmp_path / "run")):
        assert data_dir_of(None, opened) == tmp_path / "sets"
        assert data_dir_of(Path("others"), opened) == Path("others")
    assert data_dir_of(None, None) is None
    # Folders of earlier versions do not say.
    file = tmp_path / "run" / "private" / "choices.json"
    own = json.loads(file.read_text())
    del own["data_dir"]
    file.write_text(json.dumps(own))
    assert data_dir_of(None, RunFolder.open(tmp_path / "run")) is None


def test_commands_are_spelt_as_they_are_typed():
    words = train_words({"data": "a b.csv", "user_column": "who", "label_column": "y", "bounds": "-1:1", "seed": None})
    assert words == "apes train --data 'a b.csv' --user-column who --label-column y --bounds=-1:1"
    assert train_words({"data": "digits", "levels": None, "users": 10_000}) == "apes train"
