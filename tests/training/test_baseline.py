"""Every result stands beside a guess that takes no model, on the same test rows; and no accuracy is a NaN."""

import json
import math

import numpy as np
import pytest

import apes
from apes.models.linear import LinearRegression
from apes.population import Examples
from apes.training.baseline import Judged, baseline_of, largest_share
from apes.training.run import RoundMetrics

RNG = np.random.default_rng(1)
ROWS = RNG.random((400, 3), dtype=np.float32)
PLAN = apes.Plan(norm=0.5, clip=0.2, rounds=2, delta=1e-3, seed=1)


def trained(labels, test, plan=PLAN, model=None):
    people = apes.People.from_arrays(ROWS, labels, budgets="constant:1", test=test)
    return apes.train(model or apes.LogisticRegression.of(people), people, plan)


def test_the_baseline_is_of_the_test_rows_and_not_of_those_who_train():
    labels = np.repeat([0, 1], [360, 40])
    of_test = np.repeat([0, 1], [40, 60])
    run = trained(labels, (ROWS[:100], of_test))
    assert run.baseline == 0.6
    assert [entry.baseline for entry in run.metrics] == [0.6, 0.6]
    assert run.metrics[-1].test_rows == 100


def test_the_mean_is_of_the_test_rows_and_in_the_unit_of_the_loss():
    labels = np.linspace(-1, 1, 400)
    of_test = np.array([0.25] * 50 + [0.75] * 50)
    run = trained(labels, (ROWS[:100], of_test), model=LinearRegression(3))
    assert run.accuracy is None
    assert run.baseline == pytest.approx(0.25**2)
    # What squared loss comes to where a model always answers the mean.
    constant = np.array([0.0, 0.0, 0.0, 0.5 * 20])
    assert LinearRegression(3).evaluate(constant, Examples(ROWS[:100], of_test))[1] == pytest.approx(run.baseline)


def test_a_torch_model_says_what_its_own_loss_of_the_mean_is():
    torch = pytest.importorskip("torch")
    labels = np.array([0.0, 0.0, 1.0, 2.0] * 25, dtype=np.float32)
    examples = Examples(ROWS[:100], labels)
    for loss, expected in ((torch.nn.MSELoss(), labels.var()), (torch.nn.L1Loss(), 0.75)):
        model = apes.TorchModel(torch.nn.Linear(3, 1), loss)
        assert baseline_of(model, examples, None) == pytest.approx(expected, rel=1e-6)
    of_classes = apes.TorchModel(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss())
    assert of_classes.constant_loss(Examples(ROWS[:100], np.arange(100) % 2)) is None


def test_a_model_that_says_nothing_of_it_has_no_baseline():
    class Own:
        pass

    assert baseline_of(Own(), Examples(ROWS, np.ones(400, dtype=np.float32)), None) is None
    assert baseline_of(Own(), Examples(ROWS, np.ones(400, dtype=np.float32)), 0.5) is None
    assert largest_share(Examples(ROWS, np.repeat([3, 9, 1], [100, 200, 100]))) == 0.5


@pytest.mark.parametrize(
    ("judged", "beats", "words"),
    [
        (Judged(0.699, 0.6, 0.738, 1000), False, "no better than always guessing the most frequent class (73.80 %)."),
        (Judged(0.738, 0.6, 0.738, 1000), False, "no better than always guessing the most frequent class (73.80 %)."),
        # 11.14 % of 10,000 made-up digits, of which 10.27 % are fours: not told apart from a guess.
        (
            Judged(0.1114, 2.5, 0.1027, 10_000),
            False,
            "most frequent class (10.27 %): 10,000 test rows are too few to tell.",
        ),
        (Judged(0.95, 0.2, 0.1027, 10_000), True, None),
        (Judged(0.90, 0.2, 0.63, 90), True, None),
        (Judged(1.0, 0.0, 1.0, 50), False, "no better than always guessing the most frequent class (100.00 %)."),
        (Judged(math.nan, 0.2, 0.6, 90), False, "no better than"),
        (Judged(None, 0.25, 0.25), False, "no better than always guessing the mean (loss 0.2500)."),
        (Judged(None, 0.2, 0.25), True, None),
        (Judged(None, math.nan, 0.25), False, "no better than"),
        (Judged(0.5, 0.2), None, None),
        (Judged(None, None), None, "No test part: how good the model is is not known."),
    ],
)
def test_what_is_said_first(judged, beats, words):
    assert judged.beats_baseline is beats
    assert (judged.verdict is None) == (words is None)
    assert words is None or words in judged.verdict


def test_chance_alone_is_seldom_taken_for_a_better_model():
    """Guesses that are right as often as the most frequent class: three standard errors, of 2,000 at most 20 pass.

    Each passes with a probability of at most 0.00135 (a normal beyond 3), so 20 or more have one below 1e-9.
    """
    rows, share = 2000, 0.55
    right = RNG.binomial(rows, share, 2000) / rows
    assert sum(bool(Judged(float(own), 0.5, share, rows).beats_baseline) for own in right) <= 20
    # And one that is right in a tenth more of the rows is not called a guess.
    assert Judged(share + 0.1, 0.5, share, rows).beats_baseline is True


def test_without_a_test_part_there_is_no_number_and_the_text_says_so():
    people = apes.People.from_arrays(ROWS, np.arange(400) % 2, budgets="constant:1")
    run = apes.train(apes.LogisticRegression.of(people), people, PLAN)
    assert run.accuracy is None
    assert run.baseline is None
    assert str(run).startswith("no test part: how good the model is is not known; epsilon ")
    assert json.loads(json.dumps({"accuracy": run.accuracy})) == {"accuracy": None}


def test_a_result_as_text_stands_beside_its_baseline():
    labels = (ROWS[:, 0] > 0.5).astype(int)
    run = trained(labels, (ROWS[:100], np.repeat([0, 1], [70, 30])))
    text = str(run)
    assert "always guessing the most frequent class: 70.00 %" in text
    assert ("no better than" in text) == (run.judged.beats_baseline is False)


def test_metrics_of_earlier_versions_have_no_baseline():
    entry = RoundMetrics(round=1, accuracy=0.5, loss=0.1, seconds=0.1, epsilon=None)
    assert entry.judged.verdict is None
