"""A model of one's own: Poisson regression, for labels that are counts.

python examples/own_model.py
"""

from dataclasses import dataclass

import numpy as np

import apes


@dataclass(frozen=True)
class PoissonRegression:
    """Counts y with mean exp(w x + b); one weight per feature and a bias."""

    features: int

    @property
    def dimensions(self):
        """Coordinates of an update."""
        return self.features + 1

    @property
    def digest(self):
        """Tells this model from any other: part of what users agree to."""
        return f"Poisson regression, {self.features} features"

    def start(self):
        """The model before training."""
        return np.zeros(self.dimensions)

    def updates(self, weights, block):
        """One gradient per user: the mean over the user's own rows, and of nobody else's."""
        residuals = self._means(weights, block.features) - block.labels
        rows = np.column_stack([block.features * residuals[:, None], residuals])
        counts = np.diff(block.offsets)[:, None]
        return (np.add.reduceat(rows, block.offsets[:-1]) / counts).astype(np.float32)

    def evaluate(self, weights, examples):
        """No accuracy, since counts are no classes; and the mean loss."""
        means = self._means(weights, examples.features)
        return None, float((means - examples.labels * np.log(means)).mean())

    def _means(self, weights, rows):
        return np.exp(np.clip(rows @ weights[:-1] + weights[-1], -5, 5))


# 3,000 people with two rows each, made up: four features in [-1, 1] and a count.
rng = np.random.default_rng(1)
rows = rng.uniform(-1, 1, (6_500, 4))
counts = rng.poisson(np.exp(rows @ [0.8, -0.5, 0.3, 0.0] + 0.4)).astype(float)
people = apes.People.from_arrays(
    rows[:6_000], counts[:6_000], users=np.arange(6_000) // 2, budgets="uniform2", test=(rows[6_000:], counts[6_000:])
)

model = PoissonRegression(features=4)
before = model.evaluate(model.start(), people.test)[1]
run = apes.train(model, people, apes.Plan(target_epsilon=1, delta=1e-5, rounds=30))
print(f"loss {before:.3f} before, {run.metrics[-1].loss:.3f} after; {run.guarantee}")
print("weights:", run.weights.round(2).tolist(), "where the counts were made with [0.8, -0.5, 0.3, 0.0, 0.4]")
