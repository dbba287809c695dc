"""The frontier: the yardstick's noise is what its epsilon needs, every way keeps to its target, captions are true."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import apes
from apes.accounting.composition.gaussian import gaussian_epsilon
from apes.defaults import NORM
from apes.errors import ParameterError
from apes.models.logistic import FedProx
from apes.paper.experiments import EXPERIMENTS
from apes.paper.frontier.frontier import FRONTIER, _point
from apes.paper.frontier.runs import capped, train_within_target
from apes.paper.frontier.trusted_server import TrustedServer, _clipped_sum, clipped_sums
from apes.paper.frontier.ways import (
    APES,
    AS_PUBLISHED,
    DELTA,
    FIRST,
    ONE_BIT,
    ONE_BIT_AS_IT_IS,
    ONE_BIT_PIXELS,
    TRUSTED,
    TRUSTED_PIXELS,
    WAYS,
    searched_for,
    targets_of,
    way_parts,
)
from apes.paper.page import markdown
from apes.paper.parts import Part, Workshop
from apes.paper.run import work, write
from apes.paper.setting import Setting, quick
from apes.paper.task import task_of
from apes.terms.schedule import Schedule
from apes.training.workers import Workers

USERS = 50


class Still:
    """A model whose updates are all the same; it remembers what it was judged by."""

    def __init__(self, dimensions, value=0.0):
        self.dimensions, self.value, self.seen = dimensions, value, []
        self.digest = "still"

    def start(self):
        return np.zeros(self.dimensions)

    def updates(self, weights, block):
        return np.full((block.budgets.size, self.dimensions), self.value, dtype=np.float32)

    def evaluate(self, weights, examples):
        self.seen.append(weights.copy())
        return 0.5, 1.0


def people(users=USERS, test=True):
    rows, labels = np.ones((users, 1)), np.zeros(users, dtype=int)
    return apes.People.from_arrays(rows, labels, budgets="uniform2", test=(rows, labels) if test else None)


def bare(norm=1.0, rounds=1, **changes):
    """A yardstick whose model after a round is the estimate itself, with the other sign."""
    schedule = Schedule(learning_rate=1.0, momentum=0.0, last_step=1.0)
    return replace(TrustedServer(norm, rounds, 1.0, 1e-5, schedule), **changes)


@pytest.mark.parametrize("target", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 60])
def test_the_yardstick_spends_its_target_and_no_more(target, rounds):
    """Power: a tenth less noise passes it."""
    server, users = TrustedServer(0.7, rounds, target, 1e-5), 10_000
    assert target * (1 - 1e-6) < server.epsilon(users) <= target
    shift = 2 * 0.7 / (users * server.noise(users))
    assert gaussian_epsilon(shift * math.sqrt(rounds), 1e-5) <= target
    assert gaussian_epsilon(shift / 0.9 * math.sqrt(rounds), 1e-5) > 1.05 * target


def noise_is_right(weights, expected):
    """Five standard errors of a standard deviation and of a mean: a false alarm in a million."""
    error = expected / math.sqrt(weights.size)
    return abs(weights.std() - expected) < 5 * error / math.sqrt(2) and abs(weights.mean()) < 5 * error


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_the_yardstick_adds_has_the_standard_deviation_it_says(rounds):
    model, server = Still(40_000), bare(rounds=rounds)
    server.train(model, people())
    steps = np.diff([model.start(), *model.seen], axis=0)
    expected = 2 * server.norm * math.sqrt(rounds) / (USERS * _mu(1.0, 1e-5))
    for step in steps:
        assert noise_is_right(step, expected)
        # Power: a mechanism with a tenth less noise, or more, is found out.
        assert not noise_is_right(0.9 * step, expected)
        assert not noise_is_right(1.1 * step, expected)
    if rounds > 1:
        assert abs(np.corrcoef(steps)[0, 1]) < 5 / math.sqrt(model.dimensions)


def _mu(epsilon, delta):
    """Largest Gaussian shift with this epsilon, by its definition and halving."""
    from scipy.stats import norm

    low, high = 0.0, 50.0
    for _ in range(80):
        mu = (low + high) / 2
        excess = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - delta
        low, high = (mu, high) if excess < 0 else (low, mu)
    return low


def test_seeds_differ_and_repeat():
    first, again, other = Still(50), Still(50), Still(50)
    bare().train(first, people())
    bare().train(again, people(), workers=Workers(threads=3, users_at_once=7))
    bare(seed=2).train(other, people())
    assert (first.seen[-1] == again.seen[-1]).all()
    assert (first.seen[-1] != other.seen[-1]).all()


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_no_user_counts_for_more_than_the_norm(size):
    model = Still(100, size)
    total = _clipped_sum(model, model.start(), people(), 0.5, Workers(threads=1))
    alone = min(0.5, size * 10)
    assert np.linalg.norm(total) == pytest.approx(USERS * alone, rel=1e-5)
    # Whoever is replaced by the worst other moves the sum by 2 R at most.
    other = _clipped_sum(Still(100, -size), model.start(), people(1), 0.5, Workers(threads=1))
    assert np.linalg.norm(total / USERS - other) <= 2 * 0.5 * (1 + 1e-6)


def test_one_large_update_counts_for_no_more_than_the_norm_among_small_ones():
    class Apart(Still):
        """One user's update is a thousand times as large as those of all others."""

        def updates(self, weights, block):
            found = super().updates(weights, block)
            found[0] *= 1000
            return found

    model = Apart(100, 0.001)
    total = _clipped_sum(model, model.start(), people(), 0.5, Workers(threads=1))
    assert np.linalg.norm(total) == pytest.approx(0.5 + (USERS - 1) * 0.01, rel=1e-5)


def uneven_people(rng):
    """600 users with 1 to 5 rows of 7 numbers; the first user's rows are a thousand times as long as the others'."""
    counts = rng.integers(1, 6, 600)
    rows, owners = rng.normal(size=(counts.sum(), 7)).astype(np.float32), np.repeat(np.arange(600), counts)
    rows[owners == 0] *= 1000
    return apes.People.from_arrays(rows, rng.integers(0, 3, len(rows)), budgets="uniform2", users=owners, classes=3)


@pytest.mark.parametrize("local", [None, FedProx(epochs=3)], ids=["gradients", "local steps"])
@pytest.mark.parametrize("norm", [1e-3, 0.7, 1e3])
def test_sums_from_inner_products_are_those_of_updates_that_are_written_out(norm, local):
    rng = np.random.default_rng(1)
    people, model = uneven_people(rng), apes.LogisticRegression(7, 3, local)
    weights = rng.normal(size=model.dimensions)
    expected = _clipped_sum(model, weights, people, norm, Workers(threads=1))
    sums = clipped_sums(model, people, norm, Workers(threads=2))
    assert sums(weights) == pytest.approx(expected, rel=1e-4, abs=1e-5 * np.abs(expected).max())
    assert (sums(weights) == clipped_sums(model, people, norm, Workers(threads=1))(weights)).all()


def test_sums_from_inner_products_let_no_user_count_for_more_than_the_norm():
    """Everybody's update beside that without the first user, whose rows are long."""
    rng = np.random.default_rng(1)
    people, model = uneven_people(rng), apes.LogisticRegression(7, 3)
    weights, block = rng.normal(size=model.dimensions), people.block(1, 600)
    others = apes.People(block.features, block.labels, block.offsets, block.budgets, classes=3)
    moved = clipped_sums(model, people, 0.5, Workers())(weights) - clipped_sums(model, others, 0.5, Workers())(weights)
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"norm": math.nan}, "norm"),
        ({"norm": 0.0}, "norm"),
        ({"rounds": 0}, "rounds"),
        ({"target_epsilon": math.inf}, "target_epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"seed": -1}, "seed"),
    ],
)
def test_the_yardstick_refuses(changes, name):
    with pytest.raises(ParameterError, match=name):
        bare(**changes)


def test_the_yardstick_needs_examples():
    with pytest.raises(ParameterError, match="test examples"):
        bare().train(Still(3), people(test=False))


def test_cap_is_as_large_as_fits():
    budgets = np.linspace(0.05, 1, 2_000)
    plan = apes.Plan(clip=0.1, rounds=20, delta=1e-5, target_epsilon=1.0, seed=1)
    found = capped(plan, budgets, 500)

    def epsilon(cap):
        terms = replace(plan, cap=cap).terms
        accountant = terms.accountant(budgets.size, settled=True)
        return accountant.after(terms.exposure(0, terms.applied(budgets), 500), 20)

    assert epsilon(found.cap) <= 1.0 < epsilon(1.03 * found.cap)
    assert capped(replace(plan, target_epsilon=1e3), budgets, 500).cap is None


def test_no_accuracy_where_no_round_fits(small_digits):
    arguments = way_parts(Setting("digits", users=300), AS_PUBLISHED, 0.25)[0].arguments
    values = train_within_target(task_of(arguments, lambda *_: small_digits), lambda share: None, finds_cap=False)
    assert values["accuracy"] is None
    assert values["rounds"] == 0


@pytest.mark.parametrize("name", WAYS)
def test_every_way_is_run_at_every_target(name):
    setting = Setting("mnist")
    for target in targets_of(setting, name):
        parts = way_parts(setting, name, target)
        assert [part.arguments["seed"] for part in parts] in ([1], [1, 2, 3])
        for part in parts:
            assert part.arguments["delta"] == DELTA
            assert part.arguments.get("target_epsilon") == target
            assert part.arguments["users"] == 10_000
            assert part.weight > 0


PAIRS = [(ONE_BIT, TRUSTED), (ONE_BIT_PIXELS, TRUSTED_PIXELS)]


@pytest.mark.parametrize(("ours", "yardstick"), PAIRS)
def test_without_a_search_ours_and_the_yardstick_are_alike(ours, yardstick):
    """The same features, rounds and norm at every target."""
    setting = Setting("digits")
    for target in setting.targets:
        own, other = (way_parts(setting, name, target)[0].arguments for name in (ours, yardstick))
        assert own["features"] == other["features"]
        assert own["rounds"] == other["rounds"]
        assert other["norm"] == NORM


SEARCHED = {"rounds": 33, "norm": 0.7, "learning_rate": 3.0, "momentum": 0.9, "last_step": 0.1}


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Settings that were searched for on the digits, at one target."""
    ways = {name: {"points": [{"target": 1.0, "choices": SEARCHED, "runs": 8}]} for pair in PAIRS for name in pair}
    monkeypatch.setattr("apes.paper.frontier.tuned.FOLDER", tmp_path)
    kept = {"made_by": "python -m benchmarks.frontier_settings --data digits", "users": 10_000, "ways": ways}
    (tmp_path / "tuned-digits.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("name", [name for pair in PAIRS for name in pair])
def test_what_was_searched_for_is_run(searched, name):
    setting = Setting("digits")
    for part in way_parts(setting, name, 2.0):
        assert SEARCHED.items() <= part.arguments.items()
        plan = task_arguments(part)
        assert (plan.rounds, plan.norm, plan.schedule.momentum, plan.target_epsilon) == (33, 0.7, 0.9, 2.0)
    assert searched_for(setting, name, 2.0) == SEARCHED


def task_arguments(part):
    return apes.Plan(**{k: v for k, v in part.arguments.items() if k in apes.Plan.__dataclass_fields__})


@pytest.mark.parametrize("setting", [quick("digits"), Setting("digits", users=9_000), Setting("mnist")])
def test_runs_of_another_size_or_set_take_nothing_that_was_searched_for(searched, setting):
    for name in WAYS:
        assert searched_for(setting, name, 1.0) is None
        assert way_parts(setting, name, 1.0)[0].arguments.get("momentum") is None


def test_only_both_sides_are_searched_for(searched):
    setting = Setting("digits")
    assert {n for n in WAYS if searched_for(setting, n, 1.0)} == {name for pair in PAIRS for name in pair}


def test_the_defaults_are_those_of_apes_train(searched):
    """Nothing but the target is given."""
    for target in (0.25, 8.0):
        plan = task_arguments(way_parts(Setting("digits"), ONE_BIT_AS_IT_IS, target)[0])
        assert plan == apes.Plan(rounds=60, target_epsilon=target, delta=DELTA, seed=1)


def test_seeds_are_all_run_for_both_sides():
    setting = Setting("mnist")
    for name in (ONE_BIT, TRUSTED, ONE_BIT_AS_IT_IS, ONE_BIT_PIXELS, TRUSTED_PIXELS):
        assert [len(way_parts(setting, name, target)) for target in setting.targets] == [3] * 6
    assert len(way_parts(setting, APES, 1.0)) == len(way_parts(setting, FIRST, 1.0)) == 1


def test_the_epsilon_of_several_seeds_is_the_largest():
    """Each seed draws budgets of its own: the smallest would be true of one of them only."""
    setting = Setting("mnist")
    epsilons = {1: 0.97, 2: 0.99, 3: 0.98}
    figures = {"accuracy": 0.9, "accuracy_by_round": [0.9]}
    found = _point(setting, ONE_BIT, 1.0, lambda part: figures | {"epsilon": epsilons[part.arguments["seed"]]})
    assert found["epsilon"] == 0.99


def point(target, mean, epsilon=None):
    found = None if mean is None else {"runs": [mean], "mean": mean, "spread": 0.0}
    facts = {"rounds": 0 if mean is None else 7, "clip": 0.1, "norm": None, "cap": None, "dimensions": 10}
    facts["searched_for"] = None
    return {"target": target, "accuracy": found, "epsilon": target if epsilon is None else epsilon, **facts}


@pytest.fixture
def figures():
    ways = {name: {"title": way.title, "points": [point(1.0, 90.0), point(8.0, 95.0)]} for name, way in WAYS.items()}
    ways[TRUSTED]["points"] = [point(1.0, 90.25), point(8.0, 94.0)]
    ways[AS_PUBLISHED]["points"] = [point(1.0, None), point(8.0, 60.0), point(None, 80.0, 21.3)]
    return {
        "data": "mnist",
        "users": 10,
        "images_per_user": 6.0,
        "budgets": "uniform2",
        "delta": 1e-5,
        "targets": [1.0, 8.0],
        "seeds": [1],
        "search": None,
        "ways": ways,
        "published": [],
    }


def test_caption_says_what_the_figures_say(figures):
    caption = FRONTIER.caption(figures)
    assert "reaches 90.00 %, a trusted server 90.25 %: ours is 0.25 points below it" in caption
    assert "80.00 % after its 7 rounds, which cost 21.3; of the targets, 8 is the first" in caption
    figures["ways"][TRUSTED]["points"] = [point(1.0, 89.0), point(8.0, 94.0)]
    assert "ours is 1.00 points above it" in FRONTIER.caption(figures)
    figures["ways"][AS_PUBLISHED]["points"][1] = point(8.0, None)
    assert "none is met by even one round" in FRONTIER.caption(figures)


def test_caption_and_tables_say_what_was_searched_for(figures):
    assert "No settings were searched for on this data set, for either side." in FRONTIER.caption(figures)
    assert [table.title for table in FRONTIER.tables(figures)][2:] == []
    figures["search"] = {"made_by": "python -m one", "runs": {TRUSTED: [8, 0], ONE_BIT: [8, 0]}}
    figures["ways"][ONE_BIT_AS_IT_IS]["points"] = [point(1.0, 89.5), point(8.0, 94.0)]
    for name in (TRUSTED, ONE_BIT):
        figures["ways"][name]["points"][0]["searched_for"] = SEARCHED | ({"cap": 0.25} if name == ONE_BIT else {})
    assert "Without that, as `apes train` is, one bit on features reaches 89.50 %" in FRONTIER.caption(figures)
    table = FRONTIER.tables(figures)[2]
    assert table.rows == [
        ["trusted server, features", "1", "33", "0.7", "3", "0.9", "0.1", "-"],
        ["one bit, features", "1", "33", "0.7", "3", "0.9", "0.1", "0.25"],
    ]
    assert "is in no epsilon here, on either side" in table.note
    assert {len(row) for row in table.rows} == {len(table.headings)}


def test_tables_have_a_cell_for_everything(figures):
    for table in FRONTIER.tables(figures):
        assert {len(row) for row in table.rows} == {len(table.headings)}
    assert ["APES as published, pixels", "no round fits", "60.00"] in FRONTIER.tables(figures)[0].rows


def test_it_is_made_only_when_asked_for():
    assert [name for name, e in EXPERIMENTS.items() if not e.is_of_paper] == ["frontier"]


@pytest.mark.parametrize(
    "targets",
    [pytest.param((8.0,), marks=pytest.mark.service), pytest.param((1.0, 8.0), marks=pytest.mark.exhaustive)],
    ids=["one target", "two targets"],
)
def test_quick_from_end_to_end(targets, tmp_path, small_digits, monkeypatch):
    """The coarse version: every way keeps to its targets, and the page is about nothing but what was run."""
    setting, workshop = replace(quick("digits"), users=1_500, rounds=2, targets=targets), Workshop(tmp_path, None)
    monkeypatch.setattr(workshop, "dataset", lambda name, normalise: small_digits)
    work([FRONTIER], setting, workshop, lambda done, total, what: None)
    result = write(FRONTIER, setting, workshop, tmp_path, "apes reproduce frontier --quick")
    for way in result["figures"]["ways"].values():
        for found in way["points"]:
            if found["target"] is not None and found["accuracy"] is not None:
                assert found["epsilon"] <= found["target"]
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    page = markdown({"frontier": result}, ".", 1.0)
    assert page.startswith("# Beyond the paper")
    assert "1,500 users with 2 images of digits each" in page
    assert "does not agree with itself" not in page
    assert json.loads((tmp_path / "frontier.json").read_text())["figures"]["targets"] == list(targets)


def test_parts_of_one_name_are_one_run():
    """Ways may share runs: where nothing was searched for, one bit is run as it is by default."""
    parts = FRONTIER.parts(Setting("mnist"))
    runs = {json.dumps([part.kind, part.arguments], sort_keys=True) for part in parts}
    assert len({part.name for part in parts}) == len(runs)
    assert all(isinstance(part, Part) for part in parts)
