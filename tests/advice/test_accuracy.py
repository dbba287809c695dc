"""Expected accuracy: read off what was measured, falling with noise, and nothing where nothing was measured."""

import numpy as np
import pytest

from apes.advice.accuracy import Surface

PLAIN = {"noise": [0.01, 0.1, 1.0], "rounds": [1, 10], "accuracy": [[0.8, 0.9], [0.6, 0.92], [0.1, 0.2]]}


def test_what_was_measured_is_said_again():
    surface = Surface.of(PLAIN)
    assert [surface.at(noise, 1) for noise in PLAIN["noise"]] == pytest.approx([0.8, 0.6, 0.1])
    # Chance made more noise look better: both count as what is between.
    assert surface.at(0.01, 10) == surface.at(0.1, 10) == pytest.approx(0.91)


def test_between_places_on_logarithmic_scales():
    surface = Surface.of(PLAIN)
    assert surface.at(np.sqrt(0.01 * 0.1), 1) == pytest.approx(0.7)
    assert 0.8 < surface.at(0.01, 3) < 0.91


def test_beyond_what_was_measured_nothing_is_said():
    surface = Surface.of(PLAIN)
    assert surface.at(1.001, 1) is None
    assert surface.at(float("inf"), 1) is None
    assert surface.at(float("nan"), 1) is None
    assert surface.at(0.1, 11) is None
    assert surface.at(0.1, 0) is None
    assert surface.at(1e-9, 1) == surface.at(0.01, 1)  # less noise does no harm
