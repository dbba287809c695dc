"""What docs/tables.md shows runs, on patients who are made up."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
RULES = np.random.default_rng(1)


def patients(path, count=400):
    lines = ["patient,age,pressure,ward,note,wish,diagnosis"]
    for at in range(count):
        age, pressure = RULES.uniform(0, 100), RULES.uniform(80, 220)
        wish, ward = RULES.choice(["cautious", "usual", "open"]), RULES.choice(["north", "south"])
        diagnosis = "ill" if age / 100 + pressure / 220 > 1.2 else "well"
        lines.append(f"p{at},{age:.0f},{pressure:.0f},{ward},nothing,{wish},{diagnosis}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.process
def test_the_python_example(tmp_path):
    patients(tmp_path / "patients.csv")
    example, _ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["cautious", "usual", "open"]
    assert done.stdout.splitlines()[-1] == "(1, 4)"


def in_files(folder, table):
    """The same patients in three Parquet files; ids rise from file to file."""
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    whole = csv.read_csv(table).sort_by("patient")
    folder.mkdir()
    for at in range(3):
        parquet.write_table(whole.slice(at * 134, 134), folder / f"{at}.parquet")


@pytest.mark.process
def test_the_python_example_of_many_files(tmp_path):
    patients(tmp_path / "patients.csv")
    in_files(tmp_path / "patients", tmp_path / "patients.csv")
    first, second = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    again = f"{first}\nbefore = run.model_sha256\n{second}\nassert run.model_sha256 == before"
    assert "apes.Plan(" in again
    # Under one seed, so that the models can be compared.
    again = again.replace("apes.Plan(", "apes.Plan(seed=1, ")
    done = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "(64, 4)"


@pytest.mark.service
def test_the_command_of_many_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients(tmp_path / "patients.csv")
    in_files(tmp_path / "patients", tmp_path / "patients.csv")
    text = re.search(r"```\n(apes train --data patients/.*?)```", PAGE, flags=re.DOTALL).group(1).replace("\\\n", " ")
    choices = ["--norm", "0.5", "--clip", "0.2", "--rounds", "3", "--delta", "1e-4"]
    done = CliRunner().invoke(app, [*shlex.split(text)[1:], *choices])
    assert done.exit_code == 0, done.stderr


@pytest.mark.service
def test_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients(tmp_path / "patients.csv")
    patients(tmp_path / "new_patients.csv", 30)
    text = re.search(r"```\n(apes train.*?)```", PAGE, flags=re.DOTALL).group(1).replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        # What it costs at these settings does not matter here.
        words += ["--norm", "0.5", "--clip", "0.2", "--rounds", "3"] if "--data" in words else []
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, done.stderr
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 31
