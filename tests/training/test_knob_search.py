"""The search among settings: as many runs as asked for, towards what is better, and the best are compared again."""

from fractions import Fraction

import pytest

from apes.training.knob_search import FINALISTS, Knob, KnobSearch, readable

KNOBS = (Knob("rounds", (0.5, 1.0, 2.0, 4.0)), Knob("norm", (0.25, 0.5, 1.0, 2.0)), Knob("momentum", (0.5, 0.8), 0.8))
BEST = (4.0, 0.25, 0.5)


def goodness(setting):
    """Largest at the places furthest from the defaults."""
    return setting[0] - setting[1] - setting[2]


def searched(runs, seed=1, **options):
    search, ran = KnobSearch(KNOBS, seed, **options), []
    for setting in search.settings(runs):
        ran.append(setting)
        search.record(setting, goodness(setting))
    return search, ran


@pytest.mark.parametrize("runs", [8, 20, 32, 33])
def test_as_many_runs_as_asked_for(runs):
    search, ran = searched(runs)
    assert len(ran) == runs == sum(len(found) for found in search.found.values())
    assert ran[0] == search.defaults == (1.0, 1.0, 0.8)
    # The defaults and the best others are run again, as often as one another.
    times = max(1, runs // (4 * FINALISTS))
    assert ran[-FINALISTS * times :] == ran[-FINALISTS:] * times
    assert ran[-FINALISTS] == search.defaults
    tried = ran[: -FINALISTS * times]
    assert ran[-FINALISTS + 1 :] == sorted(set(tried) - {search.defaults}, key=goodness, reverse=True)[: FINALISTS - 1]


def test_it_finds_the_best_of_a_few():
    search, _ = searched(48)
    assert search.best() == BEST


def test_the_best_is_the_best_of_those_that_were_run_again():
    """A setting that was lucky once is not chosen: its second run counts as much."""
    search = KnobSearch(KNOBS, 1)
    for setting in search.settings(20):
        is_first = search.times_run(setting) == 0
        search.record(setting, goodness(setting) + (100 if setting == search.defaults and is_first else 0))
        search.record(search.defaults, -1000)
    assert search.found[search.defaults][0] > 99
    assert search.best() != search.defaults
    assert search.times_run(search.best()) == 2
    assert search.times_run((9.0, 9.0, 9.0)) == 0


def test_what_was_found_elsewhere_is_tried_after_the_defaults():
    search, ran = searched(8, first=[BEST, (1.0, 1.0, 0.8)])
    assert ran[:2] == [search.defaults, BEST]
    assert ran.count(BEST) == 2
    assert search.best() == BEST


def test_a_fixed_knob_stays():
    _, ran = searched(32, fixed=["norm"])
    assert {setting[1] for setting in ran} == {1.0}
    assert len({setting[0] for setting in ran}) == 4


def test_near_the_best_one_or_two_knobs_move_by_a_place():
    """From the first setting that is not random on."""
    _, ran = searched(20, share_anywhere=Fraction(1, 4))
    places = [knob.places for knob in KNOBS]
    for number in range(4, 16):
        best = max(ran[:number], key=goodness)
        moved = [abs(at.index(a) - at.index(b)) for at, a, b in zip(places, ran[number], best, strict=True)]
        # Where all that is near was run, a setting is taken from anywhere.
        assert (max(moved) == 1 and 1 <= sum(moved) <= 2) or ran[number] in ran[:number]
    assert ran[:4] == searched(20)[1][:4]


def test_same_seed_same_search():
    assert searched(20)[1] == searched(20)[1]
    assert searched(20)[1] != searched(20, seed=2)[1]


def test_readable_has_two_digits():
    assert [readable(value) for value in (0.12345, 98765.0, 2.0)] == [0.12, 99000.0, 2.0]
