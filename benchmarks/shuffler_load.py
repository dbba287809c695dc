"""``python -m benchmarks.shuffler_load``: the shuffler as a process, under the load of a large round.

It takes 10,000 sealed reports of 7,850 coordinates over TLS, alone and two rounds at once; that is compared with
the bare cryptography (verify and open every report, count nothing) in one loop of this process. Then, in turns, a
shuffler with one worker and one with two take the same batches; with --ledger also one with that ledger.
Options: --json prints one JSON object on stdout; --users N; --ledger postgresql://USER@HOST/DATABASE, an empty one.
"""

import json
import re
import secrets
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.errors import ProtocolError
from apes.federation.keys import Authority, write_secret
from apes.federation.shuffler_client import ShufflerClient
from apes.federation.trial.layout import HOST, free_ports
from apes.federation.trial.processes import environment
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.server import ShufflerSettings
from apes.shuffler.service.witness import new_witness
from apes.storage.files import write_bytes
from apes.storage.settings import write_settings
from apes.wire.announcement import FIRST, Announcement
from apes.wire.envelope import envelope_size, parse, seal
from apes.wire.frames import FrameReader, framed
from apes.wire.packing import packed

_DIMENSIONS, _LEVELS = 7_850, 256
_RUNS = tuple(f"{number:032x}" for number in (1, 2, 3))
_TERMS = "ab" * 32
_ANALYZER = Ed25519PrivateKey.generate()


def main() -> None:
    """Measure and print."""
    users = int(sys.argv[sys.argv.index("--users") + 1]) if "--users" in sys.argv else 10_000
    ledger = sys.argv[sys.argv.index("--ledger") + 1] if "--ledger" in sys.argv else None
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), users, ledger)
    print(
        json.dumps(figures) if "--json" in sys.argv else "\n".join(f"{key}: {value}" for key, value in figures.items())
    )


def measure(folder: Path, users: int, ledger: str | None = None) -> dict[str, Any]:
    """Set a shuffler up, load it, and return the figures."""
    opener, keys = X25519PrivateKey.generate(), [Ed25519PrivateKey.generate() for _ in range(users)]
    batches = {run: _make_batch(folder / run, run, keys, opener) for run in _RUNS}
    bare = _bare_cryptography(batches[_RUNS[0]], keys, opener)
    service = _set_up(folder / "one", keys, opener)
    others = {"one_worker": _set_up(folder / "alone", keys, opener)}
    others["two_workers"] = _set_up(folder / "two", keys, opener, workers=2)
    if ledger is not None:
        others["other_ledger"] = _set_up(folder / "other", keys, opener, ledger=ledger)
    process = service.start()
    try:
        client = service.client()
        client.release(_RUNS[0], 1)
        idle = _peak_mb(process.pid)
        one = _seconds(lambda: _close(client, _RUNS[0], batches[_RUNS[0]], users))
        after_one = _peak_mb(process.pid)
        with ThreadPoolExecutor(2) as pool:
            both = _seconds(lambda: list(pool.map(lambda run: _close(client, run, batches[run], users), _RUNS[1:])))
        peak = _peak_mb(process.pid)
        again = _seconds(lambda: _close(client, _RUNS[0], batches[_RUNS[0]], users))
    finally:
        process.terminate()
        process.wait()
    return {
        "users": users,
        "dimensions": _DIMENSIONS,
        "batch_mb": round(batches[_RUNS[0]].stat().st_size / 1e6, 1),
        "seconds_one_round": round(one, 2),
        "seconds_bare_cryptography": round(bare, 2),
        "ratio": round(one / bare, 2),
        "seconds_two_rounds_at_once": round(both, 2),
        "seconds_asked_again": round(again, 2),
        "peak_mb_idle": round(idle),
        "peak_mb_one_round": round(after_one),
        "peak_mb_two_rounds": round(peak),
        **_in_turns(others, batches, users),
    }


def _announcement(run: str) -> Announcement:
    return Announcement(bytes.fromhex(run), 1, bytes.fromhex(_TERMS), bytes(32), FIRST)


def _in_turns(services: "dict[str, _Service]", batches: dict[str, Path], users: int) -> dict[str, Any]:
    """Seconds of a round at each of some services, all on the same batches and one after the other: medians."""
    processes = {name: service.start() for name, service in services.items()}
    try:
        clients = {name: service.client() for name, service in services.items()}
        for client in clients.values():
            client.release(_RUNS[0], 1)
        wall: dict[str, list[float]] = {name: [] for name in clients}
        busy: dict[str, list[float]] = {name: [] for name in clients}
        for run, batch in batches.items():
            for name, client in clients.items():
                before = _processor_seconds(processes[name].pid)
                wall[name].append(_seconds(partial(_close, client, run, batch, users)))
                after = _processor_seconds(processes[name].pid)
                busy[name].append(max(after[pid] - before.get(pid, 0.0) for pid in after))
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    figures = {}
    for name in clients:
        figures[f"seconds_{name}"] = round(float(np.median(wall[name])), 2)
        # What a round takes at least where every process has a core of its own; says more on a busy machine.
        figures[f"processor_seconds_of_the_busiest_{name}"] = round(float(np.median(busy[name])), 2)
    first, *others = clients
    for name in others:
        figures[f"{name}_to_{first}"] = round(float(np.median(wall[name]) / np.median(wall[first])), 2)
    return figures


def _processor_seconds(pid: int) -> dict[int, float]:
    """Of a process and of all that it started."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return {each.pid: sum(each.cpu_times()[:2]) for each in family}


def _make_batch(path: Path, run: str, keys: list[Ed25519PrivateKey], opener: X25519PrivateKey) -> Path:
    binding, rng = _announcement(run).binding, np.random.default_rng(1)
    with path.open("wb") as file:
        for key in keys:
            levels = rng.integers(0, _LEVELS, _DIMENSIONS, dtype=np.uint8)
            file.writelines(framed([seal(packed(levels, _LEVELS), 0.5, binding, key, opener.public_key())]))
    return path


def _bare_cryptography(batch: Path, keys: list[Ed25519PrivateKey], opener: X25519PrivateKey) -> float:
    frames = list(FrameReader(envelope_size(_DIMENSIONS, _LEVELS)).feed(batch.read_bytes()))
    public = [key.public_key() for key in keys]

    def work() -> None:
        for key, frame in zip(public, frames, strict=True):
            envelope = parse(frame, _DIMENSIONS, _LEVELS)
            if not envelope.is_signed(key):
                raise ProtocolError("a report of ours is not signed")
            envelope.open(opener)

    return _seconds(work)


@dataclass(frozen=True)
class _Service:
    """A shuffler's folder, its port and what it wants to see."""

    folder: Path
    port: int
    token: str

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["apes", "shuffler", str(self.folder / "shuffler.json")], env=environment())

    def client(self) -> ShufflerClient:
        return ShufflerClient(f"https://{HOST}:{self.port}", self.token, self.folder / "authority.pem")


def _set_up(folder: Path, keys: list[Ed25519PrivateKey], opener: X25519PrivateKey, **choices: Any) -> _Service:
    authority, service = Authority(), _Service(folder, free_ports(1)[0], secrets.token_urlsafe(32))
    certificate, private = authority.issue(HOST)
    write_bytes(folder / "authority.pem", authority.certificate())
    write_bytes(folder / "tls.pem", certificate)
    write_secret(folder / "tls.key", private)
    write_secret(folder / "shuffler.key", opener.private_bytes_raw())
    write_secret(folder / "receipts.key", Ed25519PrivateKey.generate().private_bytes_raw())
    write_secret(folder / "token", service.token.encode())
    senders = tuple(key.public_key().public_bytes_raw().hex() for key in keys)
    policy = Policy(
        smallest_budget=0.05,
        largest_budget=1.0,
        smallest_cohort=len(keys),
        colluding=0,
        terms=_TERMS,
        runs=_RUNS,
        rounds=1,
        dimensions=_DIMENSIONS,
        levels=_LEVELS,
        charged=_DIMENSIONS,
        delta=1e-6,
        analyzer=_ANALYZER.public_key().public_bytes_raw().hex(),
        senders=senders,
        budgets=(0.5,) * len(senders),
    )
    write_settings(folder / "policy.json", policy, 0o600)
    write_settings(folder / "shuffler.json", ShufflerSettings(HOST, service.port, **choices))
    new_witness(folder / "witness.json")
    return service


def _close(client: ShufflerClient, run: str, batch: Path, users: int) -> None:
    client.announce(run, 1, _announcement(run).signed(_ANALYZER))
    receipt = client.close_round(run, 1, batch).receipt
    if receipt.users != users or receipt.refused:
        raise ProtocolError(f"the shuffler counted {receipt.users} of {users}: {receipt.refused}")


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")


if __name__ == "__main__":
    main()
