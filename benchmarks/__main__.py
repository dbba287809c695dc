"""``make bench``: speed and memory of a round, against plain NumPy in the same process.

Options: --json prints one JSON object on stdout; --quick leaves out the large populations.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apes.budgets import make_budgets
from apes.client.randomizer import CodedClipLaplace, Place
from apes.data import Dataset, load
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import LogisticRegression
from apes.population import People, Population
from apes.terms.terms import Terms
from apes.training.round import Workers, run_round
from benchmarks.numpy_round import round_of_algorithm_1
from benchmarks.synthetic import SyntheticPopulation

_CLIP = 0.1
_NORM = 1.0
_PER_USER = 6
_REPEATS = 5
console = Console(stderr=True)


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Best wall time of several runs: the machine's noise only ever adds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apes_round(dataset: Dataset, users: int, threads: int, repeats: int, norm: float | None = None) -> float:
    """Seconds of one round of APES: updates, draws, counts, calibration; of one bit per coordinate with a norm."""
    terms, population = Terms(clip=_CLIP, norm=norm), _population(dataset, users)
    model = LogisticRegression(dataset.train_images.shape[1], dataset.classes)
    calibrator, workers = terms.calibrator(), Workers(threads=threads, users_at_once=128)

    def work() -> None:
        batch = run_round(terms, model, model.start(), population, SimulationSource(1, 1), workers=workers)
        calibrator.estimate(batch)

    # Also between rounds: BLAS threads that spin on would be measured too.
    with quiet_blas():
        return seconds(work, repeats)


def _population(dataset: Dataset, users: int) -> Population:
    """The data set itself where it has six images for everybody, else users made on the fly."""
    images, labels, budgets = dataset.train_images, dataset.train_labels, make_budgets("uniform2", users, 1)
    if users * _PER_USER > labels.size:
        return SyntheticPopulation(images, labels, budgets, _PER_USER)
    rows = users * _PER_USER
    return People(images[:rows], labels[:rows], np.arange(0, rows + 1, _PER_USER), budgets)


def numpy_round(dataset: Dataset, users: int) -> float:
    """Seconds of the same round in plain NumPy."""
    images = np.ones((dataset.train_images.shape[0], dataset.train_images.shape[1] + 1), dtype=np.float32)
    images[:, :-1] = dataset.train_images
    weights = np.zeros((dataset.classes, images.shape[1]), dtype=np.float32)
    budgets, rng = make_budgets("uniform2", users, 1), np.random.default_rng(1)
    return seconds(lambda: round_of_algorithm_1(weights, images, dataset.train_labels, budgets, _CLIP, rng), 3)


def nanoseconds_a_draw() -> tuple[float, float]:
    """One coded Clip-Laplace draw, and one number of NumPy's generator, on one thread."""
    rng = np.random.default_rng(1)
    budgets = np.random.default_rng(2).uniform(0.05, 1, 128)
    updates: NDArray[np.float32] = rng.normal(0, 0.03, (128, 1963)).astype(np.float32)
    randomizer = CodedClipLaplace(_CLIP)
    tables = randomizer.prepare(budgets)
    uniform = np.empty(updates.shape)
    rounds = iter(range(1 << 20))
    draw = seconds(lambda: randomizer.draw(updates, tables, Place(0, 0), SimulationSource(1, next(rounds))), 50)
    raw = seconds(lambda: rng.random(out=uniform), 50)
    return 1e9 * draw / updates.size, 1e9 * raw / updates.size


def measure(quick: bool) -> dict[str, Any]:
    """Run everything; memory is read before the NumPy version holds its n x d array."""
    dataset = load("digits")
    cores = os.cpu_count() or 1
    result: dict[str, Any] = {"dimensions": 7850, "threads": cores, "rounds": []}
    for users in (10_000,) if quick else (10_000, 100_000, 1_000_000):
        # A line, not a moving bar: its thread would share the cores with what is measured.
        console.print(f"a round of {users:,} users on {cores} threads ...")
        if users == 10_000:
            apes_round(dataset, users, cores, 1)  # compiles
        taken = apes_round(dataset, users, cores, _REPEATS if users == 10_000 else 1)
        result["rounds"].append({"users": users, "seconds": taken, "peak_memory_mb": peak_mb()})
    apes_round(dataset, 10_000, cores, 1, _NORM)  # compiles
    result["one_bit_seconds"] = apes_round(dataset, 10_000, cores, _REPEATS, _NORM)
    result["one_bit_times_faster_than_256_levels"] = result["rounds"][0]["seconds"] / result["one_bit_seconds"]
    console.print("the same on one thread, a single draw, and plain NumPy ...")
    result["seconds_one_thread"] = apes_round(dataset, 10_000, 1, 3)
    result["draw_ns"], result["random_ns"] = nanoseconds_a_draw()
    result["numpy_seconds"] = numpy_round(dataset, 10_000)
    result["times_faster_than_numpy"] = result["numpy_seconds"] / result["rounds"][0]["seconds"]
    result["one_bit_times_faster_than_numpy"] = result["numpy_seconds"] / result["one_bit_seconds"]
    result["draw_in_random_numbers"] = result["draw_ns"] / result["random_ns"]
    return result


def show(result: dict[str, Any]) -> None:
    """Print the figures for people."""
    table = Table(title=f"One round of APES, d = {result['dimensions']:,}, {result['threads']} threads")
    for heading in ("users", "seconds", "ns per coordinate", "peak memory (MB)"):
        table.add_column(heading, justify="right")
    for row in result["rounds"]:
        each = 1e9 * row["seconds"] / row["users"] / result["dimensions"]
        table.add_row(f"{row['users']:,}", f"{row['seconds']:.3f}", f"{each:.2f}", f"{row['peak_memory_mb']:.0f}")
    console.print(table)
    console.print(f"one thread, 10,000 users: {result['seconds_one_thread']:.3f} s")
    console.print(
        f"plain NumPy, 10,000 users: {result['numpy_seconds']:.2f} s: "
        f"[bold]{result['times_faster_than_numpy']:.1f} times[/] as long"
    )
    console.print(
        f"one bit per coordinate, 10,000 users: {result['one_bit_seconds']:.3f} s, "
        f"[bold]{result['one_bit_times_faster_than_256_levels']:.1f} times[/] faster than 256 levels, "
        f"{result['one_bit_times_faster_than_numpy']:.1f} times faster than plain NumPy"
    )
    console.print(
        f"a Clip-Laplace draw: {result['draw_ns']:.2f} ns, [bold]{result['draw_in_random_numbers']:.2f} times[/] "
        f"a number of Generator.random ({result['random_ns']:.2f} ns), one thread"
    )


def main() -> None:
    """Measure and print."""
    result = measure(quick="--quick" in sys.argv)
    show(result)
    if "--json" in sys.argv:
        print(json.dumps(result))


main()
