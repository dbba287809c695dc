"""Expected accuracy: read off what was measured, falling with noise, and nothing where nothing was measured."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from apes import load
from apes.advice.accuracy import PATH, Surface, measured
from apes.advice.reporting import NAMES

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


def test_expected_accuracies_stand_beside_always_guessing_the_same():
    labels = load("digits").test_labels
    assert measured().baseline == np.bincount(labels).max() / labels.size
    assert "Always guessing the most frequent class gets 10.3 % right there." in measured().basis


def test_the_table_of_the_package():
    table, plain = measured(), json.loads(PATH.read_text(encoding="utf-8"))
    assert set(table.surfaces) == set(NAMES)
    assert plain["made_by"] == "python -m benchmarks.expected_accuracy"
    for kind, surface in table.surfaces.items():
        assert (np.diff(surface.noises) > 0).all()
        assert (np.diff(surface.rounds) > 0).all()
        for rounds in (1, 7, 30, 160):
            found = [table.expected(kind, noise, rounds, table.dimensions) for noise in np.geomspace(1e-4, 0.1, 50)]
            assert all(0.05 < one <= 1 for one in found)
            assert all(before >= after - 1e-12 for before, after in pairwise(found))


def test_the_stated_error_is_the_largest_seen():
    plain = json.loads(PATH.read_text(encoding="utf-8"))
    table = measured()
    for one in plain["checks"]:
        expected = table.expected(one["kind"], one["noise"], one["rounds"], table.dimensions)
        assert abs(expected - one["seen"]) <= (table.error + 1e-4) * (1 - expected)
    assert len(plain["checks"]) >= 6


def test_another_number_of_coordinates_is_read_at_the_noise_of_the_whole_update():
    table = measured()
    assert table.expected("bits", 0.01, 30, 4 * table.dimensions) == table.expected("bits", 0.02, 30, table.dimensions)


def test_what_differs_by_less_than_both_may_be_off_is_alike():
    table = replace(measured(), error=0.1)
    assert table.can_tell_apart(0.9, 0.87)  # 0.01 and 0.013
    assert table.can_tell_apart(0.87, 0.9)
    assert not table.can_tell_apart(0.9, 0.88)
    assert not table.can_tell_apart(0.9, 0.9)
