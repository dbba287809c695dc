"""Every example runs as a script of its own and says what came out.

Those that take longest are exhaustive; the documentation, when it is built, runs all of them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
EXAMPLES = Path(__file__).parents[2] / "examples"
# Those with a test file of their own.
ELSEWHERE = {"own_torch_model.py"}


def printed(name, folder, *arguments, shell=()):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [*(shell or [sys.executable]), EXAMPLES / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def figure(pattern, text):
    return float(re.search(pattern, text)[1])


def test_first_model(tmp_path):
    text = printed("first_model.py", tmp_path)
    assert figure(r"([\d.]+)% of the test digits", text) > 75
    own = figure(r"budget of 0.1: epsilon ([\d.]+)", text)
    assert 0 < own < figure(r"epsilon ([\d.]+) at delta 1e-05", text) <= 2


def test_own_table(tmp_path):
    text = printed("own_table.py", tmp_path)
    assert figure(r"([\d.]+)% right", text) > 70
    cautious, usual, bold = (float(found) for found in re.findall(r"central epsilon ([\d.]+)", text))
    assert 0 < cautious < usual <= bold <= 1
    assert "predicted: well sick" in text
    assert "by scikit-learn: well sick" in text


def test_accountant_alone(tmp_path):
    text = printed("accountant_alone.py", tmp_path)
    proved, forced = figure(r"everybody: epsilon ([\d.]+)", text), figure(r"dataset: about ([\d.]+)", text)
    assert 0 < forced <= proved < figure(r"delta 1e-8: ([\d.]+)", text)
    assert figure(r"certified: ([\d.]+)", text) < figure(r"fmt22_numeric: ([\d.]+)", text)
    assert figure(r"(\d+) rounds fit; epsilon 0.5 at", text) >= 1


def test_own_bound_is_in_table_and_picture(tmp_path):
    options = "account --users 200 --budgets uniform1 --dimensions 3 --rounds 2 --plot account.png --json".split()
    text = printed("own_bound.py", tmp_path, *options)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))["published"]
    assert found["smaller_of_two"] == min(found["eon_numeric"], found["fmt22_numeric"])
    assert (tmp_path / "account.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
def test_own_bound_is_in_the_papers_figures(tmp_path):
    text = printed("own_bound.py", tmp_path, *"reproduce fig5 --quick --out results".split())
    assert "smaller_of_two</th>" in (tmp_path / "results" / "report.html").read_text(encoding="utf-8"), text
    assert (tmp_path / "results" / "fig5.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
def test_own_mechanism_is_not_called_certified(tmp_path):
    text = printed("own_mechanism.py", tmp_path)
    assert figure(r"([\d.]+)% right", text) > 60
    assert "nothing central is certified: apes: no curve is proved" in text


def test_own_model(tmp_path):
    text = printed("own_model.py", tmp_path)
    assert figure(r"before, (-?[\d.]+) after", text) < figure(r"loss (-?[\d.]+) before", text)
    assert figure(r"epsilon ([\d.]+) at delta 1e-05", text) <= 1


def test_choosing_a_budget(tmp_path):
    text = printed("choosing_a_budget.sh", tmp_path, shell=("sh", "-e"))
    assert "Recommended: " in text
    assert "apes train --users 25000 --budgets 0.1:60%,0.5:30%,1:10%" in text
    assert "<html" in (tmp_path / "advice.html").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_federation_of_three(tmp_path_factory):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'apes-fl[flower]'")
    # A short name: paths of sockets must not be long.
    folder = Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("e") / "e"))
    text = printed("federation_of_three.sh", folder, shell=("sh", "-e"))
    assert "3 vaults, 300 users" in text
    assert "`apes train`, the same people in one process, 20 rounds" in text
    assert figure(r"certified epsilon ([\d.]+)", " ".join(text.split())) <= 1
    assert (folder / "trial" / "analyzer" / "run" / "model.npz").exists()


def test_no_example_is_left_out():
    tested = set(re.findall(r'printed\("(\w+\.\w+)"', Path(__file__).read_text(encoding="utf-8"))) | ELSEWHERE
    assert tested == {path.name for path in EXAMPLES.iterdir() if path.is_file()}
