"""A table of one's own: rows of persons, from a file to a private model that predicts.

python examples/own_table.py
"""

import csv

import numpy as np

import apes

# The table: here made up, 4,000 patients with one to three visits each. Yours is a file already.
rng = np.random.default_rng(1)
patients = np.repeat(np.arange(4_000), rng.integers(1, 4, 4_000))
ages, pressures = rng.integers(18, 95, patients.size), rng.normal(130, 25, patients.size).round()
wards, wishes = rng.choice(["north", "south"], patients.size), np.array(["cautious", "usual", "open"])[patients % 3]
is_sick = (ages - 55) / 20 + (pressures - 130) / 30 + (wards == "north") + rng.normal(0, 0.7, patients.size) > 0.5
with open("patients.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["patient", "age", "pressure", "ward", "wish", "diagnosis"])
    table.writerows(zip(patients, ages, pressures, wards, wishes, np.where(is_sick, "sick", "well"), strict=True))

# Whose row it is, what is learned, how careful one must be with whom, and what everybody knows about the columns.
people = apes.People.from_table(
    "patients.csv",
    user="patient",
    label="diagnosis",
    budget="wish",
    budgets={"cautious": 0.1, "usual": 0.5, "open": 1.0},
    bounds={"age": (0, 120), "pressure": (50, 250)},
    categories={"ward": ["north", "south"]},
)

# Train under a total epsilon of 1 for everybody; a fifth of the people train nothing and judge the model.
run = apes.train(apes.LogisticRegression.of(people), people, apes.Plan(target_epsilon=1, delta=1e-5))
print(f"{run.accuracy:.1%} right, always guessing the same {run.baseline:.1%}; {run.guarantee}")

# What it comes to for each of the levels that people chose among.
for level, budget in people.schema.budget_levels:
    print(f"{level}: local budget {budget:g}, central epsilon {run.guarantee.of(budget).epsilon:.3f}")

# Predict, by our own model or by scikit-learn's with the same coefficients; neither costs any privacy.
new = {"age": [30, 80], "pressure": [120.0, 170.0], "ward": ["south", "north"]}
print("predicted:", *run.model.predict(new))
print("by scikit-learn:", *run.model.to_pipeline().predict(new))
