"""A trial federation on one machine: starts the parties, submits the run, watches it, stops what it started."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import httpx
import psutil

from apes.errors import ApesError
from apes.federation.invitation import TERMS
from apes.federation.registration import register
from apes.federation.superlink import SUPERLINK, SuperLinkSettings
from apes.federation.terms import FederationTerms
from apes.federation.trial.comparison import COMPARISON, Simulated
from apes.federation.trial.layout import HOST, Layout
from apes.federation.trial.processes import Processes, environment, is_running
from apes.federation.trial.scripts import FLWR
from apes.storage.locks import lock
from apes.storage.settings import read_settings
from apes.training.run import RoundMetrics
from apes.training.run_files import METRICS, SUMMARY, place_of

# A silo of many budgets takes a dozen certificates, and ten may start at once.
_SECONDS_TO_START = 180.0
# What a courier logs once the SuperLink has let it in.
_SIGNED_ON = '"event": "courier"'
# Asking Flower costs a second of a processor: only while the analyzer is not there yet, or not any more. Why it ended,
# Flower knows at once or, if it was killed, after a minute.
_SECONDS_BETWEEN_LOOKS = 10.0
_SECONDS_TO_TELL_WHY = 5.0


class FederationError(ApesError):
    """A party of a federation does not start or does not go on; says which, and what its log says."""


class Trial:
    """The parties of a trial in a folder that `apes.federation.trial.setup.set_up` made, by their names."""

    def __init__(self, folder: Path, *, allow_no_protection: bool = False) -> None:
        self.layout = Layout(folder)
        self.federation = self.layout.federation()
        self._allow_no_protection = allow_no_protection or self.federation.allow_no_protection
        self.processes = Processes(self.layout.processes, self.layout.logs)
        numbers = range(1, self.federation.vaults + 1)
        self.vaults = [f"vault-{number:04d}" for number in numbers]
        self.nodes = [f"courier-{number:04d}" for number in numbers]
        self._run = self.layout.analyzer / "run"
        self.summary = place_of(self._run, SUMMARY)
        self._analyzer_pid = self._run / "analyzer.pid"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one who runs this trial; stop what an earlier one left first, and at the end whatever runs.

        A signal to terminate ends the block too.
        """
        held = lock(self.layout.settings)
        before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            self.down()
            yield
        finally:
            # Whoever asks again while we are stopping is as good as heard.
            for number in before:
                signal.signal(number, signal.SIG_IGN)
            self.down()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(held)

    def start(self, names: list[str]) -> None:
        """Start parties side by side and wait until each is ready; none of a federation that protects nobody.

        Unless that was asked for by name, when it was set up or now.
        """
        if not self._allow_no_protection:
            FederationTerms.read(self.layout.invitation / TERMS).check_protects(allowed=False)
        offsets = {name: len(self._log(name)) for name in names}
        for name in names:
            self.processes.start(name, self._script(name))
        for name in names:
            self._await(name, offsets[name])

    def register_nodes(self) -> None:
        """See to it that the SuperLink knows which nodes may join."""
        settings = read_settings(self.layout.superlink / SUPERLINK, SuperLinkSettings)
        register(self.layout.superlink, settings.control)

    def submit(self) -> str:
        """Start the analyzer on Flower; return Flower's number of the run."""
        settings = json.dumps(str(self.layout.analyzer / "analyzer.json"))
        self._analyzer_pid.unlink(missing_ok=True)
        answer = self.flwr("run", str(self.layout.analyzer / "app"), "here", "-c", f"settings={settings}")
        if not answer.get("success"):
            raise FederationError(f"Flower does not start the run: {answer}")
        return str(answer["run-id"])

    def simulated(self) -> Simulated | None:
        """How the same people did in one process; None if that was not tried."""
        file = self.layout.folder / COMPARISON
        return read_settings(file, Simulated) if file.exists() else None

    def metrics(self) -> list[RoundMetrics]:
        """The rounds that are over."""
        file = place_of(self._run, METRICS)
        return [RoundMetrics(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def watch(self, run: str, show: Callable[[RoundMetrics], None]) -> None:
        """Wait until the run is over, showing every round; raise if a party that it cannot do without is gone."""
        seen, looked = len(self.metrics()), time.monotonic()
        while True:
            is_over = self.summary.exists()
            for entry in self.metrics()[seen:]:
                show(entry)
                seen += 1
            if is_over:
                return
            self._check_parties()
            if not self._analyzer_pid.exists() and time.monotonic() > looked + _SECONDS_BETWEEN_LOOKS:
                self._check_run(run)
                looked = time.monotonic()
            if not self._analyzer_runs():
                self._explain_end(run)
            time.sleep(0.2)

    def down(self) -> list[str]:
        """Stop every party that runs; return their names."""
        # What a SuperLink started may have outlived it.
        authority = f"--root-certificates {self.layout.superlink / 'authority.pem'}"
        for name, program in (("analyzer", "flwr-serverapp"), ("superexec", "flower-superexec")):
            self.processes.adopt(name, program, authority)
        running = list(self.processes.all())
        # The analyzer goes first, lest it close a round with the few who are still there; couriers sign off at the
        # SuperLink, so they go before it.
        for kind in ("analyzer", "courier", "superlink", ""):
            self.processes.stop([name for name in self.processes.all() if name.startswith(kind)])
        return [name for name in running if not name.startswith("superexec")]

    def flwr(self, *arguments: str) -> dict[str, object]:
        """Run Flower's command line and return its answer; the SuperLink is called ``here``."""
        command = [str(self.layout.superlink / FLWR), *arguments, "--format", "json"]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise FederationError(f"flwr {arguments[0]} failed: {said}") from None

    def _check_parties(self) -> None:
        """Raise unless everybody is there without whom no round comes to its end."""
        living = self.processes.all().keys()
        for name in {"shuffler", "superlink"} - living:
            raise FederationError(f"{name} is gone; {self._tail(name)}")
        for kind, names in (("vaults", self.vaults), ("couriers", self.nodes)):
            if living.isdisjoint(names):
                raise FederationError(f"all {kind} are gone; {self._tail(names[0])}")

    def _analyzer_runs(self) -> bool:
        """Whether the analyzer is there, or may still be on its way."""
        try:
            file = self._analyzer_pid
            return not file.exists() or is_running(psutil.Process(int(file.read_text())))
        except psutil.NoSuchProcess:
            return False

    def _explain_end(self, run: str) -> None:
        """Raise with what Flower knows about the end of the analyzer, unless it came to the end of its work."""
        end = time.monotonic() + _SECONDS_TO_TELL_WHY
        while not self.summary.exists():
            self._check_run(run)
            if time.monotonic() > end:
                raise FederationError(f"the analyzer is gone; start again to go on; {self._tail('superlink')}")

    def _check_run(self, run: str) -> None:
        runs = self.flwr("list", "here").get("runs")
        found = [entry for entry in runs if str(entry.get("run-id")) == run] if isinstance(runs, list) else []
        if found and str(found[0].get("status")).startswith("finished") and not self.summary.exists():
            raise FederationError(f"the analyzer stopped ({found[0].get('status-details')}); start again to go on")

    def _script(self, name: str) -> Path:
        kind, _, number = name.partition("-")
        if kind in ("shuffler", "superlink"):
            return self.layout.folder / kind / "start.sh"
        return self.layout.device(int(number)) / f"start-{kind}.sh"

    def _await(self, name: str, log_offset: int) -> None:
        kind, _, number = name.partition("-")
        checks: dict[str, Callable[[], bool]] = {
            "shuffler": lambda: self._is_healthy(self.federation.shuffler_port),
            "superlink": lambda: self._is_healthy(self.federation.superlink_port),
            "vault": lambda: _accepts(self.layout.device(int(number)) / "socket" / "vault.sock"),
            "courier": lambda: _SIGNED_ON in self._log(name)[log_offset:],
        }
        end = time.monotonic() + _SECONDS_TO_START
        while not checks[kind]():
            if time.monotonic() > end:
                raise FederationError(f"{name} is not ready; {self._tail(name)}")
            if name not in self.processes.all():
                raise FederationError(f"{name} stopped; {self._tail(name)}")
            time.sleep(0.1)

    def _is_healthy(self, port: int) -> bool:
        context = ssl.create_default_context(cafile=str(self.layout.analyzer / "authority.pem"))
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"https://{HOST}:{port}/health", verify=context, trust_env=False)
            return answer.status_code == httpx.codes.OK
        return False

    def _log(self, name: str) -> str:
        log = self.processes.log(name)
        return log.read_text(errors="replace") if log.exists() else ""

    def _tail(self, name: str) -> str:
        lines = [line for line in self._log(name).splitlines() if line.strip()][-5:]
        return f"its log, {self.processes.log(name)}, ends: {' | '.join(lines)}"


def _end(number: int, frame: FrameType | None) -> None:
    """End by way of the blocks that clean up."""
    sys.exit(128 + number)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        return True
    return False
