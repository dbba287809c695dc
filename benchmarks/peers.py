"""Beside the others: ``python -m benchmarks.peers``, a round of the same users in each, and the same composition.

Logistic regression on the embedded digits, d = 7,850, six images per user. Every program runs alone, in an environment
of its own that is made under --folder with pinned versions; what cannot be installed is a row that says why. Rounds of
more and more users are run within --seconds per program; where that does not reach all users, the figure is seconds per
user times users, and marked. Memory is that of all processes of a program, what they share counted once.

Options: --users N (10,000), --seconds S (120), --folder DIR (~/.cache/apes/peers), --only WORD, --json.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

import apes
from benchmarks.peer_environment import DP_ACCOUNTING, FLOWER, PFL, TORCH, Environment, NotInstalledError, python_of
from benchmarks.peer_programs.stages import DELTA, PER_USER, Stage
from benchmarks.peer_run import ROOT, Finished, environment_of, estimate, run

_DIMENSIONS, _ROUNDS = 7850, 40
# For loading, compiling, and the first small round, which do not count.
_STARTING_SECONDS = 120
console = Console(stderr=True, width=150)


class Peer(NamedTuple):
    """A row: a program, where it runs, and what is proved by what runs there."""

    name: str
    proves: str
    program: str
    environment: Environment | None = None
    variant: str = ""
    launcher: tuple[str, ...] = ()


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={os.cpu_count()}")
_CERTIFIED = "central (epsilon, delta) of every user, whatever their budget, over all rounds, certified"
PEERS = (
    Peer("apes, 256 levels", _CERTIFIED, "apes_round", variant="256"),
    Peer("apes, one bit", _CERTIFIED, "apes_round", variant="2"),
    Peer("plain NumPy, the same algorithm", "nothing by itself", "plain_numpy"),
    Peer("plain torch loop, Gaussian noise", "nothing by itself", "torch_loop", TORCH),
    Peer(
        "pfl 0.6.0, local Gaussian",
        "local (epsilon, delta) of one round, of a report against none; two reports lie twice as far apart",
        *("pfl_research", PFL, "local", _TORCHRUN),
    ),
    Peer(
        "pfl 0.6.0, its central approximation",
        "nothing in this run, whose reports are exact: noise comes on the sum",
        *("pfl_research", PFL, "central", _TORCHRUN),
    ),
    Peer(
        "Flower 1.41.0 on Ray, LocalDpMod",
        "local (epsilon, delta) of one round, if epsilon < 1 and the sensitivity given is right: unchecked",
        *("flower", FLOWER),
    ),
)


def measure(peer: Peer, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a peer's program; its row."""
    row: dict[str, Any] = {"name": peer.name, "proves": peer.proves}
    task = ("--data", str(data), "--users", str(options.users), "--seconds", str(options.seconds))
    words = (*peer.launcher, "-m", f"benchmarks.peer_programs.{peer.program}", *task, "--variant", peer.variant)
    try:
        done = call(peer.environment, words, options.folder, options.seconds + _STARTING_SECONDS)
    except NotInstalledError as error:
        return row | {"why_not": str(error)}
    stages = [Stage(**stage) for stage in done.printed]
    if not stages:
        return row | {"why_not": done.error or "it printed nothing"}
    found = estimate(stages, options.users)
    row |= {"seconds": found.seconds, "measured_users": found.measured_users, "peak_memory_mb": done.peak_mb}
    return row | {"stages": done.printed, "error": done.error}


def call(environment: Environment | None, words: tuple[str, ...], folder: Path, limit: float) -> Finished:
    """Run a program in an environment, or in ours."""
    python = sys.executable if environment is None else python_of(environment, folder)
    paths = [ROOT, ROOT / "src"] if environment is None else [ROOT]
    # Short: Ray puts sockets there, whose names may not be long.
    with tempfile.TemporaryDirectory(prefix="peer") as scratch:
        return run([python, *words], environment_of(paths, scratch), limit)


def accounts(options: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """Seconds and epsilon of the whole training: certified from the budgets, and one curve composed by both."""
    file, uses = str(scratch / "curve.npz"), str(_DIMENSIONS * _ROUNDS)
    sizes = (str(options.users), str(_DIMENSIONS), str(_ROUNDS), str(DELTA), file)
    ours = account("apes", None, ("apes_account", *sizes), options)
    return ours + account("dp_accounting 0.6.0", DP_ACCOUNTING, ("dp_account", file, uses, str(DELTA)), options)


def account(
    name: str, environment: Environment | None, words: tuple[str, ...], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of an accountant."""
    program = ("-m", f"benchmarks.peer_programs.{words[0]}", *words[1:])
    try:
        done = call(environment, program, options.folder, options.seconds + _STARTING_SECONDS)
    except NotInstalledError as error:
        return [{"name": name, "why_not": str(error)}]
    if not done.printed:
        return [{"name": name, "why_not": done.error or "it printed nothing"}]
    return [{"name": f"{name}, {what}", **figures} for what, figures in done.printed[0].items()]


def cells(row: dict[str, Any], users: int, own: float | None) -> tuple[str, ...]:
    """A row's figures as words: seconds, times ours, MB, what is proved."""
    if "seconds" not in row:
        return "-", "-", "-", row["why_not"]
    mark = "" if row["measured_users"] == users else f" (from {row['measured_users']:,} users)"
    times = "-" if own is None else short(row["seconds"] / own)
    return f"{short(row['seconds'])}{mark}", times, f"{row['peak_memory_mb']:.0f}", row["proves"]


def short(figure: float) -> str:
    """About three digits, never with an exponent."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def show(result: dict[str, Any]) -> None:
    """Print the figures for people."""
    users = result["users"]
    title = f"A round of {users:,} users, d = {_DIMENSIONS:,}, {result['cores']} cores"
    table = Table("", "seconds", "times ours", "peak MB", "what is proved", title=title)
    own = next((row.get("seconds") for row in result["rounds"] if row["name"] == PEERS[0].name), None)
    for row in result["rounds"]:
        table.add_row(row["name"], *cells(row, users, own))
    console.print(table)
    table = Table("", "seconds", "epsilon", title=f"{_ROUNDS} rounds, all coordinates, delta {DELTA:g}")
    for row in result["accounts"]:
        figures = (f"{row['seconds']:.2f}", f"{row['epsilon']:.4f}") if "seconds" in row else ("-", row["why_not"])
        table.add_row(row["name"], *figures)
    console.print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=120, help="limit per program")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "apes" / "peers")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    load = psutil.getloadavg()[0]
    result: dict[str, Any] = {"users": options.users, "cores": os.cpu_count(), "load": load, "rounds": []}
    with tempfile.TemporaryDirectory() as scratch:
        write_rows(Path(scratch), options.users)
        for peer in PEERS:
            if options.only in peer.name:
                console.print(f"{peer.name} ...")
                result["rounds"].append(measure(peer, Path(scratch), options))
        console.print("accountants ...")
        result["accounts"] = accounts(options, Path(scratch))
    show(result)
    if options.json:
        print(json.dumps(result))


def write_rows(folder: Path, users: int) -> None:
    """Everybody's rows as files that programs map; images come again where there are too few."""
    dataset = apes.load("digits")
    rows = np.arange(users * PER_USER) % len(dataset.train_labels)
    np.save(folder / "images.npy", dataset.train_images[rows])
    np.save(folder / "labels.npy", dataset.train_labels[rows].astype(np.int64))


if __name__ == "__main__":
    main()
