"""A trial federation on one machine: starts the parties, submits the run, watches it, stops what it started."""

import contextlib
import json
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from apes.errors import ApesError
from apes.federation.trial.layout import HOST, Layout
from apes.federation.trial.processes import Processes, environment
from apes.federation.trial.scripts import FLOWER_ENVIRONMENT
from apes.storage.files import write_bytes
from apes.training.run import RoundMetrics

_SECONDS_TO_START = 60.0
# A SuperNode that died is not let in again before the SuperLink has missed two heartbeats of 30 seconds.
_SECONDS_TO_JOIN = 100.0
_CONNECTION = "trial"


class FederationError(ApesError):
    """A party of a federation does not start or does not go on; says which, and what its log says."""


class Trial:
    """The parties of a trial.

    Args:
        folder: What `apes.federation.trial.setup.set_up` made.
    """

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder)
        self.federation = self.layout.federation()
        self.processes = Processes(self.layout.processes, self.layout.logs)

    @property
    def summary(self) -> Path:
        """What the analyzer writes when it is done."""
        return self.layout.analyzer / "run" / "summary.json"

    @property
    def nodes(self) -> list[str]:
        """Names of the SuperNodes."""
        return [f"node-{number:04d}" for number in self._numbers]

    @property
    def vaults(self) -> list[str]:
        """Names of the vaults."""
        return [f"vault-{number:04d}" for number in self._numbers]

    @property
    def _numbers(self) -> range:
        return range(1, self.federation.vaults + 1)

    def start(self, names: list[str]) -> None:
        """Start parties side by side and wait until each is ready."""
        offsets = {name: self._log_size(name) for name in names}
        for name in names:
            self.processes.start(name, self._script(name))
        for name in names:
            self._await(name, offsets[name])

    def register_nodes(self) -> None:
        """Tell the SuperLink which SuperNodes may join; once is enough."""
        marker = self.layout.superlink / "registered"
        if marker.exists():
            return
        for key in sorted((self.layout.superlink / "nodes").glob("*.pub")):
            answer = self.flwr("supernode", "register", str(key), _CONNECTION, "--name", key.stem)
            # A key that an interrupted start registered before is as good.
            if not answer.get("success") and "already in use" not in json.dumps(answer):
                raise FederationError(f"the SuperLink does not register {key}: {answer}")
        write_bytes(marker, b"yes\n")

    def submit(self) -> str:
        """Start the analyzer and the couriers on Flower; return Flower's number of the run."""
        settings = json.dumps(str(self.layout.analyzer / "analyzer.json"))
        (self.layout.analyzer / "run" / "analyzer.pid").unlink(missing_ok=True)
        answer = self.flwr("run", str(self.layout.analyzer / "app"), _CONNECTION, "-c", f"settings={settings}")
        if not answer.get("success"):
            raise FederationError(f"Flower does not start the run: {answer}")
        return str(answer["run-id"])

    def metrics(self) -> list[RoundMetrics]:
        """The rounds that are over."""
        file = self.layout.analyzer / "run" / "metrics.jsonl"
        return [RoundMetrics(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def watch(self, run: str, show: Callable[[RoundMetrics], None]) -> None:
        """Wait until the run is over, showing every round.

        Raises:
            FederationError: If a party that the run cannot do without is gone.
        """
        seen, look_again = len(self.metrics()), time.monotonic() + 30
        while not self.summary.exists():
            for entry in self.metrics()[seen:]:
                show(entry)
                seen, look_again = seen + 1, time.monotonic() + 30
            for name in ("shuffler", "superlink"):
                if not self.processes.is_alive(name):
                    raise FederationError(f"{name} is gone; {self._tail(name)}")
            if time.monotonic() > look_again:
                self._check_run(run)
                look_again = time.monotonic() + 30
            time.sleep(0.2)
        for entry in self.metrics()[seen:]:
            show(entry)

    def down(self) -> list[str]:
        """Stop every party that runs; return their names."""
        # What a SuperLink started may have outlived it.
        authority = f"--root-certificates {self.layout.superlink / 'authority.pem'}"
        for name, program in (("analyzer", "flwr-serverapp"), ("superexec", "flower-superexec")):
            self.processes.adopt(name, program, authority)
        running = list(self.processes.all())
        # The analyzer goes first, lest it close a round with the few who are still there; SuperNodes sign off at the
        # SuperLink, so they go before it.
        for kind in ("analyzer", "node", "superlink", ""):
            self.processes.stop([name for name in self.processes.all() if name.startswith(kind)])
        return [name for name in running if not name.startswith("superexec")]

    def flwr(self, *arguments: str) -> dict[str, object]:
        """Run Flower's command line and return its answer."""
        home = self.layout.superlink / "cli"
        address, authority = f"{HOST}:{self.federation.superlink_port}", self.layout.superlink / "authority.pem"
        config = f'[superlink.{_CONNECTION}]\naddress = "{address}"\nroot-certificates = {json.dumps(str(authority))}\n'
        write_bytes(home / "config.toml", config.encode())
        done = subprocess.run(
            ["flwr", *arguments, "--format", "json"],
            env=environment(FLWR_HOME=str(home), **FLOWER_ENVIRONMENT),
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            raise FederationError(
                f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}"
            ) from None

    def _check_run(self, run: str) -> None:
        runs = self.flwr("list", _CONNECTION).get("runs")
        found = [entry for entry in runs if str(entry.get("run-id")) == run] if isinstance(runs, list) else []
        if found and str(found[0].get("status")).startswith("finished") and not self.summary.exists():
            raise FederationError(f"the analyzer stopped ({found[0].get('status-details')}); start again to go on")

    def _script(self, name: str) -> Path:
        kind, _, number = name.partition("-")
        if kind in ("shuffler", "superlink"):
            return self.layout.folder / kind / "start.sh"
        return self.layout.device(int(number)) / {"vault": "start-vault.sh", "node": "start-supernode.sh"}[kind]

    def _await(self, name: str, log_offset: int) -> None:
        kind, _, number = name.partition("-")
        checks: dict[str, Callable[[], bool]] = {
            "shuffler": lambda: self._is_healthy(self.federation.shuffler_port),
            "superlink": lambda: self._is_healthy(self.federation.superlink_port),
            "vault": lambda: _accepts(self.layout.device(int(number)) / "vault.sock"),
            "node": lambda: "SuperNode ID:" in self._log(name, log_offset),
        }
        end = time.monotonic() + (_SECONDS_TO_JOIN if kind == "node" else _SECONDS_TO_START)
        while not checks[kind]():
            if time.monotonic() > end:
                raise FederationError(f"{name} is not ready; {self._tail(name)}")
            if not self.processes.is_alive(name):
                if kind != "node" or "2004" not in self._log(name, log_offset):
                    raise FederationError(f"{name} stopped; {self._tail(name)}")
                time.sleep(5)
                log_offset = self._log_size(name)
                self.processes.start(name, self._script(name))
            time.sleep(0.1)

    def _is_healthy(self, port: int) -> bool:
        context = ssl.create_default_context(cafile=str(self.layout.analyzer / "authority.pem"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with contextlib.suppress(OSError), opener.open(f"https://{HOST}:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def _log_size(self, name: str) -> int:
        log = self.processes.log(name)
        return log.stat().st_size if log.exists() else 0

    def _log(self, name: str, offset: int = 0) -> str:
        with self.processes.log(name).open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def _tail(self, name: str) -> str:
        lines = [line for line in self._log(name).splitlines() if line.strip()][-5:]
        return f"its log, {self.processes.log(name)}, ends: {' | '.join(lines)}"


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        return True
    return False
