"""People of many Parquet files: ``python -m benchmarks.partitioned``: seconds per round, and memory per process.

Writes 20 files of a million users with two rows of 25 numbers each (into --folder, where they are found again, or a
temporary one), opens them, and lets everybody report round after round: on threads of one process, and with --cluster
on a Dask cluster of --workers processes of one thread each. What both count is compared to the last bit.
"""

import argparse
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apes.mathematics.randomness import SimulationSource
from apes.messages import CountedBatch
from apes.models.logistic import LogisticRegression
from apes.partitions.partitions import Partitions
from apes.terms.terms import Terms
from apes.training import peak_memory
from apes.training.round import run_round
from apes.training.workers import Workers
from benchmarks.timing import peak_mb

_CLASSES, _ROWS_EACH = 10, 2
_TERMS = Terms(clip=0.1, norm=1.0)
console = Console(stderr=True)


@dataclass(frozen=True)
class Size:
    """How large a table is."""

    users: int
    files: int
    columns: int


def write_files(folder: Path, size: Size) -> None:
    """Write the files, one in memory at a time, unless they are there."""
    pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(size.files):
        path = folder / f"part-{at:04d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng([at, size.users])
        users = np.arange(size.users * at // size.files, size.users * (at + 1) // size.files)
        ids = pa.array([f"u{user:09d}" for user in users]).take(pa.array(np.repeat(np.arange(users.size), _ROWS_EACH)))
        rows = len(ids)
        columns = {f"x{number}": rng.random(rows, dtype=np.float32) for number in range(size.columns)}
        own = np.repeat(rng.uniform(0.1, 1, users.size), _ROWS_EACH)
        table = pa.table({"user": ids, "wish": own, "y": rng.integers(0, _CLASSES, rows), **columns})
        parquet.write_table(table, path)


def opened(folder: Path, size: Size, cache_mb: int) -> Partitions:
    """The people in the files of this size, all of whom train."""
    paths = sorted(folder.glob("part-*.parquet"))[: size.files]
    choices: dict[str, Any] = {"bounds": (0, 1), "test_share": 0.0, "cache_mb": cache_mb}
    choices["classes"] = [str(at) for at in range(_CLASSES)]
    return Partitions.open(paths, user="user", label="y", budget="wish", **choices)


def rounds_of(people: Partitions, workers: Workers, rounds: int) -> tuple[dict[str, Any], int]:
    """Seconds of the first round, which reads and compiles, and of those after it; and what was counted in the last."""
    model = LogisticRegression.of(people)
    times, ones = [], 0
    with workers.open() as crew:
        for number in range(rounds + 1):
            began = time.perf_counter()
            source = SimulationSource(1, number + 1)
            batch = run_round(_TERMS, model, model.start(), people, source, budgets=people.budgets, workers=crew)
            times.append(time.perf_counter() - began)
            assert isinstance(batch, CountedBatch)
            # Weighted by the coordinate: one that was counted elsewhere would show.
            ones = int((batch.counts[:, 1] * np.arange(1, model.dimensions + 1)).sum())
    later = times[1:]
    spread = [min(later), max(later)]
    return {"first": times[0], "median": statistics.median(later), "spread": spread, "seconds": later}, ones


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of a Dask cluster of so many processes of one thread each."""
    distributed = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as started,
        distributed.Client(started) as client,
    ):
        yield client


def measure(folder: Path, size: Size, given: argparse.Namespace) -> dict[str, Any]:
    """Write, open, and let everybody report on threads, and on a cluster if asked to."""
    console.print(f"{size.files} files, {size.users:,} users, {size.columns} columns: writing what is not there ...")
    write_files(folder, size)
    began = time.perf_counter()
    people = opened(folder, size, given.cache_mb)
    found: dict[str, Any] = asdict(size) | {"cache_mb": given.cache_mb, "seconds_to_open": time.perf_counter() - began}
    console.print(f"opened in {found['seconds_to_open']:.1f} s; peak {peak_mb():.0f} MB; rounds on threads ...")
    workers = Workers(threads=given.threads)
    found["threads"], counted = rounds_of(people, workers, given.rounds)
    found["threads"] |= {"count": workers.count, "peak_memory_mb": peak_mb()}
    console.print(f"{found['threads']}")
    if given.cluster:
        with cluster(given.workers) as client:
            console.print(f"rounds on {given.workers} processes ...")
            found["cluster"], other = rounds_of(people, Workers(executor=client), given.rounds)
            peaks = list(client.run(peak_memory.peak_mb).values())
        found["cluster"] |= {
            "workers": given.workers,
            "peak_memory_mb_per_worker": peaks,
            "same_counts": other == counted,
        }
        found["cluster_over_threads"] = found["cluster"]["median"] / found["threads"]["median"]
        console.print(f"{found['cluster']}\nratio {found['cluster_over_threads']:.2f}")
    return found


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description="Seconds per round of people in many Parquet files.")
    for name, default in (("users", 1_000_000), ("files", 20), ("columns", 25), ("rounds", 5), ("workers", 2)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--threads", type=int)
    options.add_argument("--cache-mb", type=int, default=1024)
    options.add_argument("--folder", type=Path)
    options.add_argument("--cluster", action="store_true")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    size = Size(given.users, given.files, given.columns)
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(Path(temporary) if given.folder is None else given.folder, size, given)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
