"""Accounts apart: what a vault guards belongs to an account that the courier's can neither read nor replace.

The second wall, by the operating system: whatever takes over the courier is still another account's. Checked are owners
and permissions; a file with an access list has its group's bits set, so that it is refused too.
"""

import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from apes.errors import DataError, ParameterError

_CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True)
class Account:
    """An account of the operating system; its name, or its number where it has none."""

    name: str
    user: int
    group: int
    groups: frozenset[int]  # all that it is in

    @classmethod
    def find(cls, name: str) -> "Account":
        """Look an account up; a number need not have a name, as in containers."""
        if name.isdecimal():
            return cls(name, int(name), int(name), frozenset([int(name)]))
        # Where there is no such module, nothing but this needs it.
        import pwd

        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise ParameterError(f"there is no account {name!r} on this machine") from None
        return cls(name, entry.pw_uid, entry.pw_gid, frozenset(os.getgrouplist(name, entry.pw_gid)))

    def owns_or_writes(self, path: Path) -> bool:
        """Whether the account can put something else in the place of what is in this folder."""
        found = path.stat()
        if found.st_uid == self.user:
            return True
        # In a folder with the sticky bit, only their owners move files.
        is_open = found.st_mode & stat.S_IWOTH or (found.st_gid in self.groups and found.st_mode & stat.S_IWGRP)
        return bool(is_open) and not found.st_mode & stat.S_ISVTX


def check_apart(courier: Account, guarded: list[Path]) -> None:
    """Raise unless this process's account is another than the courier's, and these files are out of its reach.

    A file is, if it, or a folder on the way to it, is closed to everybody but an owner who is not the courier; and if
    the courier can change no folder on the way. Files that are not there yet count by their folders.
    """
    own = os.geteuid()
    if courier.user in (own, 0):
        got = f"this is number {own}, the courier's {courier.name!r}"
        raise DataError(f"vault and courier must run under accounts of their own, {got}: {_HINT}")
    for path in guarded:
        place = path.resolve()
        way = [place, *place.parents] if place.exists() else list(place.parents)
        if not any(_is_closed(step, courier) for step in way):
            raise DataError(f"{path} can be read by the courier's account, {courier.name}: {_HINT}")
        for folder in (step for step in way if step.is_dir()):
            if courier.owns_or_writes(folder):
                raise DataError(f"{path} can be replaced by the courier's account, {courier.name}: it writes {folder}")


_HINT = "`apes federation join` as root sets it up; for a trial alone, --one-account"


def _is_closed(path: Path, courier: Account) -> bool:
    found = path.stat()
    return found.st_uid != courier.user and not found.st_mode & 0o077


def peer_of(connection: socket.socket) -> int:
    """Number of the account at the other end of a Unix socket."""
    size = _CREDENTIALS.size
    return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1])
