"""Wide models: ``python -m benchmarks.wide``: seconds per round and peak memory, one bit per coordinate.

A million coordinates and a thousand users by default; --dimensions and --users change it, --threads, --rounds,
--json prints one JSON object on stdout.
"""

import argparse
import json
import statistics
import time

import numpy as np
from rich.console import Console

from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.terms.plan import Plan
from apes.training.memory import round_bytes
from apes.training.train import train
from apes.training.workers import Workers
from benchmarks.timing import peak_mb

_CLASSES = 100
console = Console(stderr=True)


def crowd(users: int, features: int) -> People:
    """People with one row each, of norm 9 at most."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (users, features)).astype(np.float32)
    rows *= np.float32(9 / np.sqrt(features))
    return People.from_arrays(rows, rng.integers(0, _CLASSES, users), budgets="uniform2", classes=_CLASSES)


def measure(users: int, dimensions: int, rounds: int, threads: int | None) -> dict[str, object]:
    """Train for some rounds, the first of which compiles and does not count."""
    people = crowd(users, dimensions // _CLASSES - 1)
    model, workers = LogisticRegression.of(people), Workers(threads=threads)
    console.print(
        f"{model.dimensions:,} coordinates, {users:,} users, {workers.count} threads; before: {peak_mb():.0f} MB"
    )
    plan = Plan(clip=0.1, norm=1.0, rounds=rounds + 1, delta=1e-4, learning_rate=1, seed=1)
    began = time.perf_counter()
    result = train(model, people, plan, workers=workers)
    times = [entry.seconds for entry in result.metrics][1:]
    return {
        "dimensions": model.dimensions,
        "users": users,
        "threads": workers.count,
        "seconds_per_round": statistics.median(times),
        "seconds_of_rounds": times,
        "seconds": time.perf_counter() - began,
        "peak_memory_mb": peak_mb(),
        "counts_mb": round_bytes(model.dimensions, 2, users, workers.count) / 2**20,
        "counts_of_256_levels_mb": round_bytes(model.dimensions, 256, users, workers.count) / 2**20,
        "epsilon": result.guarantee.epsilon,
        "model_sha256": result.model_sha256,
    }


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description="Seconds per round and peak memory of a wide model.")
    options.add_argument("--users", type=int, default=1000)
    options.add_argument("--dimensions", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    found = measure(given.users, given.dimensions, given.rounds, given.threads)
    console.print(f"{found['seconds_per_round']:.3g} s per round, peak memory {found['peak_memory_mb']:.0f} MB")
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
