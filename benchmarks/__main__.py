"""``make bench``: speed and memory of a round, against plain NumPy in the same process, and how they grow.

Times are medians of several runs, ours and NumPy's in turns, with the shortest and the longest beside them: a figure
whose spread is wide was taken on a busy machine. Options: --json prints one JSON object on stdout; --quick leaves out
the large populations and the growth.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apes.budgets import make_budgets
from apes.client.randomizer import CodedClipLaplace, Place
from apes.client.top_b_first import keep_largest_coordinates, keep_largest_quickly
from apes.data import Dataset, load
from apes.mathematics.arrays import U32
from apes.mathematics.chacha import GROUP_WORDS, fill_words
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.population import Population
from apes.terms.terms import Terms
from apes.training.round import run_round
from apes.training.workers import Workers
from benchmarks import growth
from benchmarks.numpy_round import round_of_algorithm_1
from benchmarks.synthetic import SyntheticPopulation
from benchmarks.timing import Times, in_turns, peak_mb, timed

_CLIP = 0.1
_NORM = 1.0
_PER_USER = 6
_REPEATS, _REPEATS_ALONE = 5, 15
_MILLION, _FEW, _MANY = 128 * 7813, 64, 40
_WORDS = 3907 * GROUP_WORDS
_WAYS = {"levels": None, "bit": _NORM}
console = Console(stderr=True)


def apes_round(dataset: Dataset, users: int, threads: int, norm: float | None = None) -> Callable[[], None]:
    """One round of APES: updates, draws, counts, calibration; of one bit per coordinate with a norm."""
    terms, population = Terms(clip=_CLIP, norm=norm), _population(dataset, users)
    model = LogisticRegression(dataset.train_images.shape[1], dataset.classes)
    calibrator, workers = terms.calibrator(), Workers(threads=threads)

    def work() -> None:
        # As in training: threads that BLAS starts would go on spinning on the cores of what runs next.
        with quiet_blas():
            batch = run_round(terms, model, model.start(), population, SimulationSource(1, 1), workers=workers)
            calibrator.estimate(batch)

    return work


def _population(dataset: Dataset, users: int) -> Population:
    """The data set itself where it has six images for everybody, else users made on the fly."""
    images, labels, budgets = dataset.train_images, dataset.train_labels, make_budgets("uniform2", users, 1)
    if users * _PER_USER > labels.size:
        return SyntheticPopulation(images, labels, budgets, _PER_USER)
    rows = users * _PER_USER
    return People(images[:rows], labels[:rows], np.arange(0, rows + 1, _PER_USER), budgets)


def numpy_round(dataset: Dataset, users: int) -> Callable[[], object]:
    """The same round in plain NumPy."""
    images = np.ones((dataset.train_images.shape[0], dataset.train_images.shape[1] + 1), dtype=np.float32)
    images[:, :-1] = dataset.train_images
    weights = np.zeros((dataset.classes, images.shape[1]), dtype=np.float32)
    budgets, rng = make_budgets("uniform2", users, 1), np.random.default_rng(1)
    return lambda: round_of_algorithm_1(weights, images, dataset.train_labels, budgets, _CLIP, rng)


def draws() -> dict[str, Callable[[], object]]:
    """A million coded Clip-Laplace draws, and as many random numbers, all on one thread.

    The last two are words of 32 bits: the cipher's stream, which simulations draw from, and NumPy's Philox, which is
    no cipher.
    """
    rng = np.random.default_rng(1)
    budgets = np.random.default_rng(2).uniform(0.05, 1, 128)
    updates: NDArray[np.float32] = rng.normal(0, 0.03, (128, _MILLION // 128)).astype(np.float32)
    randomizer, rounds = CodedClipLaplace(_CLIP), iter(range(1 << 20))
    tables, uniform = randomizer.prepare(budgets), np.empty(updates.shape)
    words, key, philox = np.empty(_WORDS, dtype=np.uint32), SimulationSource(1).key, np.random.Philox(1)
    return {
        "draw": lambda: randomizer.draw(updates, tables, Place(0, 0), SimulationSource(1, next(rounds))),
        "random": lambda: rng.random(out=uniform),
        "cipher": lambda: fill_words(np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(next(rounds)), key, words),
        "philox": lambda: philox.random_raw(_WORDS // 2),
    }


def choices() -> dict[str, Callable[[], object]]:
    """The choice of the 393 largest of 7,850 coordinates, for 64 users: in a simulation, and in a device's time."""
    updates = np.random.default_rng(3).normal(0, 0.03, (_FEW, 7850)).astype(np.float32)

    def choose(keep: Callable[[U32, int], None]) -> Callable[[], object]:
        # It works in place: each run has a copy of its own, made beforehand.
        copies = iter([updates.copy().view(np.uint32) for _ in range(_MANY)])
        return lambda: keep(next(copies), 393)

    return {"choice": choose(keep_largest_quickly), "choice_on_device": choose(keep_largest_coordinates)}


def measure(quick: bool) -> dict[str, Any]:
    """Run everything; memory is read before the NumPy version holds its n x d array."""
    dataset, cores = load("digits"), os.cpu_count() or 1
    result: dict[str, Any] = {"dimensions": 7850, "threads": cores, "rounds": []}
    ways = {"levels": apes_round(dataset, 10_000, cores), "bit": apes_round(dataset, 10_000, cores, _NORM)}
    one = {f"{name}_one_thread": apes_round(dataset, 10_000, 1, norm) for name, norm in _WAYS.items()}
    # Also between rounds: BLAS threads that spin on would be measured too.
    with quiet_blas():
        for work in ways.values():
            work()  # compiles
        for users in () if quick else (100_000, 1_000_000):
            # A line, not a moving bar: its thread would share the cores with what is measured.
            console.print(f"a round of {users:,} users on {cores} threads ...")
            taken = timed(apes_round(dataset, users, cores), 1)
            result["rounds"].append({"users": users, "seconds": taken.median, "peak_memory_mb": peak_mb()})
        console.print("10,000 users: our ways and plain NumPy, in turns ...")
        times = in_turns({**ways, **one}, _REPEATS_ALONE)
        result["rounds"].insert(0, {"users": 10_000, "seconds": times["levels"].median, "peak_memory_mb": peak_mb()})
        small = in_turns({**draws(), **choices()}, _MANY)
    beside = in_turns({**ways, "numpy": numpy_round(dataset, 10_000)}, _REPEATS)
    # What ran in turns with NumPy, whose arrays push everything out of the caches, is compared with NumPy alone.
    times |= small | {"numpy": beside.pop("numpy")} | {f"{name}_beside_numpy": entry for name, entry in beside.items()}
    result["seconds"] = {name: entry.runs for name, entry in times.items()}
    return result | ratios(times)


def ratios(times: dict[str, Times]) -> dict[str, float]:
    """What is told: each against something that ran in the same process, in turns with it."""
    middle = {name: entry.median for name, entry in times.items()}
    return {
        "times_faster_than_numpy": middle["numpy"] / middle["levels_beside_numpy"],
        "one_bit_times_faster_than_numpy": middle["numpy"] / middle["bit_beside_numpy"],
        "threads_faster_than_one": middle["levels_one_thread"] / middle["levels"],
        "one_bit_threads_faster_than_one": middle["bit_one_thread"] / middle["bit"],
        "draw_in_random_numbers": middle["draw"] / middle["random"],
        "cipher_words_in_philox_words": middle["cipher"] / middle["philox"],
        "draw_ns": 1e9 * middle["draw"] / _MILLION,
        "choice_us_per_user": 1e6 * middle["choice"] / _FEW,
        "choice_on_device_us_per_user": 1e6 * middle["choice_on_device"] / _FEW,
    }


def show(result: dict[str, Any]) -> None:
    """Print the figures for people."""
    table = Table(title=f"One round of APES, d = {result['dimensions']:,}, {result['threads']} threads")
    for heading in ("users", "seconds", "ns per coordinate", "peak memory (MB)"):
        table.add_column(heading, justify="right")
    for row in result["rounds"]:
        each = 1e9 * row["seconds"] / row["users"] / result["dimensions"]
        table.add_row(f"{row['users']:,}", f"{row['seconds']:.3f}", f"{each:.2f}", f"{row['peak_memory_mb']:.0f}")
    console.print(table)
    for name, told in {"levels": "256 levels", "bit": "one bit", "numpy": "plain NumPy"}.items():
        console.print(f"10,000 users, {told}: {Times(tuple(result['seconds'][name]))}")
    threads = f"{result['threads']} threads against one"
    console.print(
        f"plain NumPy takes [bold]{result['times_faster_than_numpy']:.1f} times[/] as long as 256 levels, "
        f"[bold]{result['one_bit_times_faster_than_numpy']:.1f} times[/] as long as one bit\n"
        f"{threads}: [bold]{result['threads_faster_than_one']:.2f} times[/] as fast, one bit "
        f"[bold]{result['one_bit_threads_faster_than_one']:.2f} times[/]\n"
        f"a Clip-Laplace draw: {result['draw_ns']:.2f} ns, [bold]{result['draw_in_random_numbers']:.2f} times[/] "
        f"a number of Generator.random, one thread\n"
        f"a random word of the cipher: [bold]{result['cipher_words_in_philox_words']:.2f} times[/] "
        f"one of NumPy's Philox, one thread\n"
        f"the 393 largest of 7,850 coordinates: {result['choice_us_per_user']:.1f} us per user, "
        f"{result['choice_on_device_us_per_user']:.1f} in a time that does not depend on the data"
    )


def main() -> None:
    """Measure and print."""
    is_quick = "--quick" in sys.argv
    result = measure(is_quick)
    show(result)
    if not is_quick:
        result["growth"] = growth.series(growth.measure())
        growth.show(result["growth"])
        growth.draw(result["growth"], growth.FIGURE)
    if "--json" in sys.argv:
        print(json.dumps(result))


main()
