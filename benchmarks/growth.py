"""How a round grows with users, coordinates and threads: seconds, memory, and the exponents that fit them.

``make bench`` prints and draws it; by itself: ``python -m benchmarks.growth``. Every row is a process of its own, so
that memory is that of the row. One bit per coordinate, which wide models need, and 256 levels, by users.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from apes.budgets import make_budgets
from apes.data import load
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import LogisticRegression
from apes.terms.terms import Terms
from apes.training.round import run_round
from apes.training.workers import Workers
from benchmarks.synthetic import SyntheticPopulation
from benchmarks.timing import peak_mb, timed

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "growth.png"
_CLASSES, _PER_USER, _POOL = 10, 2, 1 << 24
# Users are counted on a model of about a thousand coordinates, coordinates with a thousand users.
_USERS, _DIMENSIONS = (10**4, 10**5, 10**6, 10**7), (10**3, 10**4, 10**5, 10**6)
_FEW_USERS, _FEW_DIMENSIONS = 1000, 1000
console = Console(stderr=True)


@dataclass(frozen=True)
class Row:
    """What is measured, or was: with ``seconds`` (median of some rounds) and ``peak_memory_mb``."""

    what: str  # users, coordinates or threads: what grows
    users: int
    dimensions: int
    levels: int
    threads: int
    seconds: float = 0.0
    peak_memory_mb: float = 0.0


def rows(threads: int) -> list[Row]:
    """All that is measured, on so many threads at most."""
    by_users = [Row("users", n, _FEW_DIMENSIONS, levels, threads) for levels in (256, 2) for n in _USERS]
    by_width = [Row("coordinates", _FEW_USERS, d, 2, threads) for d in _DIMENSIONS]
    by_threads = [Row("threads", 10**5, _FEW_DIMENSIONS, 256, count) for count in range(1, threads + 1)]
    return by_users + by_width + by_threads


def measured(row: Row) -> Row:
    """The row with its figures, taken in this process."""
    features = row.dimensions // _CLASSES - 1
    pool, budgets = load("digits"), make_budgets("uniform2", row.users, 1)
    # Of wide models fewer images, 64 MB of them: what is measured is the round, not its data.
    images = np.resize(pool.train_images, (min(4096, max(16, _POOL // features)), features)).astype(np.float32)
    labels = pool.train_labels[: len(images)]
    population = SyntheticPopulation(images, labels, budgets, _PER_USER)
    terms, model = Terms(clip=0.1, norm=1.0 if row.levels == 2 else None), LogisticRegression(features, _CLASSES)
    workers, few = Workers(threads=row.threads), SyntheticPopulation(images, labels, budgets[:64])

    def work(people: SyntheticPopulation) -> None:
        run_round(terms, model, model.start(), people, SimulationSource(1, 1), workers=workers)

    with quiet_blas():
        work(few)  # compiles
        draws = row.users * row.dimensions
        times = timed(lambda: work(population), 5 if draws <= 10**8 else 3 if draws <= 10**9 else 1)
    return Row(**asdict(row) | {"seconds": times.median, "peak_memory_mb": peak_mb()})


def measure() -> list[Row]:
    """Measure every row in a process of its own."""
    found = []
    for row in rows(os.cpu_count() or 1):
        console.print(
            f"{row.users:,} users, {row.dimensions:,} coordinates, {row.levels} levels, {row.threads} threads"
        )
        command = [sys.executable, "-m", "benchmarks.growth", "--row", json.dumps(asdict(row))]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(Row(**json.loads(said)))
    return found


def exponent(xs: list[float], ys: list[float]) -> float:
    """The slope of a straight line through the logarithms: y grows as x to this power."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def series(found: list[Row]) -> dict[str, dict[str, Any]]:
    """Every series by its name: what grows, seconds, memory, and the fitted exponents."""
    kinds = {
        "users, 256 levels": ("users", 256, "users"),
        "users, one bit": ("users", 2, "users"),
        "coordinates, one bit": ("coordinates", 2, "dimensions"),
        "threads": ("threads", 256, "threads"),
    }
    result = {}
    for name, (what, levels, field) in kinds.items():
        some = [row for row in found if (row.what, row.levels) == (what, levels)]
        xs, seconds = [getattr(row, field) for row in some], [row.seconds for row in some]
        fitted = exponent(xs, seconds) if len(xs) > 1 else None
        memory = [row.peak_memory_mb for row in some]
        result[name] = {"x": xs, "seconds": seconds, "peak_memory_mb": memory, "exponent": fitted}
    return result


def show(found: dict[str, dict[str, Any]]) -> None:
    """Print the series for people."""
    table = Table(title="How a round grows")
    for heading in ("grows", "from", "to", "seconds", "MB", "seconds grow as"):
        table.add_column(heading, justify="left" if heading == "grows" else "right")
    for name, one in found.items():
        ends = [f"{one['x'][place]:,}" for place in (0, -1)]
        seconds, memory = (" to ".join(f"{one[part][place]:.3g}" for place in (0, -1)) for part in _PARTS)
        power = "-" if one["exponent"] is None else f"x^{one['exponent']:.2f}"
        table.add_row(name, *ends, seconds, memory, power)
    console.print(table)


_PARTS = ("seconds", "peak_memory_mb")


def draw(found: dict[str, dict[str, Any]], file: Path) -> None:
    """Draw seconds and memory against users and coordinates."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex="col", layout="constrained")
    for column, what in enumerate(("users", "coordinates")):
        for name, one in found.items():
            if not name.startswith(what):
                continue
            for row, part in enumerate(_PARTS):
                label = f"{name.split(', ')[1]}: x^{one['exponent']:.2f}" if row == 0 else name.split(", ")[1]
                axes[row, column].loglog(one["x"], one[part], marker="o", label=label)
        axes[0, column].set_ylabel("seconds per round")
        axes[1, column].set(ylabel="peak memory, MB", xlabel=what, ylim=(100, 10_000))
        axes[0, column].legend()
    axes[0, 0].set_title(f"{_FEW_DIMENSIONS:,} coordinates")
    axes[0, 1].set_title(f"{_FEW_USERS:,} users")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    """Measure one row, or all of them."""
    if "--row" in sys.argv:
        print(json.dumps(asdict(measured(Row(**json.loads(sys.argv[sys.argv.index("--row") + 1]))))))
        return
    found = series(measure())
    show(found)
    draw(found, FIGURE)
    if "--json" in sys.argv:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
