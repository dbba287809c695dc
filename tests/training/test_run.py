"""What a run learns from was charged before, once, for those who took part; also where it is resumed."""

from dataclasses import replace

import numpy as np
import pytest
from few import BUDGETS, LABELS, MODEL, ONE_THREAD, PLAN, ROWS, USERS, people_of, trained

import apes
from apes.errors import ProtocolError
from apes.models.model import check_model
from apes.population import Examples, UserBlock
from apes.training.cohort import Cohort, cohort_names
from apes.training.round import run_round
from apes.training.run import Identity, Run


def run_of(plan=PLAN):
    cohorts = cohort_names([np.ones(USERS, dtype=bool)] * plan.terms.rounds, BUDGETS)
    of = plan.terms, plan.schedule, MODEL, Identity("", "", "")
    return Run(*of, start=check_model(MODEL), users=USERS, test=None, cohorts=cohorts)


def batch_of(people, model=MODEL):
    source = apes.SimulationSource(1, 1)
    return run_round(PLAN.terms, model, model.start(), people, source, workers=ONE_THREAD)


def test_a_batch_is_of_those_who_were_charged():
    others = BUDGETS.copy()
    others[0] = 0.2
    fewer = apes.People.from_arrays(ROWS[1:], LABELS[1:], budgets=BUDGETS[1:])
    for people in (people_of(others), fewer):
        run = run_of()
        run.charge(BUDGETS)
        with pytest.raises(ProtocolError, match="the batch is of other participants than the round was charged for"):
            run.conclude(batch_of(people), 0.0)
        assert run.progress.rounds == 0


def test_a_batch_has_the_coordinates_that_were_charged():
    run = run_of()
    run.charge(BUDGETS)
    wider = apes.LogisticRegression(4, 2)
    batch = batch_of(people_of(rows=np.hstack([ROWS, ROWS[:, :1]])), wider)
    with pytest.raises(ProtocolError, match=r"the batch has \(10,\) coordinates, 8 were charged"):
        run.conclude(batch, 0.0)


def test_a_batch_is_charged_before_it_is_taken_and_taken_once():
    run, batch = run_of(), batch_of(people_of())
    with pytest.raises(ProtocolError, match="a round is charged before its batch is looked at"):
        run.conclude(batch, 0.0)
    run.charge(BUDGETS)
    assert run.guarantee.epsilon > 0
    run.conclude(batch, 0.0)
    with pytest.raises(ProtocolError, match="a round is charged before its batch is looked at"):
        run.conclude(batch, 0.0)
    assert run.progress.rounds == 1


def test_a_record_with_more_rounds_than_the_target_lets_through_is_not_resumed():
    free, recorded = trained()
    limited = replace(PLAN, target_epsilon=(free.metrics[0].epsilon + free.metrics[1].epsilon) / 2)
    _, begun = trained(limited)
    assert len(begun) == 1
    forged = replace(recorded[-1], identity=begun[0].identity, keys=begun[0].keys)
    with pytest.raises(apes.BudgetExceeded):
        trained(limited, resume=forged)


def test_a_run_is_resumed_under_the_same_judges():
    judges = Examples(ROWS, LABELS.astype(np.uint8))
    _, reached = trained(test=judges)
    for others in (Examples(ROWS, 1 - judges.labels), Examples(1 - ROWS, judges.labels)):
        with pytest.raises(apes.ParameterError, match="resume must be of the same test part"):
            trained(resume=reached[0], test=others)


def test_a_cap_is_kept_by_everybody_and_charged():
    run, _ = trained(replace(PLAN, cap=0.2, seed=1))
    assert run.budgets.tolist() == np.minimum(BUDGETS, 0.2).tolist()
    for exposure in run.exposures:
        assert sorted(exposure.budgets) == sorted(run.budgets)
    by_hand, _ = trained(replace(PLAN, seed=1), people=people_of(np.minimum(BUDGETS, 0.2)))
    assert run.model_sha256 == by_hand.model_sha256
    assert run.guarantee.epsilon == by_hand.guarantee.epsilon


class Liar:
    """People who hand out other budgets in a round than those that were charged."""

    def __init__(self, people):
        self._people = people
        self.budgets, self.digest = people.budgets, people.digest

    def block(self, start, stop):
        honest = self._people.block(start, stop)
        return UserBlock(start, 1000 * honest.budgets, honest.features, honest.labels, honest.offsets)


def test_what_was_charged_is_what_people_perturb_under():
    plan = replace(PLAN, seed=1)
    assert trained(plan, people=Liar(people_of()))[0].model_sha256 == trained(plan)[0].model_sha256


@pytest.mark.parametrize("kept", [[0, 1, 2], [1, 2, 5, 6, 7, 9], [0, 39], [3]])
def test_those_who_are_left_have_their_own_rows(kept):
    people = people_of()
    cohort = Cohort(people, np.array(kept))
    assert cohort.budgets.tolist() == BUDGETS[kept].tolist()
    for start in range(len(kept)):
        for stop in range(start + 1, len(kept) + 1):
            block = cohort.block(start, stop)
            assert block.first_user == start
            assert (block.features == ROWS[kept[start:stop]]).all()
            assert (block.labels == LABELS[kept[start:stop]]).all()
            assert block.budgets.tolist() == BUDGETS[kept[start:stop]].tolist()
            assert block.offsets.tolist() == list(range(stop - start + 1))


def test_the_guarantee_of_a_user_is_at_the_runs_delta():
    run, _ = trained()
    for user in (0, USERS - 1):
        own = run.of_user(user)
        assert own.delta == run.guarantee.delta == 1e-3
        assert own.epsilon == run.guarantee.of(BUDGETS[user]).epsilon
