"""Where everything of a trial federation lies, and on which ports."""

import socket
from dataclasses import dataclass
from pathlib import Path

from apes.storage.settings import read_settings

HOST = "127.0.0.1"
_SETTINGS = "federation.json"


@dataclass(frozen=True)
class Federation:
    """What ``federation.json`` holds.

    Attributes:
        run: The run, in hexadecimal.
        vaults: How many vaults there are, one a device or silo.
        users: How many users they hold in all.
        rounds: Rounds of training.
        shuffler_port: Port of the shuffler.
        superlink_port: Port of the SuperLink.
        node_ports: Port of each SuperNode.
    """

    run: str
    vaults: int
    users: int
    rounds: int
    shuffler_port: int
    superlink_port: int
    node_ports: tuple[int, ...]


class Layout:
    """Paths of a trial; every party has a folder of its own, with nothing in it that it may not see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.settings = self.folder / _SETTINGS
        self.shuffler = self.folder / "shuffler"
        self.analyzer = self.folder / "analyzer"
        self.superlink = self.folder / "superlink"
        self.invitation = self.folder / "invitation"
        self.logs = self.folder / "logs"
        self.processes = self.folder / "processes.json"

    def device(self, number: int) -> Path:
        """Folder of a device or silo, numbered from 1."""
        return self.folder / "devices" / f"{number:04d}"

    def federation(self) -> Federation:
        """Read what the trial consists of."""
        return read_settings(self.settings, Federation)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
