"""Audits of every framework with a certificate: silent on the real pipeline, loud on weaker ones."""

import json
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner
from weaker import norm_too_large, one_coordinate_more, run_at

from apes.audit.audit import audit
from apes.audit.trials import Attacked
from apes.cli.main import app
from apes.errors import ParameterError
from apes.terms.terms import Terms

FIRST = {"framework": "s-apes-first", "keep": 0.5}
RANDOM = {"framework": "s-apes", "sparsifier": "random-b", "keep": 0.5}
THRESHOLD = {"framework": "s-apes-threshold", "keep": 0.5}
# Two coordinates may be at their ends.
NORM = {"clip": 1.0, "norm": 1.4143}
# Each with as many coordinates as make two uses of the certificate.
CASES = ({}, 2), (FIRST, 4), (RANDOM, 4), (NORM, 2)
FRAMEWORKS = pytest.mark.parametrize(("choices", "dimensions"), CASES, ids=str)
# Choosing takes ten times as long as all else.
MOSTLY_QUICK = pytest.mark.parametrize(
    ("choices", "dimensions"),
    [pytest.param(*case, marks=pytest.mark.exhaustive if case[0] is FIRST else pytest.mark.service) for case in CASES],
    ids=str,
)
OPTIONS = {"trials": 200_000, "delta": 1e-6, "seed": 1}
# Enough of them to find a budget 10 % too large, in one coordinate.
FEWER = {"trials": 60_000, "delta": 1e-6, "seed": 1}
FEW = np.full(2, 0.9)


@MOSTLY_QUICK
def test_most_of_what_is_certified_is_found(choices, dimensions):
    result = audit(Terms(levels=2, **choices), FEW, dimensions=dimensions, **OPTIONS)
    assert result.passed
    assert 0.9 * result.user_certified < result.user_audited
    assert 0.95 * result.coordinate_certified < result.coordinate_audited


@pytest.mark.service
@FRAMEWORKS
def test_noise_10_percent_too_small_is_found_out(monkeypatch, choices, dimensions):
    assert audit(Terms(levels=2, **choices), FEW, dimensions=dimensions, **FEWER).passed
    run_at(monkeypatch, lambda budgets: 1.1 * budgets)
    result = audit(Terms(levels=2, **choices), FEW, dimensions=dimensions, **FEWER)
    assert not result.passed
    assert result.coordinate_audited > result.coordinate_certified


@pytest.mark.service
@FRAMEWORKS
def test_one_coordinate_too_many_is_found_out(monkeypatch, choices, dimensions):
    one_coordinate_more(monkeypatch)
    result = audit(Terms(levels=2, **choices), FEW, dimensions=dimensions, **FEWER)
    assert not result.passed
    # Coordinates are fine one by one.
    assert result.coordinate_audited <= result.coordinate_certified
    assert result.user_audited > 1.2 * result.user_certified


@pytest.mark.exhaustive
def test_a_norm_three_times_too_large_is_found_out(monkeypatch):
    """In a crowd, where the norm costs less than the coordinates would: 65 % of what is certified is found."""
    terms, crowd = Terms(clip=1.0, norm=2.0), np.full(21, 1.5)
    options = {"trials": 60_000, "delta": 0.01, "seed": 1}
    fits = audit(terms, crowd, dimensions=4, **options | {"trials": 200_000})
    assert 0.6 * fits.user_certified < fits.user_audited < fits.user_certified
    assert audit(terms, crowd, dimensions=36, **options).passed
    norm_too_large(monkeypatch)
    assert not audit(terms, crowd, dimensions=36, **options).passed


@MOSTLY_QUICK
def test_the_command_fails_loudly(monkeypatch, choices, dimensions):
    options = ["audit", "--users", "2", "--budgets", "constant:0.9", "--levels", "2", "--delta", "1e-6", "--json"]
    options += ["--dimensions", str(dimensions), "--trials", "100000"]
    options += [word for name, value in choices.items() for word in (f"--{name}", str(value))]
    passed = CliRunner().invoke(app, options)
    assert (passed.exit_code, json.loads(passed.stdout)["passed"]) == (0, True)
    one_coordinate_more(monkeypatch)
    failed = CliRunner().invoke(app, options)
    assert (failed.exit_code, json.loads(failed.stdout)["passed"]) == (1, False)
    assert "AUDIT FAILED" in failed.stderr


POPULATIONS = {
    "alone": ([1.0], 1, 20_000, 3, 1e-6),
    "different budgets": ([2.0, 0.5, 0.1], 5, 10_000, 17, 1e-4),
    "ten": ([1.0] * 10, 20, 5000, 256, 0.02),
    "in parts": ([0.5] * 2, 9000, 4, 256, 1e-3),
}
OFTEN_CHOSEN = [(FIRST, "different budgets"), (FIRST, "ten")]


@pytest.mark.parametrize(
    ("choices", "population"),
    [
        pytest.param(*case, marks=pytest.mark.exhaustive if case in OFTEN_CHOSEN else pytest.mark.service)
        for case in product([FIRST, RANDOM, THRESHOLD], POPULATIONS)
    ],
    ids=str,
)
def test_certificates_stand_the_audit(choices, population):
    budgets, dimensions, trials, levels, delta = POPULATIONS[population]
    options = {"dimensions": dimensions, "trials": trials, "delta": delta, "seed": 1}
    result = audit(Terms(levels=levels, **choices), budgets, **options)
    assert 0 <= result.coordinate_audited <= result.coordinate_certified
    assert 0 <= result.user_audited <= result.user_certified


@pytest.mark.parametrize(
    "choices",
    [pytest.param(FIRST, marks=pytest.mark.exhaustive), pytest.param(RANDOM, marks=pytest.mark.service)],
    ids=str,
)
def test_a_large_delta_shows_half_of_it_in_a_crowd(choices):
    result = audit(Terms(levels=2, **choices), np.full(10, 0.9), dimensions=20, trials=40_000, delta=0.05, seed=1)
    assert result.passed
    assert 0.5 * result.user_certified < result.user_audited


def test_what_the_attack_is_told_is_what_the_victim_kept():
    # A budget so large that reports are updates: ends where the victim kept one, the centre elsewhere.
    for choices, kept in ((FIRST, 3), (RANDOM, 3), (THRESHOLD, 6), ({}, 6)):
        for world, end in ((0, 4), (1, 0)):
            batch, told = Attacked(Terms(levels=5, **choices), 5, np.array([200.0]), 6, 1).run(world, 0, 50)
            assert (told.sum(axis=1) == kept).all()
            assert ((batch.counts[:, end] == 1) == told.ravel()).all()
            assert ((batch.counts[:, 2] == 1) != told.ravel()).all()


def test_random_choices_are_made_anew_in_every_trial():
    attacked = Attacked(Terms(levels=2, **RANDOM), 2, np.ones(2), 12, 1)
    told = np.concatenate([attacked.run(world, number, 20)[1] for world in (0, 1) for number in (0, 1)])
    # 80 of 924 sets: about 77 are different.
    assert len({row.tobytes() for row in told}) > 60


def test_terms_without_a_certificate_are_refused():
    for terms in (Terms("s-apes"), Terms("unis")):
        with pytest.raises(ParameterError, match="certificate"):
            audit(terms, FEW, dimensions=2, **OPTIONS)
    assert CliRunner().invoke(app, ["audit", "--framework", "s-apes"]).exit_code == 2
