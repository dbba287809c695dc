"""Liars: their reports alone are replaced, they point against the honest, and one goes as far as is said."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import apes
from apes.audit.poisoning import _CrewWithLiars, against, influence, poison
from apes.cli.main import app
from apes.cli.poison import _numbers, _shares
from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities
from apes.mathematics.randomness import SimulationSource
from apes.messages import CountedBatch
from apes.training.private_mean import Vectors
from apes.training.round import run_round

USERS = 200
ROWS = np.random.default_rng(1).random((USERS + 100, 3), dtype=np.float32)
LABELS = (ROWS[:, 0] > 0.5).astype(int)
TEST = apes.Examples(ROWS[USERS:], LABELS[USERS:])
MODEL = apes.LogisticRegression(3, 2)
BITS = apes.Plan(clip=0.2, norm=0.5, rounds=6, delta=1e-3, learning_rate=2.0, seed=1)
LEVELS = apes.Plan(clip=0.2, levels=16, rounds=6, delta=1e-3, learning_rate=2.0, seed=1)


def people_of(budgets, **options):
    return apes.People.from_arrays(ROWS[:USERS], LABELS[:USERS], budgets=np.broadcast_to(budgets, USERS), **options)


@pytest.mark.parametrize(("budget", "times"), [(0.05, 40.0083), (1.0, 2.16395), (4.0, 1.03731)])
def test_a_bit_of_a_liar_goes_as_far_as_the_hyperbolic_tangent_says(budget, times):
    budgets = np.array([0.05, 1.0, 1.0, 4.0])
    liar, honest = influence(BITS.terms, None, budgets, budget)
    assert liar / honest == pytest.approx(times, rel=1e-5)
    # The mean sign is divided by everybody's mean of tanh(e / 2), and by how many they are.
    assert liar == pytest.approx(1 / np.tanh(budgets / 2).sum(), rel=1e-12)


@pytest.mark.parametrize("calibration", ["inverse", "likelihood"])
@pytest.mark.parametrize("levels", [3, 17, 255])
def test_how_far_one_person_goes_is_what_the_calibrator_does_with_one_report(levels, calibration):
    """Of a crowd in the middle one report is put elsewhere: by a liar at an end, by the honest where noise puts it."""
    budgets, crowd, middle = np.full(1000, 0.8), 1000, levels // 2
    terms = apes.Terms(levels=levels, clip=0.3)
    calibrator = terms.calibrator(calibration)

    def estimate(levels_of_last):
        rows = np.zeros((levels_of_last.size, levels), dtype=np.int64)
        rows[:, middle] = crowd - 1
        rows[np.arange(levels_of_last.size), levels_of_last] += 1
        return calibrator.estimate(CountedBatch(rows, budgets)).mean

    moves = estimate(np.arange(levels)) / 0.3
    liar, honest = influence(terms, calibration, budgets, 0.8)
    assert liar == pytest.approx(np.abs(moves).max(), rel=1e-9)
    means = level_probabilities(np.array([0.8]), levels)[0] @ moves
    assert honest == pytest.approx(np.abs(means).max(), rel=1e-9)
    assert liar > honest


@pytest.mark.parametrize("terms", [BITS.terms, LEVELS.terms], ids=["bits", "levels"])
@pytest.mark.parametrize("threads", [1, 2])
def test_liars_alone_report_otherwise(terms, threads):
    people, weights, source = people_of(1.0), MODEL.start(), SimulationSource(1, 1)
    honest = run_round(terms, MODEL, weights, people, source)
    nobody, some = np.zeros(USERS, dtype=bool), np.arange(USERS) % 10 == 3
    same = run_round(terms, MODEL, weights, people, source, workers=_CrewWithLiars(nobody, threads))
    assert np.array_equal(same.counts, honest.counts)
    lied = run_round(terms, MODEL, weights, people, source, workers=_CrewWithLiars(some, threads))
    assert (lied.counts.sum(axis=1) == USERS).all()
    # Whatever the 20 had reported is gone, and 20 reports at one end have come.
    change = lied.counts - honest.counts
    assert np.minimum(change, 0).sum(axis=1).min() >= -20
    ends = np.argmax(change, axis=1)
    assert set(ends.tolist()) <= {0, terms.reports.levels - 1}
    others = run_round(terms, MODEL, weights, _without(people, some), source)
    assert others.counts.sum(axis=1).tolist() == [USERS - 20] * weights.size


def _without(people, left_out):
    from apes.training.cohort import cohort_of

    return cohort_of(people, ~left_out)


def test_liars_point_against_the_honest():
    assert against(np.array([0.5, -0.5, 1e-9, 0.0]), 256).tolist() == [0, 255, 0, 255]
    terms = apes.Terms(levels=2, norm=1.0, clip=0.5)
    is_lying = np.array([True, False, False, False])

    class Opposed(Vectors):
        """The liar's own update is larger than all others together, and does not count."""

        def updates(self, weights, block):
            return np.where(np.arange(block.first_user, block.first_user + block.budgets.size) == 0, 9.0, -0.1)[
                :, None
            ].astype(np.float32) * np.array([1.0, -1.0], dtype=np.float32)

    four = apes.People.from_arrays(np.zeros((4, 1), dtype=np.float32), np.zeros(4, dtype=int), budgets=[60.0] * 4)
    batch = run_round(terms, Opposed(2), np.zeros(2), four, SimulationSource(1, 1), workers=_CrewWithLiars(is_lying, 1))
    # The honest mean is negative in the first coordinate and positive in the second.
    assert batch.counts[0, 1] >= 1
    assert batch.counts[1, 0] >= 1


@pytest.mark.parametrize("plan", [BITS, LEVELS], ids=["bits", "levels"])
def test_without_liars_it_is_the_training_and_with_them_it_is_worse(plan):
    people = people_of(4.0)
    result = poison(MODEL, people, plan, [1, 20, 60], test=TEST, threads=1)
    run = apes.train(MODEL, people, plan, test=TEST)
    assert (result.accuracy, result.loss) == (run.accuracy, run.metrics[-1].loss)
    assert result.epsilon == run.guarantee.epsilon
    assert result.accuracy > 0.75
    losses = [result.loss, *(entry.loss for entry in result.poisoned)]
    assert losses == sorted(losses)
    assert result.poisoned[-1].accuracy < 0.65
    assert [entry.share for entry in result.poisoned] == [1 / USERS, 0.1, 0.3]
    # Who lies hides nobody.
    epsilons = [result.epsilon, *(entry.epsilon for entry in result.poisoned)]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] > 1.05 * epsilons[0]


def test_liars_claim_the_smallest_budget_and_groups_are_shown():
    budgets = np.repeat([0.5, 4.0], USERS // 2)
    result = poison(MODEL, people_of(budgets), BITS, [60], test=TEST, threads=1)
    assert [(entry.budget, entry.people) for entry in result.influences] == [(0.5, 100), (4.0, 100)]
    assert [entry.ratio for entry in result.influences] == pytest.approx([4.08299, 1.03731], rel=1e-5)
    # Of eight coordinates a norm of 2.5 C fills 6.25.
    assert result.dimensions == 8
    for entry in result.influences:
        assert entry.norm_ratio == pytest.approx(entry.ratio * math.sqrt(8 / 6.25), rel=1e-12)
    many = poison(MODEL, people_of(np.linspace(0.5, 4, USERS)), BITS, [], test=TEST, threads=1)
    assert [entry.people for entry in many.influences][1:] == pytest.approx([50] * 4, abs=1)
    assert sum(entry.people for entry in many.influences) == USERS


def test_people_with_targets_of_their_own_are_left_out_as_ever():
    people = people_of(1.0, targets=np.where(np.arange(USERS) < 100, 1.0, 3.0))
    plan = apes.Plan(clip=0.2, norm=0.5, levels=2, rounds=6, delta=1e-3, learning_rate=2.0, seed=1)
    result = poison(MODEL, people, plan, [20], test=TEST, threads=1)
    assert "under the budget that is known of them" in result.attack
    assert result.poisoned[0].loss > result.loss


@pytest.mark.parametrize(
    ("plan", "liars", "options", "why"),
    [
        (BITS, [0], {"test": TEST}, "liars must be in \\[1, 199\\], got 0"),
        (BITS, [USERS], {"test": TEST}, "liars must be in \\[1, 199\\], got 200"),
        (BITS, [1], {}, "test must be given"),
        (apes.Plan(clip=0.2, levels="continuous", seed=1), [1], {"test": TEST}, "levels must be in \\[2, 256\\]"),
        (
            apes.Plan(clip=0.2, framework="s-apes", seed=1),
            [1],
            {"test": TEST},
            "framework must be one with a certificate",
        ),
        (apes.Plan(framework="non-private", seed=1), [1], {"test": TEST}, "levels must be in \\[2, 256\\]"),
    ],
    ids=["nobody", "everybody", "no test part", "continuous", "top-b", "non-private"],
)
def test_what_cannot_be_asked_is_refused(plan, liars, options, why):
    with pytest.raises(ParameterError, match=why):
        poison(MODEL, people_of(1.0), plan, liars, threads=1, **options)


def test_liars_are_numbers_or_shares():
    assert _numbers(_shares("1, 5%,0.01%,12"), 1300) == [1, 65, 1, 12]
    for text in ("", "x", "5%%", "nan%", "101%", "-1%", "1.5", "1,,2", ",".join("1" * 21)):
        with pytest.raises(ParameterError, match="liars must be"):
            _shares(text)


@pytest.mark.service
def test_the_command_says_the_same_to_people_and_to_programs():
    options = "poison --users 200 --rounds 3 --preset paper --levels 2 --budgets constant:4 --liars 1,20% --seed 1"
    told = CliRunner(env={"COLUMNS": "80"}).invoke(app, options.split())
    facts = json.loads(CliRunner().invoke(app, [*options.split(), "--json"]).stdout)
    assert [entry["liars"] for entry in facts["with_liars"]] == [1, 40]
    assert facts["influence"][0]["ratio"] == pytest.approx(1 / math.tanh(2), rel=1e-12)
    assert facts["with_liars"][1]["accuracy"] < facts["without_liars"]["accuracy"]
    for entry in (facts["without_liars"], *facts["with_liars"]):
        assert f"{100 * entry['accuracy']:.2f} %" in told.stdout
    assert "this is no bound" in " ".join(told.stdout.split())
    refused = CliRunner().invoke(app, ["poison", "--liars", "many"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "liars must be numbers of people or shares in per cent" in refused.stderr
