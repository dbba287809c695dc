"""A mechanism of one's own: each coordinate is reported as minus, nothing or plus, by randomised response.

python examples/own_mechanism.py
"""

from dataclasses import dataclass

import numpy as np

import apes


@dataclass(frozen=True)
class ThreeWays:
    """Randomised response on three levels: epsilon-LDP for every coordinate, by each user's budget.

    An update x in [-C, C] is rounded at random to -C, 0 or C, so that its mean is kept. The level is then told with
    probability p = e^epsilon / (e^epsilon + 2), and each of the other two with q = 1 / (e^epsilon + 2).
    """

    clip: float = 0.2
    levels = 3
    digest = "three ways 1"
    # Printed wherever a central guarantee would stand: nobody has proved one for this mechanism here.
    why_not_certified = "no curve is proved for randomised response on three levels"

    def draw(self, updates, budgets, draws):
        """Levels 0, 1, 2 of a block of users; all randomness comes from ``draws``."""
        level = 1 + np.sign(updates) * (draws.uniforms(0) < np.abs(updates) / self.clip)
        q = 1 / (np.exp(budgets[:, None]) + 2)
        # The level itself with probability p - q = 1 - 3 q; else any of the three, each with probability q.
        place = draws.uniforms(1) - (1 - 3 * q)
        return np.where(place < 0, level, np.minimum(place // q, 2)).astype(np.uint8)

    def estimate(self, batch):
        """The mean update, from how often each level came."""
        shares = batch.counts / batch.budgets.size
        mean = self.clip * (shares[:, 2] - shares[:, 0]) / self._slope(batch.budgets)
        return apes.Estimate(mean, self.standard_error(batch.budgets))

    def standard_error(self, budgets):
        """Noise of one coordinate's estimate near zero."""
        spread = np.sqrt((2 / (np.exp(budgets) + 2)).mean() / budgets.size)
        return float(self.clip * spread / self._slope(budgets))

    def _slope(self, budgets):
        return (1 - 3 / (np.exp(budgets) + 2)).mean()


dataset, gradients = apes.load("digits"), apes.OrientedGradients()
people = apes.People.from_dataset(dataset, users=2_000, budgets="constant:2")
model = apes.LogisticRegression.of(people, features=gradients)
plan = apes.Plan(mechanism=ThreeWays(), clip=0.2, rounds=10)
run = apes.train(model, people, plan, features=gradients)
print(f"{run.accuracy:.1%} right; {run.guarantee}")
