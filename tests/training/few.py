"""Few people with few features, for tests of training that take a moment; and their runs in folders."""

import json

import numpy as np

import apes
from apes.data import Dataset
from apes.training.run_folder import RunFolder

USERS = 40
ROWS = np.random.default_rng(1).random((USERS, 3), dtype=np.float32)
LABELS = (ROWS[:, 0] > 0.5).astype(int)
BUDGETS = np.repeat([0.1, 0.5], USERS // 2)
MODEL = apes.LogisticRegression(3, 2)
PLAN = apes.Plan(clip=0.1, rounds=3, delta=1e-3)
ONE_THREAD = apes.Workers(threads=1)


def people_of(budgets=BUDGETS, rows=ROWS, **options):
    return apes.People.from_arrays(rows, LABELS, budgets=budgets, **options)


def trained(plan=PLAN, people=None, **options):
    """A run, and where it stood after every round."""
    reached = []
    people = people_of() if people is None else people
    run = apes.train(MODEL, people, plan, workers=ONE_THREAD, after_round=reached.append, **options)
    return run, reached


def folder_of(path, reached):
    """The folder of a run that stood here after its rounds."""
    folder = RunFolder.create(path, {}, json.loads(reached[0].identity.basis), data="")
    for progress in reached:
        folder.save(progress)
    return folder


def patterns(train=400, test=100, side=28):
    """Images of ten patterns under noise, of so many by so many pixels."""
    rng = np.random.default_rng(3)
    means = np.kron(rng.random((10, side // 4, side // 4)), np.ones((4, 4))).reshape(10, side * side)
    parts = []
    for count in (train, test):
        labels = (np.arange(count) % 10).astype(np.uint8)
        noisy = means[labels] + rng.normal(0, 0.1, (count, side * side))
        parts += [np.clip(noisy, 0, 1).astype(np.float32), labels]
    return Dataset("digits", *parts, "made for the tests")
