"""What strangers bring: a model, people, a mechanism, a feature map, an executor; written with public names only."""

from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np

import apes


@dataclass(frozen=True)
class TwoLayers:
    """A network with one hidden layer of tanh and a softmax, or a linear output with squared loss; plain NumPy."""

    features: int
    hidden: int
    outputs: int
    is_regression: bool = False

    @property
    def dimensions(self):
        return self.hidden * (self.features + 1) + self.outputs * (self.hidden + 1)

    @property
    def digest(self):
        return repr(self)

    def start(self):
        return np.random.default_rng(0).normal(0, 0.5, self.dimensions)

    def _split(self, weights):
        cut = self.hidden * (self.features + 1)
        return (
            weights[:cut].reshape(self.hidden, self.features + 1),
            weights[cut:].reshape(self.outputs, self.hidden + 1),
        )

    def _forward(self, weights, x):
        first, second = self._split(weights)
        h = np.tanh(x @ first[:, :-1].T + first[:, -1])
        out = h @ second[:, :-1].T + second[:, -1]
        if self.is_regression:
            return h, out
        out = np.exp(out - out.max(axis=1, keepdims=True))
        return h, out / out.sum(axis=1, keepdims=True)

    def _targets(self, labels):
        return labels[:, None].astype(np.float64) if self.is_regression else np.eye(self.outputs)[labels]

    def updates(self, weights, block):
        return np.stack(
            [
                self._gradient(weights.astype(np.float64), block.features[a:b], block.labels[a:b])
                for a, b in zip(block.offsets, block.offsets[1:], strict=False)
            ]
        ).astype(np.float32)

    def _gradient(self, weights, x, labels):
        _, second = self._split(weights)
        h, out = self._forward(weights, x)
        error = (out - self._targets(labels)) / len(x)
        inner = (error @ second[:, :-1]) * (1 - h**2)
        of_first = np.hstack([inner.T @ x, inner.sum(axis=0)[:, None]])
        of_second = np.hstack([error.T @ h, error.sum(axis=0)[:, None]])
        return np.concatenate([of_first.ravel(), of_second.ravel()])

    def evaluate(self, weights, examples):
        _, out = self._forward(weights, examples.features)
        if self.is_regression:
            return None, float(((out[:, 0] - examples.labels) ** 2).mean() / 2)
        own = out[np.arange(len(out)), examples.labels]
        return float((out.argmax(axis=1) == examples.labels).mean()), float(-np.log(own).mean())


@dataclass(frozen=True)
class Written:
    """Updates on the fast road, all there at once."""

    updates: object

    def coordinates(self, start, stop, scratch):
        return self.updates[:, start:stop] if isinstance(self.updates, np.ndarray) else self.updates


class Crowd:
    """A population of its own: users with 1 to 500 rows each, made when they are asked for."""

    def __init__(self, users, features, classes, budgets):
        self._features, self._classes = features, classes
        self.budgets = budgets
        self.digest = f"crowd of {users} {features} {classes}"
        self.sizes = np.random.default_rng(7).integers(1, 501, users)
        self.sizes[:2] = 1, 500

    def rows(self, seed, count):
        rng = np.random.default_rng([3, seed])
        labels = rng.integers(0, self._classes, count)
        centres = np.random.default_rng(1).normal(0, 1, (self._classes, self._features))
        return (centres[labels] + rng.normal(0, 0.3, (count, self._features))).astype(np.float32), labels

    def block(self, start, stop):
        parts = [self.rows(user, self.sizes[user]) for user in range(start, stop)]
        return apes.UserBlock(
            start,
            self.budgets[start:stop],
            np.concatenate([rows for rows, _ in parts]),
            np.concatenate([labels for _, labels in parts]),
            np.concatenate([[0], np.cumsum(self.sizes[start:stop])]),
        )


@dataclass(frozen=True)
class SignResponse:
    """Randomised response on signs: one bit per coordinate, flipped with probability 1 / (1 + exp(epsilon))."""

    clip: float = 0.1
    levels: int = 2
    digest = "sign response 1"
    why_not_certified = "nobody has proved a curve for the signs of updates"

    def draw(self, updates, budgets, draws):
        assert np.abs(updates).max() <= self.clip
        keep = 1 / (1 + np.exp(-budgets[:, None]))
        return ((updates > 0) ^ (draws.uniforms() >= keep)).astype(np.uint8)

    def estimate(self, batch):
        share = batch.counts[:, 1] / batch.budgets.size
        slope = np.tanh(batch.budgets / 2).mean()
        mean = self.clip * np.clip((2 * share - 1) / slope, -1, 1)
        return apes.Estimate(mean, self.standard_error(batch.budgets))

    def standard_error(self, budgets):
        return float(self.clip / np.tanh(budgets / 2).mean() / np.sqrt(budgets.size))


@dataclass(frozen=True)
class Projection:
    """A public random projection."""

    size: int

    @property
    def digest(self):
        return f"projection to {self.size}"

    def __call__(self, rows):
        flat = rows.reshape(len(rows), -1)
        matrix = np.random.default_rng(0).normal(0, flat.shape[1] ** -0.5, (flat.shape[1], self.size))
        return (flat @ matrix).astype(np.float32)


class Inline(Executor):
    """An executor that does the work at once, last submitted first."""

    def __init__(self):
        self.submitted = 0

    def submit(self, work, /, *args, **kwargs):
        self.submitted += 1
        future = Future()
        future.set_result(work(*args, **kwargs))
        return future
