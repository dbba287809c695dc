"""Charging by the roster and the number of those present covers everybody in any round of so many; so does reading."""

import itertools

import numpy as np
import pytest

from apes.accounting.exposure import Exposure
from apes.accounting.roster import charged_as, read_as, with_later
from apes.accounting.victims import Victims
from apes.errors import ParameterError

ENROLLED = np.array([0.05, 0.3, 0.9, 2.5])
FORMS = {
    "coded": {"levels": 4},
    "bits": {"levels": 2},
    "bits with a norm": {"levels": 2, "norm": 1.5},
    "top-b first": {"levels": 16, "top_b_first": 2, "sparsifier": "top-b-first"},
    "top-b first, bits": {"levels": 2, "top_b_first": 2, "sparsifier": "top-b-first"},
}


def cost(budgets, form, victims=None):
    return Exposure(np.array(budgets), 6, **FORMS[form]).cost(1e-9, victims=victims).mu_squared


@pytest.mark.parametrize(
    ("form", "colluding"),
    [
        ("coded", 0),
        ("bits", 1),
        ("bits with a norm", 0),
        *(pytest.param(form, number, marks=pytest.mark.exhaustive) for form in FORMS for number in (0, 1)),
    ],
)
def test_no_choice_of_who_is_there_costs_more_than_is_charged(form, colluding):
    """Every cohort of three, every choice of those who collude, every victim, also with another budget."""
    charged = cost(charged_as(ENROLLED, 3, colluding), form)
    for honest in itertools.combinations(ENROLLED, 3 - colluding):
        for victim in range(len(honest)):
            others = [budget for place, budget in enumerate(honest) if place != victim]
            for own in (honest[victim], ENROLLED.max()):
                # Of one who is alone, all that is known is the own budget.
                alone = cost([*others, own], form, Victims(own, own))
                assert alone <= charged * (1 + 1e-9), (honest, victim, own)


def test_the_check_above_sees_a_charge_for_one_more_who_hides():
    worst = [cost([*some, 2.5], "coded", Victims(2.5, 2.5)) for some in itertools.combinations(ENROLLED, 2)]
    assert max(worst) > cost(charged_as(ENROLLED, 4, 0), "coded")
    assert max(worst) == pytest.approx(cost(charged_as(ENROLLED, 3, 0), "coded"))


def test_what_is_charged_is_a_function_of_roster_and_number():
    assert charged_as(ENROLLED, 4, 0).tolist() == [0.3, 0.9, 2.5, 2.5]
    assert charged_as(ENROLLED[::-1], 3, 1).tolist() == [2.5, 2.5]
    assert charged_as(ENROLLED, 3, 2).tolist() == [2.5]
    for present, colluding in ((0, 0), (5, 0), (3, 3), (3, -1)):
        with pytest.raises(ParameterError):
            charged_as(ENROLLED, present, colluding)


def test_later_members_count_as_the_largest_budget():
    assert with_later(ENROLLED[:2], 2, 3.0).tolist() == [0.05, 0.3, 3.0, 3.0]
    assert charged_as(with_later(ENROLLED[:2], 2, 3.0), 3, 0).tolist() == [3.0, 3.0, 3.0]


def test_who_is_there_is_read_as_the_quantiles_of_the_roster():
    assert read_as(ENROLLED, 4).tobytes() == ENROLLED.tobytes()
    assert read_as(ENROLLED, 1).tolist() == [pytest.approx((0.3 + 0.9) / 2)]
    even = np.linspace(0.1, 1.0, 1000)
    for present in (999, 500, 37, 2):
        assert read_as(even, present).mean() == pytest.approx(even.mean())
        assert (np.diff(read_as(even, present)) > 0).all()
    with pytest.raises(ParameterError, match="present"):
        read_as(ENROLLED, 5)
