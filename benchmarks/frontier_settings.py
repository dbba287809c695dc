"""``python -m benchmarks.frontier_settings --data mnist --data-dir DIR``: settings for both sides of the frontier.

Searches for the rounds, norm, step, momentum and last step of one-bit reports (and their cap on budgets) and of the
trusted server, at every target, with as many runs for either. Those of the training part who are held out judge; the
files of the test part are not read. `apes reproduce frontier` trains by what is found.

Every run is appended to a file beside the settings and not run again, so that the search can be gone on with. --sides
and --features search for some of it; the rest of the file stays. --out names another file, --quick makes it small (for
a look, not for the package).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from apes.data import load
from apes.paper.frontier.search import Choices, HeldOut, OneBitSide, Side, TrustedSide, search
from apes.paper.frontier.tuned import path_of
from apes.paper.frontier.ways import DELTA, GRADIENTS, LAW, ONE_BIT, ONE_BIT_PIXELS, PIXELS, TRUSTED, TRUSTED_PIXELS
from apes.storage.files import write_bytes
from apes.storage.version import __version__
from apes.terms.simulation import Simulation
from apes.training.knob_search import Setting

USERS, QUICK_USERS = 10_000, 300
# Splits, budgets and noise of the frontier's own runs have the seeds 1, 2, 3.
SEED = 101
TARGETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Trainings at each target, of either side; where there are none, what was found at the target before is taken over, in
# proportion. Pixels take most time, and begin with what was found on features.
RUNS = {GRADIENTS: (16, 0, 16, 0, 16, 0), PIXELS: (0, 0, 12, 0, 0, 0)}
QUICK_RUNS = (0, 8, 0, 0, 0, 0)
SIDES: dict[str, Callable[[HeldOut, float, float, int | None], Side]] = {"trusted": TrustedSide, "one-bit": OneBitSide}
WAYS = {
    ("trusted", GRADIENTS): TRUSTED,
    ("one-bit", GRADIENTS): ONE_BIT,
    ("trusted", PIXELS): TRUSTED_PIXELS,
    ("one-bit", PIXELS): ONE_BIT_PIXELS,
}
console = Console(stderr=True)


class Record:
    """Results of runs, in a file of one line per run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known = {line["run"]: line["accuracy"] for line in map(json.loads, lines)}

    def answer(self, name: str, run: Callable[[], float]) -> float:
        """The accuracy of a run of this name, from the file or by running it."""
        if name not in self._known:
            began = time.perf_counter()
            self._known[name] = run()
            seconds = time.perf_counter() - began
            line = {"run": name, "accuracy": self._known[name], "seconds": round(seconds, 2)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            console.print(f"{name}: {self._known[name]:.4f} ({seconds:.1f} s)", highlight=False)
        return float(self._known[name])


def searched(
    held: HeldOut, side: str, runs: tuple[int, ...], record: Record, first: list[Setting], threads: int | None
) -> list[dict[str, Any]]:
    """What is found for a side at targets, from the smallest."""

    def ran(place: int, choices: Choices, seed: int, run: Callable[[], float]) -> float:
        name = json.dumps([held.data, held.features, side, TARGETS[place], choices, seed])
        return record.answer(name, run)

    found = search(
        [SIDES[side](held, target, DELTA, threads) for target in TARGETS], runs=runs, seed=SEED, first=first, ran=ran
    )
    return [{"target": target, **asdict(point)} for target, point in zip(TARGETS, found, strict=True)]


def _found_on_features(ways: dict[str, Any], side: str, runs: tuple[int, ...]) -> list[Setting]:
    """What features came to at the first target that pixels are searched for at, if they were before."""
    if WAYS[side, GRADIENTS] not in ways:
        return []
    place = next(place for place, count in enumerate(runs) if count)
    return [tuple(ways[WAYS[side, GRADIENTS]]["points"][place]["setting"])]


def main() -> None:
    """Search, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--features", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    out = path_of(arguments.data) if arguments.out is None else arguments.out
    dataset = load(arguments.data, data_dir=arguments.data_dir, only_training=True)
    record = Record(out.with_suffix(".runs.jsonl"))
    users = QUICK_USERS if arguments.quick else USERS
    written = {
        "made_by": f"python -m benchmarks.frontier_settings --data {arguments.data} --data-dir DIR",
        "version": __version__,
        "data": arguments.data,
        "users": users,
        "budgets": LAW,
        "delta": DELTA,
        "seed": SEED,
        "ways": json.loads(out.read_text(encoding="utf-8"))["ways"] if out.exists() else {},
    }
    for features in arguments.features:
        held = HeldOut.of(dataset, Simulation(data=arguments.data, features=features, users=users, seed=SEED))
        runs = QUICK_RUNS if arguments.quick else RUNS[features]
        for side in arguments.sides:
            first = _found_on_features(written["ways"], side, runs) if features == PIXELS else []
            points = searched(held, side, runs, record, first, arguments.threads)
            written["ways"][WAYS[side, features]] = {"points": points}
            write_bytes(out, (json.dumps(written, indent=1) + "\n").encode())
            for point in points:
                console.print(f"{side} {features} {point}", highlight=False)


if __name__ == "__main__":
    main()
