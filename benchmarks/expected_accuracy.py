"""``python -m benchmarks.expected_accuracy``: the table behind the expected accuracy of `apes advise`.

Trains on the embedded digits for every kind of reports, at noises from hardly any to more than is useful, and keeps the
test accuracy by rounds. People are few and their budgets such that the noise is the one that is wanted: what a training
learns from is the mean clipped update plus noise of a known standard error, whoever made it. Then trains as many people
as would be asked about, with budgets as they would have, and compares. Takes some minutes on two cores; what is done
is kept beside the file, so that it can be gone on with. --out names another file, --users other people, --quick leaves
out most places (for a look, not for the package).
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apes.advice.accuracy import PATH, Measured, Surface
from apes.advice.question import Question
from apes.advice.reporting import BITS, FIRST, LEVELS, Setting
from apes.budgets import make_budgets
from apes.data import Dataset, load
from apes.defaults import DIMENSIONS
from apes.features.named import named_features
from apes.mathematics.search import bisect
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.population import Examples
from apes.storage.files import write_bytes
from apes.storage.version import __version__
from apes.training.baseline import largest_share
from apes.training.train import train

# Standard errors per coordinate, in the unit of updates: C = 0.1; R = 1 and C = 0.1 with one bit.
NOISES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
ROUNDS = (1, 2, 5, 10, 20, 40, 80, 160)
IMAGES = 6  # of every person
USERS = 2500
# The step of one-bit reports falls until the last round, so that every number of rounds is a training of its own.
SEEDS = {BITS: (1, 2, 3, 4), FIRST: (1,), LEVELS: (1,)}
# Budgets that the noise is looked for between.
_LEAST, _MOST = 1e-4, 200.0
console = Console(stderr=True)


@dataclass(frozen=True)
class Trial:
    """A training as somebody might ask for it, to hold the table against."""

    kind: str
    users: int
    budgets: str
    rounds: int
    cap: float | None = None
    images: int | None = IMAGES  # of every person; None spreads all there are over them


TRIALS = (
    Trial(BITS, 5_000, "0.1:60%,0.5:30%,1:10%", 30),
    Trial(BITS, 4_000, "uniform2", 60, cap=0.2),
    Trial(BITS, 5_000, "constant:0.1", 15),
    Trial(FIRST, 5_000, "0.1:60%,0.5:30%,1:10%", 30),
    Trial(FIRST, 4_000, "uniform1", 60),
    Trial(LEVELS, 5_000, "0.1:60%,0.5:30%,1:10%", 30),
    Trial(LEVELS, 4_000, "uniform2", 15, cap=0.3),
    Trial(LEVELS, 3_000, "grid:0.5:2", 80),
)


# What the table does not know: people with fewer images each, whose updates agree less.
WITH_FEWER_IMAGES = (
    Trial(BITS, 25_000, "0.1:60%,0.5:30%,1:10%", 30, images=None),
    Trial(FIRST, 25_000, "0.1:60%,0.5:30%,1:10%", 30, images=None),
    Trial(LEVELS, 25_000, "0.1:60%,0.5:30%,1:10%", 30, cap=0.471, images=None),
)


def some_people(dataset: Dataset, users: int, budgets: str, seed: int, images: int | None = IMAGES) -> People:
    """So many people with so many images each, or with all there are between them."""
    used = len(dataset.train_labels) if images is None else users * images
    fewer = replace(dataset, train_images=dataset.train_images[:used], train_labels=dataset.train_labels[:used])
    return People.from_dataset(fewer, users=users, budgets=budgets, seed=seed)


def accuracies(dataset: Dataset, setting: Setting, spec: str, seed: int, images: int | None = IMAGES) -> list[float]:
    """Test accuracy after every round of a real training."""
    people = some_people(dataset, setting.question.users, spec, seed, images)
    result = train(LogisticRegression.of(people), people, replace(setting.plan, seed=seed))
    return [entry.accuracy or 0.0 for entry in result.metrics]


def mapped(dataset: Dataset) -> Dataset:
    """The images as users would make features of them, once for all trainings."""
    features = named_features("oriented-gradients")
    assert features is not None
    return replace(dataset, train_images=features(dataset.train_images), test_images=features(dataset.test_images))


def constant(kind: str, users: int, noise: float, rounds: int) -> Setting:
    """The setting in which everybody has the budget that leaves this noise; the nearest where none does."""

    def at(budget: float) -> Setting:
        return Setting(kind, Question(np.full(users, budget), rounds, dimensions=DIMENSIONS), rounds)

    return at(bisect(lambda budget: at(budget).noise() <= noise, _LEAST, _MOST, steps=40, tolerance=1e-4))


def surface(dataset: Dataset, kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Noise, rounds and accuracy (mean over seeds) of one kind of reports."""
    found: dict[str, Any] = {"noise": [], "rounds": list(arguments.rounds), "accuracy": []}
    for noise in arguments.noises:
        setting = constant(kind, arguments.users, noise, max(arguments.rounds))
        # So few people cannot have less noise than their signs.
        if found["noise"] and setting.noise() < 1.1 * found["noise"][-1]:
            continue
        row = kept(arguments, f"{kind} {noise}", partial(row_of, dataset, setting, arguments.rounds))
        found["noise"].append(setting.noise())
        found["accuracy"].append(row)
        console.print(f"{kind}: noise {setting.noise():.4g} (budget {setting.question.budgets[0]:.4g}): {row}")
    return found


def row_of(dataset: Dataset, setting: Setting, rounds: Sequence[int]) -> list[float]:
    """Accuracy after so many rounds, mean over seeds."""
    spec, runs = f"constant:{float(setting.question.budgets[0])!r}", []
    for seed in SEEDS[setting.kind]:
        if setting.kind == BITS:
            runs.append([accuracies(dataset, replace(setting, rounds=T), spec, seed)[-1] for T in rounds])
        else:
            steps = accuracies(dataset, setting, spec, seed)
            runs.append([steps[T - 1] for T in rounds])
    return [round(value, 4) for value in np.mean(runs, axis=0).tolist()]


def kept(arguments: argparse.Namespace, name: str, make: Callable[[], Any]) -> Any:
    """What was made before under this name, or what is made now, and kept."""
    path = arguments.out.with_suffix(".part")
    name = f"{name} {arguments.users} {list(arguments.rounds)}"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in known:
        known[name] = make()
        write_bytes(path, json.dumps(known).encode())
    return known[name]


def seen_by(dataset: Dataset, setting: Setting, trial: Trial) -> float:
    """Accuracy of real trainings, mean over seeds, as in the table."""
    runs = [accuracies(dataset, setting, trial.budgets, seed, trial.images)[-1] for seed in SEEDS[trial.kind]]
    return round(float(np.mean(runs)), 4)


def check(dataset: Dataset, found: Measured, trial: Trial, arguments: argparse.Namespace) -> dict[str, Any]:
    """A real training beside what the table says."""
    question = Question(make_budgets(trial.budgets, trial.users, 1), trial.rounds, cap=trial.cap)
    setting = Setting(trial.kind, question, trial.rounds, trial.cap)
    noise = setting.noise()
    seen = kept(arguments, str(trial), partial(seen_by, dataset, setting, trial))
    expected = found.expected(trial.kind, noise, trial.rounds, DIMENSIONS)
    console.print(f"{trial}: noise {noise:.4g}, seen {seen:.4f}, expected {expected}")
    return {**vars(trial), "noise": noise, "seen": seen, "expected": expected}


def main() -> None:
    """Make the table, check it, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PATH)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    arguments.noises, arguments.rounds = (NOISES[::3], ROUNDS[:4]) if arguments.quick else (NOISES, ROUNDS)
    dataset = mapped(load("digits"))
    surfaces = {kind: surface(dataset, kind, arguments) for kind in (BITS, FIRST, LEVELS)}
    baseline = largest_share(Examples(dataset.test_images, dataset.test_labels))
    found = Measured(
        {kind: Surface.of(one) for kind, one in surfaces.items()}, "the digits", DIMENSIONS, 0.0, IMAGES, 0.0, baseline
    )
    checks = [check(dataset, found, trial, arguments) for trial in TRIALS]
    known = [one for one in checks if one["expected"] is not None]
    errors = [abs(one["seen"] - one["expected"]) / (1 - one["expected"]) for one in known]
    written = {
        "made_by": shlex.join(["python", "-m", "benchmarks.expected_accuracy", *sys.argv[1:]]),
        "version": __version__,
        "data": "the embedded digits",
        "dimensions": DIMENSIONS,
        "features": "oriented-gradients",
        "people": arguments.users,
        "images_per_person": IMAGES,
        "baseline": baseline,
        "seeds": {kind: list(seeds) for kind, seeds in SEEDS.items()},
        "clip": 0.1,
        "norm_of_bits": 1.0,
        "largest_error_share": round(max(errors, default=1.0), 4),
        "checks": checks,
        "with_fewer_images": [check(dataset, found, trial, arguments) for trial in WITH_FEWER_IMAGES],
        "surfaces": surfaces,
    }
    arguments.out.with_suffix(".part").unlink(missing_ok=True)
    write_bytes(arguments.out, (json.dumps(written, indent=1) + "\n").encode())
    console.print(f"{arguments.out.name}: off by up to {100 * max(errors, default=1.0):.1f} % of the wrong answers")


if __name__ == "__main__":
    main()
