"""The extension points, used as third parties use them: with a model, people or a mechanism of their own."""

import ast
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from levels import sampled

import apes

from .strangers import Crowd, Inline, Projection, SignResponse, TwoLayers, Written

pytestmark = pytest.mark.service

BUDGETS = np.linspace(0.5, 3, 400)
NO_NUMBERS = ["complex128", "bool", r"timedelta64\[s\]", "object"]
KINDS = ["float16", "float64", "int8", "bool", "complex64"]
# Blocks of 64 users, whose size messages name.
BLOCKS = apes.Workers(users_at_once=64)


def blobs(classes, rows, features=6, seed=0):
    """Rows around one centre per class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    centres = np.random.default_rng(99).normal(0, 1, (classes, features))
    return (centres[labels] + rng.normal(0, 0.3, (rows, features))).astype(np.float32), labels


def people_of(classes, users=400, rows=1600):
    x, y = blobs(classes, rows)
    ids = np.random.default_rng(5).integers(0, users, rows)
    ids[:users] = np.arange(users)
    budgets = {user: float(BUDGETS[user]) for user in range(users)}
    return apes.People.from_arrays(x, y, users=ids, budgets=budgets, test=blobs(classes, 500, seed=1))


def test_no_stranger_uses_anything_private():
    for file in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module if isinstance(node, ast.ImportFrom) and not node.level else ""
            assert not any(name.startswith("apes.") for name in [module or "", *names]), (file, node.lineno)


class TestModel:
    @pytest.mark.service
    @pytest.mark.parametrize("classes", [3, 26])
    def test_a_network_of_ones_own(self, classes):
        people = people_of(classes)
        model = TwoLayers(6, 8, classes)
        run = apes.train(model, people, apes.Plan(framework="non-private", rounds=60, learning_rate=1.0, seed=1))
        assert run.accuracy > (0.9 if classes == 3 else 0.5)
        private = apes.train(model, people, apes.Plan(rounds=3, clip=0.05, delta=1e-4, seed=1))
        assert private.weights.shape == (model.dimensions,)
        assert 0 < private.guarantee.epsilon == private.metrics[-1].epsilon
        assert private.exposures[-1].dimensions == model.dimensions

    @pytest.mark.service
    def test_a_regression_target(self):
        x, _ = blobs(2, 1600)
        target = (x @ np.arange(6)).astype(np.float64) / 10
        people = apes.People.from_arrays(x, target, budgets=np.full(1600, 4.0), test=(x[:300], target[:300]))
        model = TwoLayers(6, 8, 1, is_regression=True)
        before = model.evaluate(model.start(), people.test)[1]
        run = apes.train(model, people, apes.Plan(rounds=15, clip=0.2, learning_rate=0.5, seed=1))
        assert run.metrics[-1].accuracy is None
        assert run.metrics[-1].loss < before / 3
        with pytest.raises(apes.ParameterError, match="labels must be classes"):
            apes.LogisticRegression.of(people)

    @pytest.mark.service
    def test_top_b_first_and_local_steps_go_with_any_model(self):
        people = people_of(3)
        dense, sparse = (
            apes.train(TwoLayers(6, 8, 3), people, apes.Plan(framework=name, rounds=2, clip=0.05, seed=1))
            for name in ("apes", "s-apes-first")
        )
        assert sparse.guarantee.epsilon < dense.guarantee.epsilon / 2
        local = apes.LogisticRegression.of(people, apes.FedProx(epochs=3, learning_rate=0.5))
        assert apes.train(local, people, apes.Plan(framework="non-private", rounds=5, seed=1)).accuracy > 0.8

    @pytest.mark.parametrize(
        ("broken", "said"),
        [
            (lambda u: u.astype(np.int64), r"TwoLayers.updates must be an array of float32 or float64, got int64"),
            (lambda u: u[:, :-1], r"TwoLayers.updates must have shape \(64, 83\), got \(64, 82\)"),
            (lambda u: u.tolist(), r"TwoLayers.updates must be an array of float32 or float64, got list"),
            (lambda u: np.where(u == u[3, 5], np.nan, u), r"TwoLayers.updates\[\d+, 5\] must be finite, got nan"),
            (lambda u: u.astype(np.float64) + 1e300, r"TwoLayers.updates\[0, 0\] must be finite, got inf"),
            (lambda u: np.ma.masked_array(u), r"TwoLayers.updates must be an array .* got MaskedArray"),
        ],
    )
    def test_wrong_updates_are_named(self, broken, said, monkeypatch):
        updates = TwoLayers.updates
        monkeypatch.setattr(TwoLayers, "updates", lambda self, weights, block: broken(updates(self, weights, block)))
        with pytest.raises(apes.ParameterError, match=said):
            apes.train(TwoLayers(6, 8, 3), people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1), workers=BLOCKS)

    @pytest.mark.service
    @pytest.mark.parametrize(
        "framework", ["apes", *(pytest.param(name, marks=pytest.mark.service) for name in ("s-apes-first", "unis"))]
    )
    @pytest.mark.parametrize(
        ("broken", "said"),
        [
            *((lambda u, kind=kind: u.astype(kind), f"an array of float32, got {kind}") for kind in KINDS),
            (lambda u: u[:, :-1], r"have shape \(64, 83\), got \(64, 82\)"),
            (lambda u: u[:1], r"have shape \(64, 83\), got \(1, 83\)"),
            (lambda u: u.tolist(), "an array of float32, got list"),
            (lambda u: None, "an array of float32, got NoneType"),
            (lambda u: np.ma.masked_array(u), "an array of float32, got MaskedArray"),
            (lambda u: np.where(u == u[3, 5], np.float32(np.nan), u), "finite, got nan"),
        ],
    )
    def test_a_wrong_fast_road_is_named(self, broken, said, framework):
        class Fast(TwoLayers):
            def prepare(self, weights, block):
                return Written(broken(self.updates(weights, block)))

        with pytest.raises(apes.ParameterError, match=rf"^Fast.prepare(\[\d+, \d+\])? must (be )?{said}"):
            apes.train(Fast(6, 8, 3), people_of(3), apes.Plan(framework=framework, rounds=1, seed=1), workers=BLOCKS)

    @pytest.mark.service
    @pytest.mark.parametrize("framework", ["apes", "s-apes-first"])
    def test_a_fast_road_sees_no_other_user(self, framework):
        """What it forgets to write is an error, not what another user's update left in that memory."""

        class Forgetful:
            def __init__(self, updates):
                self.updates = updates

            def coordinates(self, start, stop, scratch):
                out = scratch[: len(self.updates) * (stop - start)].reshape(-1, stop - start)
                out[:, 1:] = self.updates[:, start + 1 : stop]
                return out

        class Fast(TwoLayers):
            def prepare(self, weights, block):
                return Forgetful(self.updates(weights, block))

        plan = apes.Plan(framework=framework, rounds=1, seed=1)
        apes.train(TwoLayers(6, 8, 3), people_of(3), plan, workers=BLOCKS)
        with pytest.raises(apes.ParameterError, match=r"^Fast.prepare(\[\d+, \d+\])? must be finite, got nan"):
            apes.train(Fast(6, 8, 3), people_of(3), plan, workers=BLOCKS)

    def test_a_fast_road_in_memory_of_its_own(self):
        """Its array is read-only and in another memory order. The reports are the same, and it does not change."""

        class Fast(TwoLayers):
            def prepare(self, weights, block):
                updates = np.asfortranarray(self.updates(weights, block))
                updates.setflags(write=False)
                return Written(updates)

        plan = apes.Plan(framework="s-apes-first", rounds=1, seed=1)
        fast, slow = (apes.train(kind(6, 8, 3), people_of(3), plan) for kind in (Fast, TwoLayers))
        assert fast.model_sha256 == slow.model_sha256
        Fast.prepare = lambda self, weights, block: None
        with pytest.raises(apes.ParameterError, match=r"Fast.prepare.* must have coordinates, got NoneType"):
            apes.train(Fast(6, 8, 3), people_of(3), plan)

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("start", lambda self: np.zeros(3), r"TwoLayers.start must have shape \(83,\), got \(3,\)"),
            ("start", lambda self: np.full(83, np.inf), r"TwoLayers.start\[0\] must be finite, got inf"),
            ("digest", property(lambda self: ""), r"TwoLayers.digest must be a text"),
            ("dimensions", property(lambda self: 0), r"TwoLayers.dimensions must be in \[1, inf\), got 0"),
            ("evaluate", lambda self, weights, examples: 0.5, r"TwoLayers.evaluate must return accuracy"),
        ],
    )
    def test_wrong_models_are_named(self, name, value, said, monkeypatch):
        monkeypatch.setattr(TwoLayers, name, value)
        with pytest.raises(apes.ParameterError, match=said):
            apes.train(TwoLayers(6, 8, 3), people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1))


class TestPeople:
    @pytest.mark.service
    def test_users_with_1_to_500_rows(self):
        crowd = Crowd(60, 5, 3, np.linspace(1, 4, 60))
        assert (crowd.sizes.min(), crowd.sizes.max()) == (1, 500)
        test = apes.Examples(*crowd.rows(1000, 400))
        model = TwoLayers(5, 6, 3)
        run = apes.train(
            model, crowd, apes.Plan(framework="non-private", rounds=40, learning_rate=1.0, seed=1), test=test
        )
        assert run.accuracy > 0.9
        small, large = (
            apes.train(
                model, crowd, apes.Plan(clip=0.1, rounds=2, seed=1), test=test, workers=apes.Workers(users_at_once=size)
            )
            for size in (7, 60)
        )
        assert small.model_sha256 == large.model_sha256

    def test_the_budgets_that_are_charged_are_those_that_noise_is_drawn_with(self):
        """The blocks of a population name other budgets than the population: noise is drawn with those charged for."""

        class Boaster(Crowd):
            def block(self, start, stop):
                return replace(super().block(start, stop), budgets=np.full(stop - start, 100.0))

        honest, boaster = (kind(30, 5, 3, np.full(30, 0.5)) for kind in (Crowd, Boaster))
        plan = apes.Plan(clip=0.1, rounds=1, seed=1)
        one, other = (apes.train(TwoLayers(5, 6, 3), people, plan) for people in (honest, boaster))
        assert one.model_sha256 == other.model_sha256
        assert one.guarantee.epsilon == other.guarantee.epsilon

    @pytest.mark.parametrize("sparsifier", ["top-b-first", "random-b"])
    @pytest.mark.parametrize("second", sampled([40, 1, 830], keep=1))
    def test_a_model_that_changes_its_mind_about_its_size_is_not_charged_for_less(self, second, sparsifier):
        """Its size is read once. Users report, and are charged, by that size."""
        sizes = iter([83, second, second])

        class Fickle(TwoLayers):
            dimensions = property(lambda self: next(sizes, 83))

            def start(self):
                return np.random.default_rng(0).normal(0, 0.5, 83)

        plan = apes.Plan(clip=0.1, rounds=1, framework="s-apes", sparsifier=sparsifier, keep=0.05, seed=1)
        fickle, honest = (apes.train(kind(6, 8, 3), people_of(3), plan) for kind in (Fickle, TwoLayers))
        assert fickle.model_sha256 == honest.model_sha256
        assert fickle.exposures[0].charged == honest.exposures[0].charged

    def test_a_model_that_steps_in_place_is_stopped(self):
        """It would leave one user's data in the weights that the next user starts from."""

        class InPlace(TwoLayers):
            def updates(self, weights, block):
                weights += 1
                return super().updates(weights, block)

        with pytest.raises(ValueError, match="read-only"):
            apes.train(InPlace(6, 8, 3), people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1))

    def test_a_model_cannot_hand_one_user_the_budget_of_another(self):
        class Swapping(TwoLayers):
            def updates(self, weights, block):
                budgets = block.budgets
                while budgets.base is not None:
                    budgets = budgets.base
                budgets[:] = budgets[::-1].copy()
                return super().updates(weights, block)

        people, plan = people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1)
        workers = apes.Workers(threads=1)
        swapping, honest = (apes.train(kind(6, 8, 3), people, plan, workers=workers) for kind in (Swapping, TwoLayers))
        assert swapping.model_sha256 == honest.model_sha256
        assert swapping.budgets.tolist() == BUDGETS.tolist()

    def test_a_model_that_writes_into_budgets_changes_no_noise(self):
        class Greedy(TwoLayers):
            def updates(self, weights, block):
                block.budgets.setflags(write=True)
                before = block.budgets.copy()
                block.budgets[:] = 500.0
                updates = super().updates(weights, block)
                block.budgets[:] = before
                return updates

        people, plan = people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1)
        greedy, honest = (apes.train(kind(6, 8, 3), people, plan) for kind in (Greedy, TwoLayers))
        assert greedy.model_sha256 == honest.model_sha256

    @pytest.mark.service
    def test_a_population_that_shuffles_budgets_between_looks(self):
        class Fickle(Crowd):
            looks = 0

            @property
            def budgets(self):
                self.looks += 1
                return self.own if self.looks % 2 else self.own[::-1]

            @budgets.setter
            def budgets(self, values):
                self.own = values

        fickle, honest = (kind(30, 5, 3, np.linspace(0.1, 3, 30)) for kind in (Fickle, Crowd))
        fickle.looks = 0
        one, other = (
            apes.train(TwoLayers(5, 6, 3), people, apes.Plan(clip=0.1, rounds=2, seed=1)) for people in (fickle, honest)
        )
        assert one.model_sha256 == other.model_sha256

    @pytest.mark.parametrize("broken", [lambda o: o[::-1], lambda o: np.where(o == o[2], o[1], o)])
    def test_offsets_that_do_not_rise(self, broken):
        class Tangled(Crowd):
            def block(self, start, stop):
                block = super().block(start, stop)
                inner = broken(block.offsets[1:-1])
                return replace(block, offsets=np.concatenate([[0], inner, block.offsets[-1:]]))

        with pytest.raises(apes.ParameterError, match="offsets must rise from 0 to the number of rows"):
            apes.train(TwoLayers(5, 6, 3), Tangled(30, 5, 3, np.full(30, 0.5)), apes.Plan(clip=0.1, rounds=1, seed=1))

    def test_a_block_that_does_not_fit(self):
        class Short(Crowd):
            def block(self, start, stop):
                return replace(super().block(start, stop), features=np.zeros((3, 5), dtype=np.float32))

        with pytest.raises(apes.ParameterError, match="offsets must rise from 0 to the number of rows, 3"):
            apes.train(TwoLayers(5, 6, 3), Short(30, 5, 3, np.full(30, 0.5)), apes.Plan(clip=0.1, rounds=1, seed=1))

    def test_a_block_of_other_users_than_were_asked_for(self):
        class Fewer(Crowd):
            def block(self, start, stop):
                return super().block(start, stop - 1)

        with pytest.raises(apes.ParameterError, match=r"Fewer.block\(0, 30\) must have 30 users, got 29"):
            apes.train(TwoLayers(5, 6, 3), Fewer(30, 5, 3, np.full(30, 0.5)), apes.Plan(clip=0.1, rounds=1, seed=1))

    @pytest.mark.parametrize("label", [-1, -5_000_000, 3, 2**40])
    def test_labels_that_are_no_class_never_reach_compiled_loops(self, label):
        class Marked(Crowd):
            def block(self, start, stop):
                block = super().block(start, stop)
                return replace(block, labels=np.full(len(block.labels), label, np.int64))

        with pytest.raises(apes.ParameterError, match=rf"labels must be in \[0, 2\], got {label}"):
            apes.train(
                apes.LogisticRegression(5, 3), Marked(4, 5, 3, np.full(4, 0.5)), apes.Plan(clip=0.1, rounds=1, seed=1)
            )

    def test_rows_in_any_order_with_user_ids(self):
        x, y = blobs(3, 300)
        ids = np.array([f"user {n}" for n in np.random.default_rng(2).integers(0, 40, 300)])
        budgets = {name: 0.1 + 0.01 * number for number, name in enumerate(sorted(set(ids)))}
        by_row = [budgets[name] for name in ids]
        one = apes.People.from_arrays(x, y, users=ids, budgets=budgets)
        other = apes.People.from_arrays(x, y, users=ids, budgets=by_row)
        assert one.digest == other.digest
        mixed = np.random.default_rng(3).permutation(300)
        again = apes.People.from_arrays(x[mixed], y[mixed], users=ids[mixed], budgets=budgets)
        assert again.budgets.tolist() == one.budgets.tolist() == sorted(budgets.values())
        first = np.sort(one.block(0, 1).features, axis=0)
        assert (first == np.sort(again.block(0, 1).features, axis=0)).all()
        assert len(first) == (ids == min(ids)).sum()

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"budgets": [0.5, 0.6, 0.5, 0.5]}, r"budgets must be equal within a user, got 0.5 and 0.6 for .*7"),
            ({"budgets": [0.5, 0.5]}, r"budgets must have one entry per row, 4, got 2"),
            ({"budgets": {7: 0.5}}, r"budgets must name every user, got none for 8"),
            ({"budgets": "zzz"}, r"budgets must be one of .*got 'zzz'"),
            ({"users": [1, 2]}, r"users must have one entry per row"),
            ({"users": [7, 7, "a", "a"]}, r"users must be ids of one kind, all numbers or all texts"),
            ({"users": [None, None, 8, 8]}, r"users\[0\] must be an id, got none \(None\)"),
            ({"features": [["a"]] * 4}, r"features must be a list of numbers, got <U1"),
            ({"features": [[1.0], [1.0, 2.0], [1.0], [1.0]]}, r"features must be a list of numbers, got lists of diff"),
            ({"features": 3}, r"features must be rows of numbers, got shape \(\)"),
            ({"features": np.eye(4) * 1j}, r"features must be a list of numbers, got complex128"),
            ({"labels": None}, r"labels must be a list of numbers, got None"),
            ({"labels": ["a", "b", "c", "d"]}, r"labels must be a list of numbers, got <U1"),
            ({"labels": [0, 1, -1, 0]}, r"labels must be in \[0, 65535\]"),
            ({"labels": [0.0, 1.0, np.nan, 0.0]}, r"labels\[2\] must be finite, got nan"),
        ],
    )
    def test_what_does_not_fit(self, change, said):
        given = {"features": np.eye(4), "labels": [0, 1, 0, 1], "users": [7, 7, 8, 8], "budgets": [0.5] * 4} | change
        with pytest.raises(apes.ParameterError, match=said):
            apes.People.from_arrays(given["features"], given["labels"], users=given["users"], budgets=given["budgets"])


class TestMechanism:
    def test_what_is_none(self):
        with pytest.raises(apes.ParameterError, match=r"mechanism must have clip, .* got int"):
            apes.Plan(mechanism=3, seed=1)
        with pytest.raises(apes.ParameterError, match=r"executor must have submit, got str"):
            apes.Workers(executor="x")

    @pytest.mark.service
    def test_trains_and_says_why_nothing_is_certified(self):
        people = people_of(3)
        plan = apes.Plan(mechanism=SignResponse(), rounds=40, learning_rate=1.0, seed=1)
        run = apes.train(apes.LogisticRegression.of(people), people, plan)
        assert run.accuracy > 0.9
        assert run.guarantee.epsilon == np.inf
        assert "nobody has proved a curve" in str(run.guarantee)
        assert run.metrics[-1].epsilon is None

    def test_its_draws_do_not_depend_on_blocks_or_threads(self):
        people = people_of(3)
        plan = apes.Plan(mechanism=SignResponse(), rounds=2, seed=1)
        shas = {
            apes.train(apes.LogisticRegression.of(people), people, plan, workers=workers).model_sha256
            for workers in (apes.Workers(threads=1), apes.Workers(threads=3, users_at_once=7))
        }
        assert len(shas) == 1

    def test_a_target_needs_a_certificate(self):
        with pytest.raises(apes.ParameterError, match="target_epsilon must be left out: nothing central is certified"):
            apes.Plan(mechanism=SignResponse(), target_epsilon=1.0, seed=1)

    def test_a_stranger_cannot_claim_a_certificate(self):
        class Boaster(SignResponse):
            why_not_certified = None

        with pytest.raises(apes.ParameterError, match="why_not_certified must say why"):
            apes.Plan(mechanism=Boaster(), seed=1)

    def test_wrong_reports_are_named(self):
        class Wrong(SignResponse):
            def draw(self, updates, budgets, draws):
                return super().draw(updates, budgets, draws).astype(np.float64)

        people = people_of(3)
        with pytest.raises(apes.ParameterError, match=r"Wrong.draw must return an array of uint8"):
            apes.train(apes.LogisticRegression.of(people), people, apes.Plan(mechanism=Wrong(), rounds=1, seed=1))


class TestFeatureMap:
    def test_train_on_features(self):
        people = people_of(3)
        model = apes.LogisticRegression(4, 3)
        run = apes.train(
            model,
            people,
            apes.Plan(framework="non-private", rounds=60, learning_rate=1.0, seed=1),
            features=Projection(4),
        )
        assert run.accuracy > 0.8
        assert run.weights.size == 15

    def test_wrong_features_are_named(self):
        class Wrong(Projection):
            def __call__(self, rows):
                return super().__call__(rows).astype(np.float64)

        with pytest.raises(apes.ParameterError, match=r"Wrong must return \d+ float32 rows, got float64"):
            apes.train(
                apes.LogisticRegression(4, 3), people_of(3), apes.Plan(clip=0.1, rounds=1, seed=1), features=Wrong(4)
            )


class TestExecutor:
    @pytest.mark.service
    @pytest.mark.parametrize("framework", ["apes", "s-apes", "unis", "pldp"])
    def test_anybodys_executor_gives_the_same_model(self, framework):
        people = people_of(3)
        model, plan = apes.LogisticRegression.of(people), apes.Plan(framework=framework, rounds=2, seed=1)
        executor = Inline()
        elsewhere = apes.train(model, people, plan, workers=apes.Workers(executor=executor, users_at_once=16))
        assert executor.submitted > 2
        assert elsewhere.model_sha256 == apes.train(model, people, plan).model_sha256

    @pytest.mark.process
    def test_processes(self):
        people = people_of(3)
        model, plan = TwoLayers(6, 8, 3), apes.Plan(clip=0.1, rounds=2, seed=1)
        with ProcessPoolExecutor(2) as pool:
            elsewhere = apes.train(model, people, plan, workers=apes.Workers(executor=pool))
        assert elsewhere.model_sha256 == apes.train(model, people, plan).model_sha256


class TestTrainingLoop:
    @pytest.mark.service
    def test_the_private_mean_of_vectors(self):
        n, d = 4000, 30
        updates = np.tile(np.linspace(-0.4, 0.4, d), (n, 1)) + np.random.default_rng(1).normal(0, 0.1, (n, d))
        mean = apes.PrivateMean(apes.Terms(clip=0.5), d, delta=1e-6, seed=1)
        estimates = [mean(updates, np.full(n, 2.0)) for _ in range(5)]
        assert np.abs(np.mean(estimates, axis=0) - updates.mean(axis=0)).max() < 0.05
        alone = apes.certify(np.full(n, 2.0), delta=1e-6, dimensions=d, rounds=5).epsilon
        assert mean.guarantee.epsilon == pytest.approx(alone, rel=0.02)
        assert not np.array_equal(estimates[0], estimates[1])

    @pytest.mark.service
    def test_raises_before_the_release_that_would_pass_the_target(self):
        n, d = 500, 10
        free = apes.PrivateMean(apes.Terms(clip=0.5), d, delta=1e-5)
        spent = []
        for _ in range(3):
            free(np.zeros((n, d)), np.full(n, 1.0))
            spent.append(free.guarantee.epsilon)
        mean = apes.PrivateMean(apes.Terms(clip=0.5), d, target_epsilon=(spent[1] + spent[2]) / 2, delta=1e-5)
        mean(np.zeros((n, d)), np.full(n, 1.0))
        mean(np.zeros((n, d)), np.full(n, 1.0))
        with pytest.raises(apes.BudgetExceeded, match="beyond the target"):
            mean(np.zeros((n, d)), np.full(n, 1.0))
        assert spent[1] < mean.guarantee.epsilon <= (spent[1] + spent[2]) / 2
        assert mean.guarantee.is_adaptive

    def test_calls_at_once_are_different_rounds_and_all_are_charged(self):
        mean = apes.PrivateMean(apes.Terms(clip=1.0, levels=2), 3, target_epsilon=8.0, delta=1e-5, seed=1)
        updates, budgets = np.full((50, 3), 0.5), np.full(50, 1.0)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: mean(updates, budgets).tobytes(), range(8)))
        # The same releases as one after the other, round by round, whichever thread made which.
        one_by_one = apes.PrivateMean(apes.Terms(clip=1.0, levels=2), 3, target_epsilon=8.0, delta=1e-5, seed=1)
        assert sorted(found) == sorted(one_by_one(updates, budgets).tobytes() for _ in range(8))

    def test_people_have_no_targets_of_their_own(self):
        with pytest.raises(apes.ParameterError, match="target_epsilon must be a number: whose vectors come"):
            apes.PrivateMean(apes.Terms(clip=1.0, target_epsilon="own:2"), 3)

    def test_says_why_nothing_is_certified(self):
        mean = apes.PrivateMean(apes.Terms(clip=0.1, mechanism=SignResponse()), 4)
        mean(np.full((50, 4), 0.1), np.full(50, 1.0))
        assert mean.guarantee.why_not_certified is not None

    @pytest.mark.parametrize(
        ("updates", "budgets", "said"),
        [
            (np.zeros((5, 3)), np.ones(5), r"updates must be users x 4 numbers, got \(5, 3\)"),
            (np.full((5, 4), np.nan), np.ones(5), r"updates\[0, 0\] must be finite, got nan"),
            (np.full((5, 4), 1e300), np.ones(5), r"updates\[0, 0\] must be finite, got inf"),
            ([[1.0], [1.0, 2.0]], np.ones(2), r"updates must be a list of numbers, got lists of different lengths"),
            (np.ma.masked_all((5, 4)), np.ones(5), r"updates must be a list of numbers, got MaskedArray"),
            *(
                (np.zeros((5, 4), kind.replace("\\", "")), np.ones(5), rf"updates must be .*, got {kind}")
                for kind in NO_NUMBERS
            ),
            *(
                (np.zeros((5, 4)), np.ones(5).astype(kind.replace("\\", "")), rf"budgets must be .*, got {kind}")
                for kind in NO_NUMBERS
            ),
            (np.zeros((5, 4)), np.ma.masked_all(5), r"budgets must be a list of numbers, got MaskedArray"),
            (np.zeros((5, 4)), ["1", "1"], r"budgets must be a list of numbers, got <U1"),
            (np.zeros((5, 4)), np.ones(4), r"budgets must have one entry per row of updates, 5, got 4"),
            (np.zeros((5, 4)), np.zeros(5), r"budgets\[0\] must be in \(0, inf\), got 0.0"),
            (np.zeros((0, 4)), np.ones(0), r"budgets must be a non-empty list"),
        ],
    )
    def test_wrong_input(self, updates, budgets, said):
        with pytest.raises(apes.ParameterError, match=said):
            apes.PrivateMean(apes.Terms(), 4)(updates, budgets)
