"""Linear regression: updates along the gradient, user by user; and trained models in scikit-learn."""

import numpy as np
import pytest

import apes
from apes import LinearRegression, LogisticRegression, ParameterError, People, Trained


def people(users=30, features=7, seed=1):
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(users), rng.integers(1, 6, users))
    x = rng.normal(0, 1, (who.size, features))
    y = np.tanh(x @ rng.normal(0, 1, features))
    return People.from_arrays(x, y, users=who, budgets="constant:1")


def test_updates_are_gradients():
    crowd = people()
    model = LinearRegression.of(crowd)
    block = crowd.block(0, 30)
    weights = np.random.default_rng(2).normal(0, 10, model.dimensions)
    updates = model.updates(weights.astype(np.float32), block)
    for user in range(30):
        own = slice(block.offsets[user], block.offsets[user + 1])

        def loss(w, own=own):
            return model.evaluate(w, apes.Examples(block.features[own], block.labels[own]))[1]

        steps = 1e-3 * np.eye(model.dimensions)
        gradient = np.array([(loss(weights + step) - loss(weights - step)) / 2e-3 for step in steps])
        assert updates[user] == pytest.approx(gradient / (2 * model.gain), rel=1e-3, abs=1e-5)


def test_updates_do_not_depend_on_the_block():
    crowd = people()
    model = LinearRegression.of(crowd)
    weights = np.random.default_rng(2).normal(0, 1, model.dimensions).astype(np.float32)
    together = model.updates(weights, crowd.block(0, 30))
    alone = np.concatenate([model.updates(weights, crowd.block(user, user + 1)) for user in range(30)])
    assert np.array_equal(together, alone)


@pytest.mark.service
def test_without_noise_it_comes_to_least_squares():
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (400, 5))
    y = 0.1 * x @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]) + 0.2 + 0.05 * rng.normal(size=400)
    crowd = People.from_arrays(x, y, budgets="constant:1", test=(x, y))
    plan = apes.Plan(framework="non-private", rounds=200, clip=1000.0, learning_rate=8.0, momentum=0.0, seed=1)
    run = apes.train(LinearRegression.of(crowd), crowd, plan)
    best = np.linalg.lstsq(np.c_[x, np.ones(400)], y, rcond=None)[0]
    fitted = run.model.to_sklearn()
    assert np.append(fitted.coef_, fitted.intercept_) == pytest.approx(best, abs=1e-3)
    assert run.metrics[-1].accuracy is None
    assert run.metrics[-1].loss == pytest.approx(np.mean((fitted.predict(x) - y) ** 2), rel=1e-4)


def test_refusals():
    with pytest.raises(ParameterError, match=r"^gain must be in"):
        LinearRegression(3, gain=0.0)
    crowd = people()
    with pytest.raises(ParameterError, match=r"^features must be rows of 8 numbers"):
        LinearRegression(8).updates(np.zeros(9, np.float32), crowd.block(0, 3))
    classes = People.from_arrays([[0.0], [1.0]], [0, 1], budgets="constant:1")
    with pytest.raises(ParameterError, match=r"^labels must be real-valued to train linear regression, got uint8"):
        LinearRegression(1).updates(np.zeros(2, np.float32), classes.block(0, 2))


def table(rows=60, classes=("a", "b", "c"), seed=4):
    rng = np.random.default_rng(seed)
    return {
        "user": np.arange(rows),
        "age": rng.uniform(-10, 130, rows),
        "city": rng.choice(["Bonn", "Ulm"], rows),
        "height": rng.uniform(1, 2.2, rows),
        "y": rng.choice(classes, rows),
    }


CHOICES = {
    "user": "user",
    "label": "y",
    "budgets": "constant:1",
    "bounds": {"age": (0, 120), "*": (1, 2.2)},
    "categories": {"city": ["Bonn", "Ulm", "Kiel"]},
}


@pytest.mark.parametrize("classes", [("a", "b"), ("a", "b", "c"), ("0", "1"), ("3", "10", "2", "1")])
def test_scikit_learn_predicts_the_same_classes(classes):
    rows = table(classes=classes)
    crowd = People.from_table(rows, **CHOICES)
    model = LogisticRegression.of(crowd)
    trained = Trained(model, np.random.default_rng(8).normal(0, 1, model.dimensions), crowd.schema)
    found = trained.predict(rows)
    assert len(set(found.tolist())) > 1
    fitted, inputs = trained.to_sklearn(), trained.in_units(rows)
    assert fitted.predict(inputs).tolist() == found.tolist()
    assert trained.to_pipeline().predict(rows).tolist() == found.tolist()
    # In the columns' own units: within bounds the table's numbers go in as they are.
    inside = (rows["age"] >= 0) & (rows["age"] <= 120)
    assert np.array_equal(inputs[inside, 0], rows["age"][inside])
    assert crowd.schema.columns.feature_names == ("age", "height", "city=Bonn", "city=Ulm", "city=Kiel")
    scores = model.outputs(trained.weights, _encoded(crowd, rows))
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    assert fitted.predict_proba(inputs) == pytest.approx(shares, abs=1e-5)


def _encoded(crowd, rows):
    from apes.data.table.rows import encode_table

    return encode_table(rows, crowd.schema)


def test_scikit_learn_predicts_the_same_numbers():
    rows = table() | {"y": np.linspace(0, 500, 60)}
    bounds = {**CHOICES["bounds"], "y": (0, 400)}
    crowd = People.from_table(rows, **{**CHOICES, "bounds": bounds, "task": "regression"})
    model = LinearRegression.of(crowd)
    trained = Trained(model, np.random.default_rng(5).normal(0, 10, model.dimensions), crowd.schema)
    found = trained.predict(rows)
    assert found.std() > 1
    assert trained.to_sklearn().predict(trained.in_units(rows)) == pytest.approx(found, rel=1e-5, abs=1e-3)
    assert trained.to_pipeline().predict(rows) == pytest.approx(found, rel=1e-5, abs=1e-3)


@pytest.mark.service
def test_a_model_of_arrays():
    x, y = np.random.default_rng(1).random((200, 3)), np.arange(200) % 3
    crowd = People.from_arrays(x, y, budgets="constant:1")
    run = apes.train(LogisticRegression.of(crowd), crowd, apes.Plan(rounds=2, seed=1))
    assert (run.model.predict(x) == run.model.to_sklearn().predict(x.astype(np.float32))).all()
    with pytest.raises(ParameterError, match=r"^rows must have 3 numbers each"):
        run.model.predict(x[:, :2])
    with pytest.raises(ParameterError, match="trained on arrays"):
        run.model.to_pipeline().predict(x)


@pytest.mark.service
def test_a_feature_map_is_applied_before_predicting():
    class Twice:
        digest = "twice"

        def __call__(self, rows):
            return 2 * rows

    x, y = np.random.default_rng(1).random((200, 3)), np.arange(200) % 3
    crowd = People.from_arrays(x, y, budgets="constant:1")
    run = apes.train(LogisticRegression.of(crowd), crowd, apes.Plan(rounds=2, seed=1), features=Twice())
    assert (run.model.predict(x) == run.model.to_sklearn().predict(2 * x.astype(np.float32))).all()


def test_a_strangers_model_says_what_it_lacks():
    class Nothing:
        pass

    with pytest.raises(ParameterError, match=r"^model must have outputs for this, got Nothing$"):
        Trained(Nothing(), np.zeros(3)).predict(np.zeros((2, 3)))
    with pytest.raises(ParameterError, match=r"^model must have coefficients for this, got Nothing$"):
        Trained(Nothing(), np.zeros(3)).to_sklearn()
