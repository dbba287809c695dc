"""The whole account: what the command prints, and that its parts fit together."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from apes import Exposure, ParameterError
from apes.accounting.account import Question, account, by_group, published_figures
from apes.accounting.composition.gaussian import gaussian_delta
from apes.accounting.cost import Cost
from apes.accounting.guarantee import Guarantee, certify
from apes.accounting.words import upwards
from apes.cli.main import app

SMALL = np.linspace(0.05, 1, 120)


@pytest.mark.service
def test_parts_fit_together():
    steps = []
    result = account(Question(Exposure(SMALL, 20, 2), rounds=3, delta=1e-5), steps.append)
    assert len(steps) == 5
    assert 0 < result.dimension.lower <= result.dimension.epsilon < result.round.epsilon < result.total.epsilon
    assert [part.level for part in (result.dimension, result.round, result.total)] == ["coordinate", "user", "rounds"]
    assert result.dimension.delta == pytest.approx(np.tanh(0.5) * 1e-8)
    assert result.round.delta == result.total.delta == 1e-5
    # The victim with the largest budget has the largest personal figure, which is everybody's guarantee.
    epsilons = [group.epsilon for group in result.personal]
    assert epsilons == sorted(epsilons)
    assert (result.personal[-1].budget, epsilons[-1]) == (1.0, result.total.epsilon)


def test_a_guarantee_at_another_delta_or_epsilon_is_no_better_than_it_is():
    """Away from its own delta only the Gaussian that covers it is left, with what that leaves uncovered."""
    cost = Cost(0.04, 1e-6)
    own = Guarantee(0.5, 1e-5, cost=cost)
    assert own.epsilon_at(1e-5) == min(0.5, cost.epsilon(1e-5))
    assert own.epsilon_at(0.99e-5) == cost.epsilon(0.99e-5) > 0.5
    assert own.epsilon_at(1e-6) == np.inf
    assert own.delta_at(0.5) == 1e-5
    # At so large an epsilon the Gaussian has next to nothing left: what it does not cover is.
    assert own.delta_at(0.499) == gaussian_delta(0.2, 0.499) + 1e-6
    assert Guarantee(9.0, 1e-5, cost=cost).delta_at(8.0) == pytest.approx(1e-6)


def test_colluders_count_in_every_figure():
    """In one coordinate, in one round, and in all rounds."""
    exposure = Exposure(np.linspace(0.3, 1, 30), 2, 2)
    result = account(Question(exposure, rounds=2, delta=1e-3, colluders=20))
    alone = account(Question(exposure, rounds=2, delta=1e-3))
    for name in ("dimension", "round", "total"):
        assert getattr(result, name).mu > 1.5 * getattr(alone, name).mu, name
    assert result.personal[-1].epsilon == result.total.epsilon


@pytest.mark.service
def test_everybody_has_a_curve_of_their_own():
    """Epsilon at every delta, and back; mu from the own budget; the road that it came by."""
    guarantee = certify(np.linspace(0.05, 1, 1500), delta=1e-6, dimensions=10)
    assert guarantee.road == "fixed sequence"
    assert guarantee.epsilon_at(1e-6) == guarantee.epsilon < guarantee.epsilon_at(1e-8)
    assert guarantee.epsilon_at(1e-10) == np.inf
    assert guarantee.epsilon_at(1e-3) < guarantee.epsilon
    for delta in (1e-8, 1e-6, 1e-3):
        assert guarantee.delta_at(guarantee.epsilon_at(delta)) == pytest.approx(delta, rel=1e-3)
    own = guarantee.of(0.05)
    assert own.mu < guarantee.mu / 10
    assert own.epsilon_at(1e-8) < guarantee.epsilon_at(1e-8) / 10
    assert own.of(0.05).epsilon == own.epsilon
    assert own.of(0.04).epsilon == guarantee.of(0.04).epsilon < own.epsilon
    # Among few, curves that were composed are better than their Gaussian.
    few = certify(np.full(3, 1.0), delta=1e-3, dimensions=5)
    assert few.epsilon_at(1e-3) == few.epsilon < few.cost.epsilon(1e-3)
    assert few.delta_at(few.epsilon) == 1e-3


@pytest.mark.service
def test_sparse_reports_are_charged_for_what_they_say():
    exposures = Exposure(SMALL, 20, 2), Exposure(SMALL, 4, 2, dimensions=20, sparsifier="random-b")
    dense, sparse = (account(Question(exposure, 3, 1e-5)) for exposure in exposures)
    assert sparse.round.epsilon == certify(SMALL, delta=1e-5, dimensions=4, levels=2).epsilon < dense.round.epsilon
    assert sparse.total.epsilon == certify(SMALL, delta=1e-5, dimensions=4, rounds=3, levels=2).epsilon
    assert sparse.dimension.epsilon == dense.dimension.epsilon
    assert sparse.local["user"] == pytest.approx(4.0)
    assert sparse.dimension.lower == dense.dimension.lower
    assert 0 < sparse.round.lower < sparse.total.lower < min(sparse.total.epsilon, dense.total.lower)
    with pytest.raises(ParameterError, match=r"charged must be in \[1, 20\], got 21"):
        Exposure(SMALL, 21, 2, dimensions=20)


@pytest.mark.service
def test_a_user_with_a_smaller_budget_is_better_protected():
    groups = by_group(certify(np.linspace(0.05, 1, 1500), delta=1e-6, dimensions=10), np.linspace(0.05, 1, 1500))
    assert [group.users for group in groups] == pytest.approx([1500 / 8] * 8, abs=2)
    assert sum(group.users for group in groups) == 1500
    assert groups[0].epsilon < groups[-1].epsilon / 4
    few = np.repeat([0.1, 0.5, 1.0], [900, 450, 150])
    named = by_group(certify(few, delta=1e-6, dimensions=10), few)
    assert [(group.budget, group.users) for group in named] == [(0.1, 900), (0.5, 450), (1.0, 150)]
    assert named[0].epsilon < named[1].epsilon / 4 < named[2].epsilon / 6


def test_published_figures_of_the_papers_setting():
    figures = published_figures(np.linspace(0.05, 1, 10_000), 1e-8, 7850)
    assert figures["eon_numeric"] == pytest.approx(0.0571, abs=5e-5)
    assert figures["eon_closed"] == pytest.approx(0.205, abs=5e-4)
    assert figures["fmt22_numeric"] == pytest.approx(0.0689, abs=5e-5)
    assert figures["fmt22_closed"] == pytest.approx(0.2408, abs=5e-5)
    # The paper prints 57.6 and 25.6, from e_c rounded to 0.057.
    assert figures["user_apes"] == pytest.approx(57.6, rel=0.01)
    assert figures["user_s_apes"] == pytest.approx(25.6, rel=0.01)
    assert figures["erlingsson19"] is None


def test_published_figures_outside_their_range_are_none():
    assert published_figures(np.full(3, 1.0), 1e-8, 10)["eon_closed"] is None


def test_colluders_cost_privacy():
    none, some = (certify(SMALL, delta=1e-6, levels=2, colluders=colluders).epsilon for colluders in (0, 60))
    assert none < some
    with pytest.raises(ParameterError, match=r"colluders must be in \[0, 119\], got 120"):
        certify(SMALL, delta=1e-6, colluders=120)


@pytest.mark.process
def test_command_prints_one_json_object_and_draws(tmp_path):
    command = [
        sys.executable,
        "-m",
        "apes",
        "account",
        "--budgets",
        "grid:0.05:1",
        "--users",
        "200",
        "--dimensions",
        "5",
    ]
    command += ["--rounds", "2", "--delta", "1e-5", "--clip", "0.1", "--json", "--plot", "account.png"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ, COLUMNS="120"))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) >= {"certified", "published", "lower", "personal", "seconds"}
    assert set(answer["certified"]) == {"dimension", "round", "total"}
    assert set(answer["published"]) == set(
        "eon_closed eon_numeric fmt22_closed fmt22_numeric bbgn19_hoeffding bbgn19_bennett gddtk21 erlingsson19 "
        "user_apes user_s_apes".split()
    )
    assert (
        answer["certified"]["round"]["epsilon"] == certify(np.linspace(0.05, 1, 200), delta=1e-5, dimensions=5).epsilon
    )
    assert (tmp_path / "account.png").read_bytes().startswith(b"\x89PNG")
    assert done.stderr == ""


@pytest.mark.service
def test_command_tells_people_on_stdout():
    """Figures of a user and of a coordinate stand apart, and published ones are called that."""
    options = "--budgets grid:0.05:1 --users 200 --dimensions 5 --rounds 2 --cap 0.5 --clip 0.1 --delta 3.6e-5".split()
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["account", *options])
    assert (done.exit_code, done.stderr) == (0, "")
    of_users, of_coordinates = done.stdout.split("Per coordinate, one round")
    assert "all 2 rounds" in of_users
    assert "Everybody's own, all 2 rounds" in of_users
    assert "published" not in of_users
    assert "Feldman et al. 2022, numeric" in of_coordinates
    assert "not proved for different budgets" in of_coordinates
    capped = certify(np.minimum(np.linspace(0.05, 1, 200), 0.5), delta=3.6e-5, dimensions=5, rounds=2)
    assert f"epsilon {upwards(capped.epsilon)} at delta 3.6e-05" in of_users
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.exhaustive
def test_command_for_sparse_reports():
    options = "--budgets grid:0.05:1 --users 1100 --dimensions 100 --rounds 2 --framework s-apes-first --keep 0.1"
    done = CliRunner().invoke(app, ["account", *options.split(), "--levels", "4", "--delta", "3.6e-5", "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    budgets = np.linspace(0.05, 1, 1100)
    expected = certify(budgets, delta=3.6e-5, dimensions=100, top_b_first=10, rounds=2, levels=4)
    assert answer["certified"]["total"]["epsilon"] == expected.epsilon
    assert 0 < answer["lower"]["dimension"] < answer["lower"]["round"] < answer["lower"]["total"] == expected.lower


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delta", "0"], "delta must be in [1e-100, 0.5], got 0.0"),
        (["--delta", "nan"], "delta must be"),
        (["--users", "0"], "users must be in [1, 100000000], got 0"),
        (["--levels", "1"], "levels must be in [2, 256], got 1"),
        (["--dimensions", "0"], "dimensions must be in [1, 1000000000000], got 0"),
        (["--colluders", "-1"], "colluders must be in [0, inf), got -1"),
        (["--budgets", "constant:0"], "budgets must be in (0, inf)"),
        (["--framework", "s-apes"], "framework must be one with a certificate: top-b looks at all"),
        (["--keep", "0.5"], "keep must be left out: apes does not sparsify; got 0.5"),
    ],
    ids=str,
)
def test_bad_input(arguments, said):
    command = ["account", "--users", "10", "--dimensions", "2", "--rounds", "1", *arguments]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr.strip().splitlines()[-1]
