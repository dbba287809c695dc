"""People of arrays and of torch data sets are split as those of a table are: by person, by a keyed hash of the id."""

import numpy as np
import pytest

from apes import LogisticRegression, ParameterError, People, Plan, train

USERS = np.repeat(np.arange(300), 2)
ROWS = np.stack([np.arange(600) / 600, USERS / 300], axis=1)
LABELS = (USERS % 3 == 0).astype(int)
ITEMS = [(row, int(label)) for row, label in zip(ROWS, LABELS, strict=True)]


def ids_of(rows):
    """Whose rows they are."""
    return set(np.rint(rows[:, 1].astype(np.float64) * 300).astype(int).tolist())


@pytest.mark.parametrize(
    "ids", [USERS, [f"p{user}" for user in USERS], USERS.astype(float)], ids=["int", "text", "float"]
)
def test_the_same_people_judge_as_of_a_table(ids):
    table = {"user": ids, "x": ROWS[:, 0], "of": ROWS[:, 1], "y": LABELS}
    of_table = People.from_table(table, user="user", label="y", budgets="constant:1", bounds=(0, 1), seed=5)
    people = People.from_torch(ITEMS, users=ids, budgets="constant:1", seed=5)
    assert people.budgets.size == of_table.budgets.size
    # Encoded rows of the table are scaled; what is left is whose they are.
    scale = 9 / np.sqrt(2)
    test = (of_table.test.features / scale + 1) / 2
    assert ids_of(people.test.features) == ids_of(test)
    assert len(people.test.labels) == len(of_table.test.labels)


def test_nobody_is_split_and_nobody_is_lost():
    people = People.from_torch(ITEMS, users=USERS, budgets="constant:1")
    judges, users = ids_of(people.test.features), people.budgets.size
    trains = ids_of(people.block(0, users).features)
    assert judges | trains == set(range(300))
    assert not judges & trains
    assert len(people.test.labels) == 2 * len(judges)
    # 60 of 300 expected, a standard deviation of 6.9: five of them.
    assert abs(len(judges) - 60) < 35


def test_others_change_nothing_about_anybody():
    few = People.from_torch(ITEMS[:400], users=USERS[:400], budgets="constant:1")
    everybody = People.from_torch(ITEMS[::-1], users=USERS[::-1], budgets="constant:1")
    assert ids_of(few.test.features) == {user for user in ids_of(everybody.test.features) if user < 200}


def test_budgets_and_targets_stay_with_their_people():
    own = {user: 0.1 + user / 300 for user in range(300)}
    by_row = [own[user] for user in USERS.tolist()]
    for budgets in (own, by_row):
        people = People.from_arrays(ROWS, LABELS, users=USERS, budgets=budgets, targets=by_row, test_share=0.3)
        trains = sorted(ids_of(people.block(0, people.budgets.size).features))
        assert people.budgets.tolist() == [own[user] for user in trains]
        assert people.targets.tolist() == people.budgets.tolist()
    # Who judges needs no budget.
    without = {user: own[user] for user in trains}
    again = People.from_arrays(ROWS, LABELS, users=USERS, budgets=without, targets=by_row, test_share=0.3)
    assert again.digest == people.digest


def test_a_class_that_only_judges_have_is_one():
    people = People.from_torch(ITEMS, users=USERS, budgets="constant:1")
    judge = min(ids_of(people.test.features))
    labels = np.where(judge == USERS, 7, LABELS)
    found = People.from_arrays(ROWS, labels, users=USERS, budgets="constant:1", test_share=0.2)
    assert found.classes == 8
    run = train(LogisticRegression.of(found), found, Plan(norm=0.5, clip=0.1, rounds=1, delta=1e-3, seed=1))
    assert 0 <= run.accuracy <= 1


def test_a_test_part_that_is_brought_is_the_test_part():
    people = People.from_torch(ITEMS, users=USERS, budgets="constant:1", test=ITEMS[:10])
    assert people.budgets.size == 300
    assert len(people.test.labels) == 10
    assert People.from_torch(ITEMS, users=USERS, budgets="constant:1", test_share=0).test is None
    assert People.from_arrays(ROWS, LABELS, users=USERS, budgets="constant:1").test is None
    with pytest.raises(ParameterError, match=r"^test_share must be 0 beside test, which judges; got 0\.1$"):
        People.from_torch(ITEMS, users=USERS, budgets="constant:1", test=ITEMS[:10], test_share=0.1)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), 0.999999999])
def test_shares_that_cannot_be(share):
    with pytest.raises(ParameterError, match="test_share must"):
        People.from_arrays(ROWS, LABELS, users=USERS, budgets="constant:1", test_share=share)


def test_targets_that_are_real_judge_too():
    people = People.from_torch([(row, float(row[0])) for row in ROWS], users=USERS, budgets="constant:1")
    assert people.test.labels.dtype == np.float32
