"""Flower's SuperLink with two doors: nodes come in by the public one; who starts runs and runs them, by the local one.

Flower has all its interfaces on one port and, in this version, no accounts: whoever reached it could start a run, whose
code the SuperLink then ran. So its control and runtime interfaces are served on the loopback address only.
`tests/federation/test_flower_contract.py` says what of Flower's insides is relied on.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from apes.checks import whole
from apes.errors import DataError
from apes.shuffler.service.header_limit import MOST_HEADER
from apes.storage.json_logs import Rarely, log
from apes.storage.settings import read_settings

SUPERLINK = "superlink.json"
"""Name of a SuperLink's settings."""
LOCAL = "127.0.0.1"
_LOGS = "flwr", "uvicorn.error"
# Flower neither phones home nor installs anything, and looks for work every second.
FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "1",
}
"""Environment of everything of Flower's."""


@dataclass(frozen=True)
class SuperLinkSettings:
    """Where a SuperLink listens; its files lie beside the settings' own."""

    host: str
    port: int  # for nodes
    control_port: int  # on the loopback address, for who starts and runs the analyzer

    def __post_init__(self) -> None:
        whole("port", self.port, 1, 65535)
        whole("control_port", self.control_port, 1, 65535)

    @property
    def control(self) -> str:
        """Address of the local door."""
        return f"{LOCAL}:{self.control_port}"


def run_superlink(file: Path) -> None:
    """Run the SuperLink that a settings file describes, and register its nodes with it."""
    settings, folder = read_settings(file, SuperLinkSettings), file.parent.absolute()
    os.environ.update(FLOWER, FLWR_HOME=str(folder / "flwr"))
    # Flower reads its environment when it is imported.
    flower = import_module("flwr.superlink.cli.flower_superlink")
    vars(flower)["uvicorn"] = SimpleNamespace(run=_with_two_doors(settings))
    # In memory: twice as fast as on a disk, and what it knew is registered again.
    sys.argv = ["flower-superlink", "--host", LOCAL, "--port", str(settings.control_port), "--enable-supernode-auth"]
    # Certificate and key are one file, so that they are renewed together.
    sys.argv += ["--ssl-certfile", str(folder / "tls.pem"), "--ssl-keyfile", str(folder / "tls.pem")]
    sys.argv += ["--ssl-ca-certfile", str(folder / "authority.pem"), "--isolation", "subprocess"]
    sys.argv += ["--disable-runtime-dependency-installation"]
    threading.Thread(target=_register, args=(folder, settings), daemon=True).start()
    flower.flower_superlink()


def _with_two_doors(settings: SuperLinkSettings) -> Callable[..., None]:
    def run(app: ASGIApp, **choices: Any) -> None:
        # Imports Flower's insides, which read the environment.
        from apes.federation.public_door import NodesOnly

        doors = [_door(settings.host, settings.port), _door(LOCAL, settings.control_port)]
        # Strangers can cause as many lines as they like: requests are not logged, and errors rarely.
        # Of uvicorn's parsers h11 alone bounds what it keeps of a header that is not complete yet.
        own = {"access_log": False, "http": "h11", "h11_max_incomplete_event_size": MOST_HEADER, "ws": "none"}
        config = uvicorn.Config(NodesOnly(app, settings.port), **choices | own)
        for name in _LOGS:
            logging.getLogger(name).addFilter(Rarely())
        uvicorn.Server(config).run(sockets=doors)

    return run


def _door(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise DataError(f"{host}:{port} cannot be listened on: {error}") from None


def _register(folder: Path, settings: SuperLinkSettings) -> None:
    """Register the nodes; whatever goes wrong is one line, since the SuperLink goes on without."""
    from apes.federation.registration import register

    try:
        log("registered", nodes=register(folder, settings.control))
    except Exception as error:
        log("not-registered", error=f"{type(error).__name__}: {error}", again="apes federation register")
