"""Where everything of a trial federation lies, and on which ports."""

import contextlib
import itertools
import random
import socket
from dataclasses import dataclass
from pathlib import Path

from apes.storage.settings import read_settings

HOST = "127.0.0.1"
# Below those that systems give to outgoing connections, which might take one before its owner is started.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Federation:
    """What ``federation.json`` holds."""

    run: str  # in hexadecimal
    vaults: int  # one per device or silo
    users: int  # that they hold in all
    rounds: int
    shuffler_port: int
    superlink_port: int
    allow_no_protection: bool = False  # whether terms that protect nobody were asked for by name


class Layout:
    """Paths of a trial; every party has a folder of its own, with nothing in it that it may not see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.settings = self.folder / "federation.json"
        self.shuffler = self.folder / "shuffler"
        self.analyzer = self.folder / "analyzer"
        self.superlink = self.folder / "superlink"
        self.invitation = self.folder / "invitation"
        self.logs = self.folder / "logs"
        self.processes = self.folder / "processes.json"

    def device(self, number: int) -> Path:
        """Folder of a device or silo, numbered from 1."""
        return self.folder / "devices" / f"{number:04d}"

    def vault(self, number: int) -> Path:
        """Folder of the vault of a device or silo."""
        return self.device(number) / "vault"

    def federation(self) -> Federation:
        """Read what the trial consists of."""
        return read_settings(self.settings, Federation)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody uses now, chosen at random so that others choose others."""
    shuffled = random.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(itertools.islice(filter(_is_free, shuffled), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((HOST, port))
        return True
    return False
