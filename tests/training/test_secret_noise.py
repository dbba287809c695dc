"""Noise is secret unless a seed was given, and then the result says so."""

from dataclasses import replace

import numpy as np
import pytest
from few import PLAN, people_of, trained

import apes
from apes.training.keys import RunKeys

ONE_THREAD = apes.Workers(threads=1)
USERS, DIMENSIONS, CLIP, CALLS = 60, 20, 1.0, 24
BUDGETS = np.full(USERS, 1.0)
CONDITION = "as long as the seed stays secret"


def mean_of(**options):
    return apes.PrivateMean(apes.Terms(clip=CLIP, rounds=CALLS), DIMENSIONS, delta=1e-5, workers=ONE_THREAD, **options)


class TestTheAttack:
    """Somebody who knows the program and everybody else's answers looks for those of one person, the last."""

    others = np.random.default_rng(5).choice([-1.0, 1.0], (USERS - 1, DIMENSIONS))
    row = np.random.default_rng(6).choice([-1.0, 1.0], DIMENSIONS)

    def released(self, row, **options):
        """What is published of some calls, and what was said about it."""
        mean, rows = mean_of(**options), np.vstack([self.others, row])
        return np.array([mean(rows, BUDGETS) for _ in range(CALLS)]), mean.guarantee

    def found(self, published):
        """Draw the noise of seed 1, the old default, with either answer: which of them gives what was published?"""
        no, yes = (
            (self.released(np.full(DIMENSIONS, guess), seed=1)[0] == published).all(axis=0) for guess in (-1.0, 1.0)
        )
        return np.where(yes & ~no, 1.0, np.where(no & ~yes, -1.0, np.nan))

    def test_under_a_known_seed_it_finds_the_row_and_the_result_had_said_so(self):
        """With seed 1 the draws are what they are; either answer gives another report in nearly half of the calls."""
        published, guarantee = self.released(self.row, seed=1)
        assert self.found(published).tolist() == self.row.tolist()
        assert guarantee.is_seeded
        assert guarantee.condition == CONDITION
        assert CONDITION in str(guarantee)

    def test_by_default_it_finds_nothing(self):
        """That a coordinate fits by chance in all calls has a probability far below 1e-6."""
        published, guarantee = self.released(self.row)
        assert np.isnan(self.found(published)).all()
        assert not guarantee.is_seeded
        assert guarantee.condition is None
        assert "seed" not in str(guarantee)


def test_two_private_means_have_other_noise():
    rows = np.zeros((USERS, DIMENSIONS))
    assert not np.array_equal(mean_of()(rows, BUDGETS), mean_of()(rows, BUDGETS))
    assert np.array_equal(mean_of(seed=3)(rows, BUDGETS), mean_of(seed=3)(rows, BUDGETS))


def test_a_private_mean_under_a_key_is_that_of_the_key_and_as_secret_as_it():
    rows, key = np.zeros((USERS, DIMENSIONS)), apes.StreamKey(bytes(range(32)))
    mean = mean_of(seed=key)
    assert np.array_equal(mean(rows, BUDGETS), mean_of(seed=key)(rows, BUDGETS))
    assert not mean.guarantee.is_seeded
    seeded = mean_of(seed=apes.StreamKey.from_seed(4))
    seeded(rows, BUDGETS)
    assert seeded.guarantee.is_seeded


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True])
def test_a_seed_is_checked(seed):
    with pytest.raises(apes.ParameterError, match="seed must be"):
        mean_of(seed=seed)
    with pytest.raises(apes.ParameterError, match="seed must be"):
        replace(PLAN, seed=seed)


def test_two_runs_have_other_noise_and_other_digests():
    (one, reached), (other, again) = trained(), trained()
    assert one.model_sha256 != other.model_sha256
    assert reached[0].identity.people != again[0].identity.people
    assert people_of().digest not in repr(reached[0])
    assert not one.guarantee.is_seeded
    assert not one.of_user(0).is_seeded
    assert one.guarantee.as_dict([])["seeded"] is False


def test_a_run_under_a_seed_is_reproduced_and_says_so():
    plan = replace(PLAN, seed=1)
    (one, reached), (other, again) = trained(plan), trained(plan)
    assert one.model_sha256 == other.model_sha256
    # Digests of people are under a key of their own, which no seed tells.
    assert reached[0].identity.people != again[0].identity.people
    assert one.guarantee.is_seeded
    said = one.guarantee.as_dict([])
    assert (said["seeded"], said["condition"]) == (True, CONDITION)
    assert one.of_user(0).condition == CONDITION
    assert one.guarantee.of(0.5).is_seeded


def test_where_nothing_is_certified_there_is_nothing_to_hold():
    run, _ = trained(replace(PLAN, framework="unis", delta=None, seed=1))
    assert run.guarantee.is_seeded
    assert run.guarantee.condition is None


class TestKeys:
    def test_a_run_is_resumed_bit_for_bit_under_its_own_keys(self):
        whole, reached = trained()
        for progress in reached[:2]:
            assert trained(resume=progress)[0].model_sha256 == whole.model_sha256

    def test_a_run_that_was_loaded_is_not_resumed_without_its_keys(self):
        _, reached = trained()
        with pytest.raises(apes.ParameterError, match="keys must be given with resume: those of the run's folder"):
            trained(resume=replace(reached[0], keys=None))

    def test_of_other_keys_a_run_is_refused(self):
        _, reached = trained()
        with pytest.raises(apes.ParameterError, match="resume must be of the same people"):
            trained(resume=reached[0], keys=RunKeys.draw())

    def test_keys_do_not_contradict_the_plans_seed(self):
        with pytest.raises(apes.ParameterError, match="keys must be of the plan's seed, got others than those of 1"):
            trained(replace(PLAN, seed=1), keys=RunKeys.draw())
        with pytest.raises(apes.ParameterError, match="resume must be of the same seed"):
            trained(replace(PLAN, seed=1), resume=trained()[1][0])

    def test_keys_are_checked(self):
        for wrong in ({"noise": 1}, {"digests": b"short"}, {"digests": None}):
            with pytest.raises(apes.ParameterError, match=f"{next(iter(wrong))} must be"):
                RunKeys(**{"noise": None, "digests": bytes(32)} | wrong)

    def test_keys_are_not_shown(self):
        keys = RunKeys(apes.StreamKey(b"n" * 32), b"d" * 32)
        assert "n" * 8 not in repr(keys)
        assert "d" * 8 not in repr(keys)

    def test_a_seed_is_not_to_be_found_out_from_the_check(self):
        assert RunKeys.draw(1).check is None
        assert RunKeys.draw().check is not None
