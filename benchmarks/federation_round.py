"""``python -m benchmarks.federation_round``: how long a round of a federation takes here, and what of it is Flower's.

Every party is a process here. A processor's seconds are counted too: those do not grow when others use the machine.
Options: --devices N (5), --rounds R (6), --json prints one JSON object on stdout.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from apes.data import load
from apes.federation.subject import Subject
from apes.federation.trial.setup import set_up
from apes.federation.trial.trial import Trial
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.run import RoundMetrics

_KINDS = ("superlink", "analyzer", "shuffler", "vault", "courier")


def main() -> None:
    """Measure and print."""
    devices, rounds = _option("--devices", 5), _option("--rounds", 6)
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name) / "t", devices, rounds)
    lines = (f"{key}: {value}" for key, value in figures.items())
    print(json.dumps(figures) if "--json" in sys.argv else "\n".join(lines))


def measure(folder: Path, devices: int, rounds: int) -> dict[str, Any]:
    """Run a trial; figures are medians or sums over the rounds after the first, seconds per round."""
    plan, people = (
        Plan(rounds=rounds, clip=0.1, seed=1),
        Simulation(users=devices, budgets="uniform2", features="pixels"),
    )
    dataset = load("digits")
    set_up(folder, plan, Subject.of_images(people, dataset), people.people(dataset), devices)
    trial, used, ended = Trial(folder), list[dict[str, float]](), list[float]()

    def show(entry: RoundMetrics) -> None:
        used.append(_processor(trial))
        ended.append(time.perf_counter())

    with trial.alone():
        trial.start(["shuffler", "superlink", *trial.vaults[:1]])
        trial.start(trial.vaults[1:])
        trial.register_nodes()
        trial.start(trial.nodes)
        began = time.perf_counter()
        trial.watch(trial.submit(), show)
    times = [json.loads(line) for line in (folder / "analyzer" / "run" / "times.jsonl").read_text().splitlines()]
    whole = [entry["collect"] + entry["shuffle_and_step"] for entry in times]
    flowers = [entry["collect"] - slowest for entry, slowest in zip(times, _slowest_vaults(trial, rounds), strict=True)]
    spent = {kind: (used[-1][kind] - used[0][kind]) / (rounds - 1) for kind in _KINDS}
    return {
        "devices": devices,
        "first round, with the start of the analyzer": round(ended[0] - began, 2),
        "first round": round(whole[0], 2),
        "a round": round(statistics.median(whole[1:]), 2),
        "of it Flower's": round(statistics.median(flowers[1:]), 2),
        "share of Flower's": round(statistics.median(flowers[1:]) / statistics.median(whole[1:]), 2),
        "processor, of a round": {kind: round(seconds, 2) for kind, seconds in spent.items()},
        "load of the machine": round(psutil.getloadavg()[0], 1),
    }


def _slowest_vaults(trial: Trial, rounds: int) -> list[float]:
    """How long the slowest vault took in each round, by the couriers' own logs."""
    slowest = [0.0] * rounds
    for name in trial.nodes:
        events = [json.loads(line) for line in trial.processes.log(name).read_text().splitlines()]
        taken = [event["seconds"] for event in events if event["event"] == "carried"]
        slowest = [max(pair) for pair in zip(slowest, taken, strict=True)]
    return slowest


def _processor(trial: Trial) -> dict[str, float]:
    """Seconds of a processor that each kind of party has used, with what it started."""
    spent = dict.fromkeys(_KINDS, 0.0)
    for name, process in trial.processes.all().items():
        for member in (process, *process.children(recursive=True)):
            is_analyzer = "flwr-serverapp" in " ".join(member.cmdline())
            of = member.cpu_times()
            spent["analyzer" if is_analyzer else name.partition("-")[0]] += of.user + of.system
    return spent


def _option(name: str, default: int) -> int:
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


if __name__ == "__main__":
    main()
