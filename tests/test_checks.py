"""Checks of parameters: the valid pass unchanged, everything else is named in one line."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apes.checks import finite, plain_text, positive, positive_array, whole, within
from apes.errors import ParameterError

exact = settings(derandomize=True, deadline=None)


@exact
@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_positive_returns_the_number(value):
    assert positive("clip", value) == value


@pytest.mark.parametrize("value", [5e-324, 1.0, np.float32(0.5), 3, np.int64(7), 1.7e308])
def test_positive_takes_any_number_type_and_gives_a_float(value):
    assert positive("clip", value) == value
    assert type(positive("clip", value)) is float


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -5e-324, math.nan, math.inf, -math.inf])
def test_positive_refuses(value):
    with pytest.raises(ParameterError, match=rf"^clip must be in \(0, inf\), got {re.escape(repr(value))}$"):
        positive("clip", value)


@pytest.mark.parametrize("value", [0, math.nextafter(44, 45), math.nan, math.inf])
def test_positive_with_an_upper_end(value):
    assert positive("padding", 44, 44) == 44
    with pytest.raises(ParameterError, match=rf"^padding must be in \(0, 44\], got {value!r}$"):
        positive("padding", value, 44)


@pytest.mark.parametrize("value", [None, "wide", [1.0, 2.0], {}, 1j])
@pytest.mark.parametrize("check", [positive, lambda name, value: within(name, value, 0, 1)])
def test_what_is_not_a_number(check, value):
    with pytest.raises(ParameterError, match=rf"^clip must be a number, got {re.escape(repr(value))}$"):
        check("clip", value)


@exact
@given(st.floats(0, 0.999))
def test_within_returns_the_number(value):
    assert within("momentum", value, 0, 0.999) == value


@pytest.mark.parametrize("value", [-5e-324, math.nextafter(0.999, 1), math.nan, math.inf, -math.inf])
def test_within_refuses(value):
    with pytest.raises(ParameterError, match=rf"^momentum must be in \[0, 0.999\], got {value!r}$"):
        within("momentum", value, 0, 0.999)


@pytest.mark.parametrize("value", [2, 256, np.int64(17), np.uint8(255)])
def test_whole_returns_an_int(value):
    assert whole("levels", value, 2, 256) == value
    assert type(whole("levels", value, 2, 256)) is int


def test_whole_does_not_print_numbers_that_nobody_can_read():
    with pytest.raises(ParameterError, match=r"^levels must be in \[2, 256\], got a number of 100 bits$"):
        whole("levels", 10**30, 2, 256)


@pytest.mark.parametrize("value", [1, 257, -3, np.int64(1)])
def test_whole_refuses_numbers_outside(value):
    with pytest.raises(ParameterError, match=rf"^levels must be in \[2, 256\], got {re.escape(repr(value))}$"):
        whole("levels", value, 2, 256)


@pytest.mark.parametrize("value", [2.0, True, np.True_, "3", None, math.nan, np.float64(3), [3]])
def test_whole_refuses_what_is_not_whole(value):
    with pytest.raises(ParameterError, match=rf"^levels must be a whole number, got {re.escape(repr(value))}$"):
        whole("levels", value, 2, 256)


def test_whole_without_an_upper_end():
    assert whole("users", 10**30, 1) == 10**30
    with pytest.raises(ParameterError, match=r"^users must be in \[1, inf\), got 0$"):
        whole("users", 0, 1)


def test_positive_array_is_a_copy():
    mine = np.array([0.5, 1.0])
    checked = positive_array("budgets", mine)
    mine[:] = -1
    assert checked.dtype == np.float64
    assert checked.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1, 3])
def test_positive_array_names_the_first_bad_entry(where, bad):
    values = np.ones(5)
    values[where] = values[4] = bad
    with pytest.raises(ParameterError, match=rf"^budgets\[{where}\] must be in \(0, inf\), got {bad!r}$"):
        positive_array("budgets", values)


@pytest.mark.parametrize(("values", "shape"), [([], "(0,)"), (1.0, "()"), ([[1.0]], "(1, 1)")])
def test_positive_array_refuses_other_shapes(values, shape):
    with pytest.raises(ParameterError, match=rf"^budgets must be a non-empty list .* got shape {re.escape(shape)}$"):
        positive_array("budgets", values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_finite_names_the_place(dtype, bad):
    values = np.zeros((2, 3), dtype=dtype)
    finite("updates", values)
    values[1, 2] = bad
    with pytest.raises(ParameterError, match=rf"^updates\[1, 2\] must be finite, got {bad!r}$"):
        finite("updates", values)


@pytest.mark.parametrize(
    ("check", "value"),
    [(positive, 10**400), (positive_array, ["many"]), (positive_array, [[1.0], [1.0, 2.0]])],
    ids=["huge", "word", "ragged"],
)
def test_every_refusal_is_a_parameter_error(check, value):
    with pytest.raises(ParameterError, match=r"^budgets must be "):
        check("budgets", value)


@pytest.mark.parametrize("text", ["age", "größe in cm", "Alter (Jahre)", "\u0646\u200c\u0645", "a\u00a0b", "年齢"])
def test_a_text_that_shows_as_what_it_is(text):
    assert plain_text("label", text) == text


@pytest.mark.parametrize("text", ["", "a\nb", "a\x1b[2K", "a\rb", "\u202eega", "a\u2028b", "a\ud800", 5, None])
def test_a_text_that_could_show_as_another(text):
    with pytest.raises(ParameterError, match=r"^label must be a text without line breaks and control characters, got"):
        plain_text("label", text)
