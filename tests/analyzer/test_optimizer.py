"""The server's step against its formulas, unrolled."""

import numpy as np
import pytest

from apes.analyzer.optimizer import ServerOptimizer, ServerState
from apes.errors import ParameterError
from apes.messages import Estimate

START = np.array([1.0, -2.0, 0.5])


def run(optimizer, means):
    """States after each step, from START."""
    states = [ServerState.start(START.copy())]
    for mean in means:
        states.append(optimizer.apply(states[-1], Estimate(np.asarray(mean), 0.0)))
    return states


def random_means(rounds):
    return np.random.default_rng(3).normal(size=(rounds, 3))


def test_plain_step_is_algorithm_1():
    means = random_means(5)
    states = run(ServerOptimizer(0.7), means)
    for t, state in enumerate(states):
        assert state.weights == pytest.approx(START - 0.7 * means[:t].sum(axis=0), abs=1e-14)
        assert state.step == t
        assert (ServerOptimizer(0.7).model(state) == state.weights).all()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.8, 0.999])
def test_momentum_does_not_change_a_constant_step(momentum):
    mean = np.array([0.3, -0.1, 0.0])
    states = run(ServerOptimizer(2.0, momentum), [mean] * 30)
    for t, state in enumerate(states):
        assert state.weights == pytest.approx(START - 2.0 * t * mean, abs=1e-11)


@pytest.mark.parametrize("momentum", [0.3, 0.8])
def test_momentum_is_the_weighted_mean_of_all_estimates(momentum):
    means = random_means(12)
    states = run(ServerOptimizer(0.5, momentum), means)
    weights = START.copy()
    for t in range(1, 13):
        shares = momentum ** np.arange(t - 1, -1, -1)
        weights = weights - 0.5 * (shares @ means[:t]) / shares.sum()
        assert states[t].weights == pytest.approx(weights, abs=1e-13)


@pytest.mark.parametrize("decay", [0.0, 0.1, 3.0])
def test_decay(decay):
    means = random_means(8)
    states = run(ServerOptimizer(0.5, decay=decay), means)
    rates = [0.5 / (1 + decay * t) for t in range(8)]
    for t in range(9):
        assert states[t].weights == pytest.approx(START - np.array(rates[:t]) @ means[:t], abs=1e-13)


def shares_of_models(averaging, rounds):
    """With what weight each of the models after rounds 1 .. T enters the average: the answer to unit changes."""
    optimizer = ServerOptimizer(1.0, averaging=averaging)
    shares = []
    for t in range(rounds):
        means = np.zeros((rounds, 3))
        means[t] = -1.0  # the model after round t + 1 and all later ones move by 1
        shares.append(optimizer.model(run(optimizer, means)[-1])[0] - START[0])
    return -np.diff([*shares, 0.0])


@pytest.mark.parametrize("averaging", [1.0, 2.0, 5.0])
def test_averaging_weights_grow_like_a_power_of_the_round(averaging):
    rounds = 120
    shares = shares_of_models(averaging, rounds)
    t = np.arange(1, rounds + 1)
    assert shares.sum() == pytest.approx(1)
    # Shamir and Zhang 2013: shares t (t + 1) .. (t + a - 1), a polynomial of degree a; t itself for a = 1.
    exact = np.prod([t + k for k in range(int(averaging))], axis=0).astype(float)
    assert shares == pytest.approx(exact / exact.sum(), abs=1e-12)
    slope = np.log(shares[-1] / shares[rounds // 2 - 1]) / np.log(2)
    assert slope == pytest.approx(averaging, rel=0.03)


def test_averaging_forgets_the_start_and_keeps_the_broadcast_model():
    means = random_means(6)
    averaged, plain = run(ServerOptimizer(0.5, averaging=2.0), means), run(ServerOptimizer(0.5), means)
    assert averaged[1].average == pytest.approx(averaged[1].weights, abs=1e-15)
    for one, other in zip(averaged, plain, strict=True):
        assert (one.weights == other.weights).all()
    optimizer = ServerOptimizer(0.5, averaging=2.0)
    assert (optimizer.model(averaged[-1]) == averaged[-1].average).all()
    assert (averaged[-1].average != averaged[-1].weights).all()


def test_a_state_is_not_changed_by_a_step():
    state = ServerState.start(START.copy())
    for field in (state.weights, state.velocity, state.average):
        field.setflags(write=False)
    ServerOptimizer(0.5, 0.9, 0.1, 2.0).apply(state, Estimate(np.ones(3), 0.0))
    assert state.weights.tolist() == START.tolist()
    assert state.velocity.tolist() == [0.0] * 3
    assert state.step == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, r"^learning_rate must be in \(0, inf\), got 0.0$"),
        ({"learning_rate": -1.0}, r"^learning_rate must be in \(0, inf\), got -1.0$"),
        ({"learning_rate": np.nan}, r"^learning_rate must be in \(0, inf\), got nan$"),
        ({"learning_rate": np.inf}, r"^learning_rate must be in \(0, inf\), got inf$"),
        ({"momentum": 1.0}, r"^momentum must be in \[0, 0.999\], got 1.0$"),
        ({"momentum": -0.1}, r"^momentum must be in \[0, 0.999\], got -0.1$"),
        ({"momentum": np.nan}, r"^momentum must be in \[0, 0.999\], got nan$"),
        ({"decay": -0.1}, r"^decay must be in \[0, 1000\], got -0.1$"),
        ({"decay": np.nan}, r"^decay must be in \[0, 1000\], got nan$"),
        ({"averaging": -1.0}, r"^averaging must be in \[0, 100\], got -1.0$"),
        ({"averaging": 101}, r"^averaging must be in \[0, 100\], got 101$"),
        ({"averaging": np.nan}, r"^averaging must be in \[0, 100\], got nan$"),
    ],
)
def test_invalid_parameters(change, message):
    with pytest.raises(ParameterError, match=message):
        ServerOptimizer(**{"learning_rate": 1.0, **change})


@pytest.mark.parametrize("last", [0.1, 0.5, 1.0])
def test_the_step_falls_evenly_to_its_last_share(last):
    means = random_means(5)
    states = run(ServerOptimizer(0.5, last_step=last, rounds=5), means)
    rates = 0.5 * np.linspace(1, last, 5)
    for t in range(6):
        assert states[t].weights == pytest.approx(START - rates[:t] @ means[:t], abs=1e-13)


def test_one_round_takes_the_whole_step_and_further_ones_the_last_share():
    assert run(ServerOptimizer(0.5, last_step=0.1), [np.ones(3)])[-1].weights == pytest.approx(START - 0.5)
    longer = run(ServerOptimizer(0.5, last_step=0.1, rounds=2), [np.ones(3)] * 3)
    assert longer[-1].weights == pytest.approx(START - 0.5 * (1 + 0.1 + 0.1))


@pytest.mark.parametrize("method", ["adam", "yogi"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaled_steps_against_their_formulas(method, momentum):
    means = random_means(9)
    states = run(ServerOptimizer(0.1, momentum, method=method), means)
    weights, velocity, squares = START.copy(), np.zeros(3), np.zeros(3)
    for t, g in enumerate(means, 1):
        velocity = momentum * velocity + (1 - momentum) * g
        if method == "adam":
            squares = 0.99 * squares + 0.01 * g**2
        else:
            squares = squares + 0.01 * g**2 * np.where(g**2 > squares, 1, np.where(g**2 < squares, -1, 0))
        scale = np.sqrt(squares / (1 - 0.99**t)) + 1e-3
        weights = weights - 0.1 * velocity / (1 - momentum**t) / scale
        assert states[t].weights == pytest.approx(weights, abs=1e-12)
        assert states[t].squares == pytest.approx(squares, abs=1e-15)


def test_scaled_steps_do_not_depend_on_the_scale_of_estimates():
    small, large = (run(ServerOptimizer(0.1, method="adam"), s * random_means(6)) for s in (1e3, 1e6))
    assert small[-1].weights == pytest.approx(large[-1].weights, abs=1e-5)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"method": "sgd"}, "optimizer must be one of momentum, adam, yogi; got 'sgd'"),
        ({"last_step": 0.0}, r"last_step must be in \(0, 1\], got 0.0"),
        ({"last_step": 1.1}, r"last_step must be in \(0, 1\], got 1.1"),
        ({"last_step": float("nan")}, "last_step must be in"),
        ({"rounds": 0}, "rounds must be in"),
    ],
    ids=str,
)
def test_bad_steps(choice, said):
    with pytest.raises(ParameterError, match=said):
        ServerOptimizer(0.1, **choice)
