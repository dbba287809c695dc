"""``python -m benchmarks.startup``: how long the package and its command line take before they do anything.

Processor seconds of whole processes, user and system, which others on the machine stretch less than time on the wall;
both are printed. Turn about with an interpreter that does nothing, which the ratios are of. Options: --runs N.
"""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

NOTHING = "python -c pass"
COMMANDS: dict[str, tuple[str, ...]] = {
    NOTHING: ("-c", "pass"),
    "import apes": ("-c", "import apes"),
    "apes --version": ("-m", "apes", "--version"),
    "apes --help": ("-m", "apes", "--help"),
    "apes trian": ("-m", "apes", "trian"),
    "apes vault --help": ("-m", "apes", "vault", "--help"),
    "apes account --help": ("-m", "apes", "account", "--help"),
    "apes train --help": ("-m", "apes", "train", "--help"),
}


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 7
    # One run before those that count: bytecode is written, files come into the cache.
    for arguments in COMMANDS.values():
        _seconds(arguments)
    # Turn about, so that a busy minute falls on all of them.
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            found[name].append(_seconds(arguments))
    nothing = statistics.median(processor for processor, _ in found[NOTHING])
    print(f"{'median of ' + str(runs):20}  processor s  (least to most)   wall s   times {NOTHING}")
    for name, times in found.items():
        processor, wall = ([entry[place] for entry in times] for place in (0, 1))
        middle = statistics.median(processor)
        spread = f"({min(processor):.3f} to {max(processor):.3f})"
        print(f"{name:20}  {middle:11.3f}  {spread:16}  {statistics.median(wall):6.2f}  {middle / nothing:6.1f}")


def _seconds(arguments: Sequence[str]) -> tuple[float, float]:
    """Processor seconds and wall seconds of one process; whatever it says, and whether it is content, is ignored."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    main()
