"""The example with a torch module runs, learns and is certified."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make test EXTRAS=torch")
# Torch takes long to start; torch models are trained in tests/models, too.
pytestmark = pytest.mark.exhaustive
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_torch_model.py"


def test_runs_and_says_what_came_out(tmp_path):
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shares = [float(share) for share in re.findall(r"([\d.]+)% right", done.stdout)]
    epsilons = [float(epsilon) for epsilon in re.findall(r"epsilon ([\d.]+) at delta 1e-05", done.stdout)]
    assert len(shares) == len(epsilons) == 2
    assert min(shares) > 65
    assert max(epsilons) <= 1.5
    assert "its first guesses: [" in done.stdout
