"""What is printed of a certified figure is certified, too: it is rounded up, wherever a person reads it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apes import certify
from apes.accounting.words import downwards, judged, upwards
from apes.advice.words import figure
from apes.report.words import guaranteed


@given(st.floats(1e-300, 1e300), st.integers(1, 8))
def test_no_smaller_and_no_larger(value, digits):
    up, down = float(upwards(value, digits)), float(downwards(value, digits))
    assert down <= value <= up
    # One unit of the last digit apart at most.
    assert up - down <= 1.001 * value * 10.0 ** (1 - digits)


@given(st.integers(1, 9999), st.integers(-12, 6))
def test_what_has_few_digits_is_shown_as_it_is(number, power):
    value = float(f"{number}e{power}")
    assert float(upwards(value)) == value == float(downwards(value))


def test_zero_and_infinity():
    assert (upwards(0.0), upwards(np.inf), downwards(0.0)) == ("0", "inf", "0")


def test_a_guarantee_claims_no_more_than_is_proved():
    for rounds in (1, 2, 7):
        guarantee = certify(np.full(1100, 0.5), delta=1 / 3000, dimensions=20, rounds=rounds)
        epsilon, delta, factor = map(float, re.findall(r"(?:epsilon |delta |e\^)([0-9.e-]+[0-9])", str(guarantee)))
        assert epsilon >= guarantee.epsilon
        assert factor >= guarantee.epsilon
        assert delta >= guarantee.delta
        said = judged(guarantee.epsilon, guarantee.delta)
        assert said.startswith(f"epsilon {upwards(guarantee.epsilon)} at delta 0.000334: ")


@pytest.mark.parametrize("epsilon", [0.99949, 1.87401, 12.3401, 1234.2, 603_000.4])
def test_advice_too(epsilon):
    assert float(figure(epsilon).replace(",", "")) >= epsilon


def test_a_report_too():
    said = guaranteed({"certified": {"epsilon": 9.12341, "delta": 1 / 3000}})
    assert "e^9.124 at most, but for a probability of 0.000334." in said
