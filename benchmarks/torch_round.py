"""Seconds per round of a torch CNN: whole blocks of users at once, a loop over users, and Flower's simulation.

    python -m benchmarks.torch_round --json

The loop and Flower are measured on a hundred users. All three compute the gradients of the users' mean losses; only
ours also clips, randomises, shuffles and counts them. The loop is given the better of one thread and torch's own
choice. Flower's simulation needs ``pip install "flwr[simulation]"``; where it is missing, its line says so. CPU time is
of this process and its threads; Flower's workers are others.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import apes
from apes.mathematics.randomness import SimulationSource
from apes.training.round import run_round
from benchmarks.flower_round import PER_USER, data_of, gradient, people_of, seconds_in_flower
from benchmarks.timing import peak_mb
from benchmarks.torch_models import cnn

_FEW, _REPEATS = 100, 3
console = Console(stderr=True, width=110)


class Taken(NamedTuple):
    """Wall and CPU seconds for some users."""

    users: int
    wall: float
    cpu: float | None = None


def best_of(users: int, work: Callable[[], Any], repeats: int = _REPEATS) -> Taken:
    """The shortest of some runs: the machine's noise only ever adds."""
    found = []
    for _ in range(repeats):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        found.append(Taken(users, time.perf_counter() - began, time.process_time() - cpu))
    return min(found, key=lambda taken: taken.wall)


def of_our_round(users: int, threads: int | None, repeats: int) -> Taken:
    """Our round, with everything that belongs to it; the first, which tries sizes of groups, is not counted."""
    model = apes.TorchModel(cnn(), nn.functional.cross_entropy, input_shape=(1, 28, 28))
    people, terms, workers = people_of(users), apes.Terms(clip=0.1, norm=1.0), apes.Workers(threads=threads)
    run_round(terms, model, model.start(), people_of(64), SimulationSource(1, 1), workers=workers)
    source = SimulationSource(1, 2)
    return best_of(users, lambda: run_round(terms, model, model.start(), people, source, workers=workers), repeats)


def of_a_loop() -> Taken:
    """A hundred users one after another."""
    net, people, before = cnn(), people_of(_FEW), torch.get_num_threads()

    def work() -> None:
        for user in range(_FEW):
            gradient(net, *data_of(people, user))

    found = []
    for threads in (before, 1):
        torch.set_num_threads(threads)
        found.append(best_of(_FEW, work))
    torch.set_num_threads(before)
    return min(found, key=lambda taken: taken.wall)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000, help="of our own round (10,000)")
    parser.add_argument("--threads", type=int, help="of our own round (one per core)")
    parser.add_argument("--repeats", type=int, default=2, help="of our own round (2)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {"apes, a whole round": of_our_round(options.users, options.threads, options.repeats)}
    peak = peak_mb()
    rows["a loop over users, gradients alone"] = of_a_loop()
    in_flower = seconds_in_flower(_FEW)
    if in_flower is not None:
        rows["Flower's simulation, gradients alone"] = Taken(_FEW, in_flower)
    else:
        console.print('Flower\'s simulation is not here: pip install "flwr\\[simulation]"')
    show(rows)
    console.print(f"peak memory of our round: {peak:.0f} MB")
    if options.json:
        print(json.dumps({"rows": {name: taken._asdict() for name, taken in rows.items()}, "peak_memory_mb": peak}))


def show(rows: dict[str, Taken]) -> None:
    """Print the figures for people."""
    d = sum(value.numel() for value in cnn().parameters())
    table = Table(title=f"CNN, d = {d:,}, {PER_USER} images per user")
    for heading in ("", "users", "seconds", "ms per user", "times ours", "CPU ms per user"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    own = next(iter(rows.values()))
    for name, taken in rows.items():
        each, ratio = taken.wall / taken.users, taken.wall / taken.users / (own.wall / own.users)
        cpu = "" if taken.cpu is None else f"{1e3 * taken.cpu / taken.users:.2f}"
        table.add_row(name, f"{taken.users:,}", f"{taken.wall:.2f}", f"{1e3 * each:.2f}", f"{ratio:.1f}", cpu)
    console.print(table)


if __name__ == "__main__":
    main()
