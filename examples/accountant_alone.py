"""The accountant on its own: what is proved about rounds that somebody else runs.

python examples/accountant_alone.py
"""

import numpy as np

import apes

# Ten thousand people who report 100 coordinates in each of 20 rounds; 60 % chose 0.1, 30 % 0.5, 10 % 1.
budgets = np.repeat([0.1, 0.5, 1.0], [6_000, 3_000, 1_000])
guarantee = apes.certify(budgets, delta=1e-6, dimensions=100, rounds=20)
print(f"proved for everybody: epsilon {guarantee.epsilon:.3f} at delta {guarantee.delta:g}")
print(f"forced by some dataset: about {guarantee.lower:.3f}")
for budget in (0.1, 0.5, 1.0):
    print(f"whoever chose {budget:g}: {guarantee.of(budget).epsilon:.3f}")
print(f"the same at delta 1e-8: {guarantee.epsilon_at(1e-8):.3f}")

# What the literature prints for one coordinate of one round. These are not proved for people with different budgets.
for name in ("eon_numeric", "fmt22_numeric"):
    print(f"published, {name}: {apes.PUBLISHED[name](budgets, 1e-6):.4f}")
print(f"certified: {apes.certify(budgets, delta=1e-6).epsilon:.4f}")

# A gate for a loop of one's own: each round is charged before it is released, and refused if it would pass the target.
accountant = apes.Accountant(1e-6, expected_rounds=20, target=0.5)
while accountant.allows(exposure := apes.Exposure(budgets, 100)):
    accountant.charge(exposure)
print(f"{accountant.rounds} rounds fit; {accountant.guarantee}")
