"""Hostile or careless callers of the accountant: limits that are kept, facts that cannot be changed, threads."""

import math
import sys
from threading import Barrier, Thread

import numpy as np
import pytest

import apes
from apes.accounting.cost import Cost

EXPOSURE = apes.Exposure(np.full(20, 1.0), 5, 2)


def accountant(**changes):
    return apes.Accountant(1e-5, **({"expected_rounds": 9} | changes))


class TestLimit:
    """What was set is kept, without being told so twice."""

    limit = accountant(settled=False).cost(EXPOSURE).times(2)

    def test_it_is_kept(self):
        limited = accountant(limit=self.limit)
        assert not limited.settled
        limited.charge(EXPOSURE, 2)
        with pytest.raises(apes.BudgetExceeded, match="beyond the limit that was set"):
            limited.charge(EXPOSURE)
        assert limited.guarantee.is_adaptive
        assert limited.guarantee.epsilon == self.limit.epsilon(1e-5)

    def test_it_is_kept_also_where_all_was_settled(self):
        limited = accountant(limit=accountant(settled=True).cost(EXPOSURE).times(2), settled=True)
        limited.charge(EXPOSURE, 2)
        assert not limited.allows(EXPOSURE)
        assert not limited.guarantee.is_adaptive

    def test_beside_a_target_it_is_refused(self):
        with pytest.raises(apes.ParameterError, match="limit must be left out: the target is one"):
            accountant(limit=self.limit, target=50.0)

    @pytest.mark.parametrize(
        ("limit", "said"),
        [
            (3, "limit must be of apes's own class Cost, got int"),
            (Cost(1.0, math.inf), r"limit must leave less than delta uncovered, in \[0, 1e-05\), got inf"),
            (Cost(1.0, 1e-5), "limit must leave less than delta uncovered"),
        ],
    )
    def test_refused(self, limit, said):
        with pytest.raises(apes.ParameterError, match=said):
            accountant(limit=limit)

    @pytest.mark.parametrize("cost", [(math.nan, 0.0), (1.0, math.nan), (-1.0, 0.0), (1.0, -1.0), ("x", 0.0)])
    def test_no_costs(self, cost):
        with pytest.raises(apes.ParameterError, match="must be"):
            Cost(*cost)

    def test_without_an_end_it_guarantees_nothing_and_says_so(self):
        endless = accountant(limit=Cost(math.inf, 1e-9))
        endless.charge(EXPOSURE)
        assert endless.guarantee.epsilon == math.inf
        assert "no finite figure covers it" in endless.guarantee.why_not_certified
        assert "nothing central is certified" in str(endless.guarantee)


class TestFacts:
    """What a guarantee rests on cannot be another afterwards."""

    @pytest.mark.parametrize(("name", "value"), [("settled", True), ("limit", None), ("spent", Cost())])
    def test_they_stay(self, name, value):
        limited = accountant(target=8.0)
        limited.charge(EXPOSURE)
        before = limited.guarantee
        with pytest.raises(AttributeError):
            setattr(limited, name, value)
        assert limited.guarantee == before

    @pytest.mark.parametrize("name", ["settled", "keep_budgets"])
    @pytest.mark.parametrize("value", ["no", 0, 1.0, None])
    def test_yes_or_no(self, name, value):
        if name == "settled" and value is None:
            assert accountant(settled=None).settled
            return
        with pytest.raises(apes.ParameterError, match=f"{name} must be True or False, got"):
            accountant(**{name: value})

    def test_an_exposure_says_itself_what_it_costs(self):
        class Free(apes.Exposure):
            def cost(self, *asked):
                return Cost()

            def local(self, *asked):
                return 0.0

        free, limited = Free(np.full(2, 30.0), 5, 2), accountant(target=0.1)
        for ask in (limited.charge, limited.record, limited.allows, limited.after, limited.cost):
            for wrong in (free, "x", None):
                with pytest.raises(apes.ParameterError, match="exposure must be of apes's own class Exposure"):
                    ask(wrong)
        assert limited.rounds == 0

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"clip": 0.0}, r"clip must be in \(0, inf\), got 0.0"),
            ({"clip": math.nan}, r"clip must be in \(0, inf\), got nan"),
            ({"clip": None}, "clip must be a number, got None"),
            ({"clip": "x"}, "clip must be a number, got 'x'"),
            ({"clip": 0.0, "norm": 1.0}, r"clip must be in \(0, inf\), got 0.0"),
            ({"sparsifier": "whatever"}, "sparsifier must be one of top-b, random-b, threshold, top-b-first"),
            ({"sparsifier": "top-b"}, "why_not_certified must say why: certificates are for shuffled Clip-Laplace"),
            ({"shuffled": False}, "why_not_certified must say why"),
            ({"mechanism": "laplace"}, "why_not_certified must say why"),
            ({"why_not_certified": ""}, "why_not_certified must say why"),
            ({"top_b_first": 2, "charged": 3, "dimensions": 9}, r"charged must be in \[4, 9\] here, got 3"),
            ({"charged": 3, "dimensions": 9}, r"charged must be in \[9, 9\] here, got 3"),
        ],
    )
    def test_exposures_refused(self, changes, said):
        with pytest.raises(apes.ParameterError, match=said):
            apes.Exposure(**{"budgets": np.full(20, 1.0), "charged": 5, "levels": 2} | changes)


@pytest.fixture
def eager():
    """Threads that interrupt one another all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work, threads=8):
    """Whether each of so many threads got it done."""
    start, done = Barrier(threads), []

    def one():
        start.wait()
        try:
            work()
            done.append(True)
        except apes.BudgetExceeded:
            done.append(False)

    running = [Thread(target=one) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return done


@pytest.mark.usefixtures("eager")
def test_no_charge_is_lost_and_none_is_one_too_many():
    cost = accountant(settled=False).cost(EXPOSURE)
    for _ in range(10):
        free, limited = accountant(), accountant(limit=cost.times(3))
        assert at_once(lambda free=free: free.charge(EXPOSURE)) == [True] * 8
        assert (free.rounds, free.spent.mu_squared) == (8, pytest.approx(8 * cost.mu_squared, rel=1e-3))
        assert sum(at_once(lambda limited=limited: limited.charge(EXPOSURE))) == limited.rounds == 3
        assert limited.guarantee.why_not_certified is None
