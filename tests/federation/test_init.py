"""`apes federation init`, where something is wrong with what it is asked for."""

import subprocess
import sys

import pytest
from parties import apes


@pytest.mark.service
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "3", "--silos", "2"], "--devices or --silos must be left out, one of them"),
        (["--devices", "3", "--users", "5"], "users must be left out"),
        (["--silos", "6", "--users", "5"], "--silos must be in [1, 5]"),
        (["--devices", "5"], "--allow-no-protection must be given to begin a federation under these terms"),
        (["--preset", "paper", "--silos", "2", "--users", "500"], "epsilon"),
        (["--users", "200", "--target-epsilon", "20"], "epsilon 20 at delta 0.0005: this protects nobody"),
        (["--devices", "3", "--framework", "s-apes"], "framework must be one with a certificate"),
        (["--devices", "3", "--levels", "continuous"], "levels must be in [2, 256]"),
        (
            ["--devices", "3", "--smallest-cohort", "4"],
            "--smallest-cohort 4 of honest senders beside colluding 1 needs at least 5 senders",
        ),
        (["--devices", "2"], "--smallest-cohort 2 of honest senders beside colluding 1 needs at least 3 senders"),
        (["--silos", "1", "--users", "9"], "beside colluding 9 needs at least 11 senders in all, got 9"),
    ],
)
def test_init_says_what_is_wrong_and_leaves_nothing(tmp_path, options, said):
    code, _, errors = apes("federation", "init", tmp_path / "f", *options)
    assert code == 2
    assert said in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param("httpx", marks=pytest.mark.process),
        pytest.param("fastapi", marks=pytest.mark.exhaustive),
        pytest.param("uvicorn", marks=pytest.mark.exhaustive),
    ],
)
def test_without_the_extra_it_says_what_to_install(missing, tmp_path):
    code = f"import sys; sys.modules[{missing!r}] = None; from apes.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "federation", "init", str(tmp_path / "f"), "--devices", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{missing} is not installed; get it with: pip install 'apes-fl[flower]'" in done.stderr
