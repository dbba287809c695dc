"""Whom a figure is about: everybody of a group, somebody of one budget, somebody whose budget changes."""

import numpy as np
import pytest

import apes
from apes.accounting.account import by_group

BUDGETS = np.linspace(0.5, 1.5, 240)
BOLDEST_OF_AN_EIGHTH = np.arange(240) % 30 == 29


def exposure(budgets, charged=3, levels=2):
    return apes.Exposure(np.asarray(budgets, dtype=float), charged, levels)


def charged(*rounds, **changes):
    """An accountant of people who keep their budgets."""
    accountant = apes.Accountant(1e-5, **({"expected_rounds": 6, "keep_budgets": True} | changes))
    for budgets, count in rounds:
        accountant.charge(exposure(budgets), count)
    return accountant.guarantee


class Zeros:
    """A model of ten coordinates that learns nothing."""

    digest, dimensions = "zeros", 10

    def start(self):
        return np.zeros(10)

    def updates(self, weights, block):
        return np.zeros((block.budgets.size, 10), dtype=np.float32)

    def evaluate(self, weights, examples):
        return None, 0.0


@pytest.mark.service
class TestGroups:
    """The boldest of a group may have left long before the others, who paid for more rounds."""

    targets = np.where(BOLDEST_OF_AN_EIGHTH, 1.0, 4.0)

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls):
        people = apes.People.from_arrays(np.zeros((240, 1)), np.zeros(240, int), budgets=BUDGETS, targets=cls.targets)
        return apes.train(Zeros(), people, apes.Plan(clip=0.1, levels=2, rounds=5, delta=1e-5, learning_rate=0.1))

    def test_a_group_has_the_figure_of_its_worst_member(self, run):
        left = run.rounds_by_user[BOLDEST_OF_AN_EIGHTH]
        assert left.max() < run.rounds_by_user[~BOLDEST_OF_AN_EIGHTH].min()
        groups = by_group(run.guarantee, run.budgets)
        assert [group.users for group in groups] == [30] * 8
        for number, group in enumerate(groups):
            boldest, member = (run.of_user(30 * number + user).epsilon for user in (29, 28))
            assert boldest < 0.8 * member
            assert member * (1 - 1e-9) <= group.epsilon <= member * 1.01

    def test_nobody_passes_their_own(self, run):
        for user in (0, 29, 210, 238, 239):
            assert run.of_user(user).epsilon <= self.targets[user]

    def test_whoever_was_in_no_round_has_nothing_to_fear(self, run):
        """Their targets were below what a round costs."""
        groups = by_group(charged((BUDGETS[:200], 1)), BUDGETS)
        assert [(group.users, group.epsilon > 0) for group in groups] == [(30, True)] * 7 + [(30, False)]

    def test_the_table_is_that_of_the_guarantee(self, run):
        for group in by_group(run.guarantee, run.budgets)[::3]:
            members = BUDGETS[(group.budget - 0.125 <= BUDGETS) & (group.budget >= BUDGETS)][:-1:9]
            assert all(run.guarantee.of(float(member)).epsilon <= group.epsilon for member in members)


def test_a_group_has_the_figure_of_its_largest_budget_where_all_took_part():
    people = np.linspace(0.5, 1.5, 16)
    guarantee = charged((people, 2))
    for group in by_group(guarantee, people):
        assert group.epsilon >= guarantee.of(group.budget).epsilon > 0


def test_a_group_whose_boldest_left_early_has_the_figure_of_who_stayed():
    """Sixteen budgets in eight groups; the bolder one of each was in the first of five rounds only."""
    people = np.repeat(np.linspace(0.5, 1.5, 16), 20)
    timid, bold = (np.unique(people)[first::2] for first in (0, 1))
    guarantee = charged((people, 1), (people[np.isin(people, timid)], 4))
    groups = by_group(guarantee, people)
    assert [group.budget for group in groups] == bold.tolist()
    for group, stayed in zip(groups, timid.tolist(), strict=True):
        left, member = guarantee.of(group.budget).epsilon, guarantee.of(stayed).epsilon
        assert left < 0.9 * member
        assert member * (1 - 1e-9) <= group.epsilon <= 1.05 * member


class TestAskedAgain:
    """Figures of one budget are not those of another."""

    guarantee = charged((np.repeat([1.0, 2.0], 20), 1), (np.full(20, 1.0), 5))

    def test_somebody_bolder_may_have_paid_less(self):
        own = {budget: self.guarantee.of(budget).epsilon for budget in (1.0, 2.0)}
        assert own[2.0] < 0.7 * own[1.0]
        assert self.guarantee.of(2.0).of(1.0).epsilon == own[1.0]
        assert self.guarantee.of(1.0).of(2.0).epsilon == own[2.0]
        assert self.guarantee.of(2.0, 1.0).epsilon >= own[1.0]

    def test_it_says_whom_it_is_about(self):
        for whom, said in ((None, "about anybody changes"), (2.0, "with a budget of 2 "), (1.5, "of at most 1.5 ")):
            guarantee = self.guarantee if whom is None else self.guarantee.of(whom)
            assert said in str(guarantee)
        assert "with a budget in [1, 2] " in str(self.guarantee.of(2.0, 1.0))

    def test_nobody_is_louder_than_the_loudest(self):
        for guarantee in (self.guarantee, self.guarantee.of(1.0)):
            with pytest.raises(apes.ParameterError, match=r"budget must be in \(0, 2\], that of somebody"):
                guarantee.of(2.1)

    def test_an_accountant_is_about_everybody(self):
        for name in ("victim", "victims"):
            with pytest.raises(TypeError, match=name):
                apes.Accountant(1e-5, expected_rounds=1, **{name: 0.1})


class TestChangingBudgets:
    """Nothing says that whoever came with a budget of 0.5 did not come with 4 another time."""

    def test_a_mean_of_those_who_come(self):
        mean = apes.PrivateMean(apes.Terms(clip=1.0, levels=2, rounds=2, delta=1e-5), dimensions=1)
        mean(np.ones((20, 1)), np.full(20, 0.5))
        once = mean.guarantee
        assert once.of(0.5).epsilon <= once.epsilon <= 0.5
        mean(np.ones((20, 1)), np.full(20, 4.0))
        both = mean.guarantee
        assert both.of(0.5).epsilon == both.of(4.0).epsilon == both.epsilon > 4.0

    def test_an_accountant_believes_it_only_if_told(self):
        rounds = (np.repeat([0.5, 2.0], 20), 3)
        told, not_told = charged(rounds), charged(rounds, keep_budgets=False)
        assert told.epsilon == not_told.epsilon == not_told.of(0.5).epsilon
        assert told.of(0.5).epsilon < told.epsilon / 2

    def test_of_one_round_everybody_has_the_own_figure(self):
        rounds = (np.repeat([0.5, 2.0], 20), 1)
        assert charged(rounds, keep_budgets=False).of(0.5).epsilon == charged(rounds).of(0.5).epsilon


def test_what_is_left_uncovered_is_no_guarantee_of_nothing():
    """A shift of 0 covers these people up to a probability of 1e-6: nothing is known below it."""
    guarantee = apes.certify([1e-9] * 10, delta=1e-3)
    assert guarantee.mu == 0
    assert guarantee.epsilon_at(1e-3) == 0
    assert guarantee.epsilon_at(1e-30) == np.inf
