"""Searches: on the safe side, exact on whole numbers, and not misled by costs that are no straight line."""

import math

import pytest

from apes.mathematics.search import Point, Search, bisect, first_below, lowest

SHAPES = {
    "square root": math.sqrt,
    "straight": lambda x: x / 100,
    "square": lambda x: x**2 / 1e4,
    "step": lambda x: 0.1 if x < 612 else 50.0,
    "nothing at first": lambda x: max(0.0, x / 100 - 3),
    "exponential": lambda x: math.exp(min(x / 200, 600)),
    "flat": lambda x: 0.1 if x < 700 else 10 + 1e-9 * x,
}


def search_for(cost, target, precision=None):
    tried = []

    def counted(place):
        tried.append(place)
        return cost(place)

    return Search(counted, target, precision, lambda done, total: None), tried


@pytest.mark.parametrize("cost", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("target", [1.5, 2.0, 9.0])
def test_whole_numbers_are_told_apart(cost, target):
    search, tried = search_for(cost, target)
    safe, unsafe = search.bracket(search.at(1), 10**6)
    found = search.close_in(safe, unsafe)
    assert cost(found.place) == found.cost <= target < cost(found.place + 1)
    assert all(isinstance(place, int) for place in tried)
    assert len(set(tried)) == len(tried) < 45


@pytest.mark.parametrize("cost", SHAPES.values(), ids=SHAPES)
def test_falling_costs_from_either_side(cost):
    def falling(n):
        return cost(2000 / n)

    search, _ = search_for(falling, 2.0)
    unsafe, safe = search.bracket(search.at(1), 10**6)
    downwards = search.bracket(search.at(1000), 1)
    found = {search.close_in(safe, unsafe).place, search.close_in(*downwards).place}
    assert len(found) == 1
    assert falling(max(found)) <= 2.0 < falling(max(found) - 1)


@pytest.mark.parametrize("cost", SHAPES.values(), ids=SHAPES)
def test_real_places_are_found_to_the_precision(cost):
    search, tried = search_for(cost, 2.0, 1e-3)
    found = search.close_in(search.at(1e-3), search.at(1e6))
    assert cost(found.place) == found.cost <= 2.0 < cost(found.place * 1.0011)
    assert len(tried) < 45


def test_a_limit_is_kept():
    search, tried = search_for(lambda n: 1.0, 2.0)
    assert search.bracket(search.at(1), 50) == (Point(50, 1.0), None)
    assert max(tried) == 50
    assert search.bracket(search.at(10), 1) == (Point(1, 1.0), None)


def test_what_is_no_number_is_not_safe():
    search, _ = search_for(lambda n: math.nan, 2.0)
    assert not search.is_safe(search.at(1))


@pytest.mark.parametrize("crossing", [1e-9, 0.3, 0.5, 2.9])
@pytest.mark.parametrize(("unsafe", "safe"), [(0.0, 3.0), (3.0, 0.0)], ids=["from below", "from above"])
def test_bisection_ends_on_the_safe_side(crossing, unsafe, safe):
    def is_safe(x):
        return x >= crossing if safe > unsafe else x <= crossing

    found = bisect(is_safe, unsafe, safe, steps=60)
    assert is_safe(found)
    assert found == pytest.approx(crossing, abs=1e-15)


def test_bisection_stops_at_the_tolerance_or_after_its_steps():
    tried = []

    def is_safe(x):
        tried.append(x)
        return x >= 0.7

    assert 0.7 <= bisect(is_safe, 0.0, 4.0, steps=100, tolerance=1e-3) <= 0.7 * 1.001
    assert len(tried) < 15
    tried.clear()
    assert bisect(is_safe, 0.0, 4.0, steps=3, from_zero=0.25) == 1.0
    assert tried == [1.0, 0.25, 0.625]
    assert bisect(is_safe, 0.0, 4.0, steps=0) == 4.0


def test_bisection_of_what_never_holds_returns_the_end_that_was_safe():
    assert bisect(lambda x: math.nan <= 1, 0.0, 4.0, steps=50) == 4.0


@pytest.mark.parametrize("guess", [None, 1.0, 2.3, 2.302, 50.0])
def test_first_below_is_evaluated_and_close(guess):
    tried = {}

    def curve(t):
        tried[t] = math.exp(-t)
        return tried[t]

    found = first_below(curve, 0.1, 40.0, guess)
    assert tried[found] <= 0.1
    assert found == pytest.approx(math.log(10), rel=1e-11)


def test_first_below_at_the_ends():
    assert first_below(lambda t: 0.05, 0.1, 40.0) == 0.0
    assert first_below(lambda t: 0.2, 0.1, 40.0) == 40.0
    assert first_below(lambda t: math.nan, 0.1, 40.0) == 40.0


def test_first_below_passes_a_bump_behind_the_crossing():
    """A curve that does not only fall: what is returned was itself found low enough."""

    def bumpy(t):
        return 0.2 if 1.0 < t < 1.5 else math.exp(-3 * t)

    assert bumpy(first_below(bumpy, math.exp(-3), 40.0)) <= math.exp(-3)


@pytest.mark.parametrize("best", [-3.0, 0.1, 7.9, 8.0])
def test_lowest(best):
    assert lowest(lambda x: abs(x - best) ** 1.5, -4.0, 8.0) == pytest.approx(best, abs=1e-3)
