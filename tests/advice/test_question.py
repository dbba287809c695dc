"""Questions: every bad one is refused by name; and the people in it can be named on a command line."""

import math

import numpy as np
import pytest

from apes.advice.question import Question
from apes.budgets import make_budgets
from apes.errors import ParameterError

OWN = np.array([0.1] * 6 + [0.5] * 3 + [1.0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budgets": []}, "budgets must be a non-empty list"),
        ({"budgets": [0.1, math.nan]}, r"budgets\[1\] must be in \(0, inf\), got nan"),
        ({"budgets": [0.1, 0.0]}, r"budgets\[1\] must be in"),
        ({"rounds": 0}, r"rounds must be in \[1, 1000000\], got 0"),
        ({"rounds": 10**12}, r"rounds must be in \[1, 1000000\], got 1000000000000"),
        ({"rounds": 1.5}, "rounds must be a whole number"),
        ({"delta": 0.0}, "delta must be in"),
        ({"delta": 0.9}, r"delta must be in \[1e-100, 0.5\], got 0.9"),
        ({"delta": math.nan}, "delta must be in"),
        ({"target_epsilon": 0.0}, r"target_epsilon must be in \(0, inf\)"),
        ({"target_epsilon": math.inf}, "target_epsilon must be in"),
        ({"dimensions": 0}, "dimensions must be in"),
        ({"cap": -1.0}, "cap must be in"),
        ({"cap": math.nan}, "cap must be in"),
    ],
)
def test_bad_questions(changes, said):
    with pytest.raises(ParameterError, match=said):
        Question(**({"budgets": OWN} | changes))


@pytest.mark.parametrize("counts", [[6, 3, 1], [1, 1, 1], [7, 13, 999_980], [12_345, 2, 1], [5], [1]])
def test_people_are_named_by_shares(counts):
    own = np.repeat([0.1, 1 / 3, 2.0][: len(counts)], counts)
    named = Question(own).named
    assert "%" in named
    assert np.array_equal(np.sort(make_budgets(named, own.size, 0)), own)


def test_many_different_budgets_are_named_by_a_file():
    assert Question(np.linspace(0.1, 1, 100)).named == "file:BUDGETS.csv"
    assert Question(np.linspace(0.1, 1, 100), spec="grid:0.1:1").named == "grid:0.1:1"


@pytest.mark.parametrize("spec", [None, "0.1:60%,0.5:30%,1:10%", "file:people.csv"])
def test_more_people_of_the_same_kind(spec):
    more = Question(OWN, spec=spec).with_users(1000)
    assert more.users == 1000
    assert [(more.budgets == value).sum() for value in (0.1, 0.5, 1.0)] == [600, 300, 100]
    assert np.array_equal(np.sort(make_budgets(more.named, 1000, 0)), np.sort(more.budgets))


def test_more_people_of_a_law_are_drawn_from_it():
    more = Question(make_budgets("uniform2", 50, 3), spec="uniform2", seed=3).with_users(70)
    assert np.array_equal(more.budgets, make_budgets("uniform2", 70, 3))
