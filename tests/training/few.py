"""Few people with few features, for tests of training that take a moment; and their runs in folders."""

import hashlib
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
    first = reached[0]
    folder = RunFolder.create(path, {}, json.loads(first.identity.basis), data="", keys=first.keys)
    for progress in reached:
        folder.save(progress)
    return folder


def rewrite(run, config, basis):
    """Write a configuration anew, and bind the log to it and to another basis, as somebody would who forges both."""
    (run / "config.json").write_text(json.dumps(config))
    bound = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    log = run / "exposures.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line["run"] |= {"basis": json.dumps(basis, sort_keys=True), "config": bound}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


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
