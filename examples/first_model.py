"""A first private model: made-up people with handwritten digits, each with a budget of their own.

python examples/first_model.py
"""

import apes

# Digits that come with scikit-learn, spread over 2,000 people; everybody's budget is drawn from 0.05 to 1.
dataset = apes.load("digits")
people = apes.People.from_dataset(dataset, users=2_000, budgets="uniform2")

# What devices make of an image first: public, the same for everybody, and so free of charge.
gradients = apes.OrientedGradients()
model = apes.LogisticRegression.of(people, features=gradients)

# No round takes place after which anybody's certified epsilon, over all rounds, would exceed 2.
plan = apes.Plan(target_epsilon=2, delta=1e-5, rounds=20)
run = apes.train(model, people, plan, features=gradients)

print(f"{run.accuracy:.1%} of the test digits are right")
print(run.guarantee)
print(f"for somebody with a budget of 0.1: epsilon {run.guarantee.of(0.1).epsilon:.3f}")
print(f"found for this target: budgets capped at {run.plan.cap:.3f}, coordinates clipped at {run.plan.clip:.3f}")
