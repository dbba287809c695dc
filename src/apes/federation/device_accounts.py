"""The accounts of a device, made by root when its owner joins: one for the vault, one for the courier."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apes.errors import DataError, ParameterError
from apes.federation.vault.accounts import Account

VAULT_ACCOUNT, COURIER_ACCOUNT = "apes-vault", "apes-courier"
_WHAT_TO_DO = (
    "join as root (sudo), which makes two system accounts; or run deploy/compose.yaml, which keeps them apart in "
    "containers; or, for a trial without that protection, --one-account"
)


@dataclass(frozen=True)
class DeviceAccounts:
    """Who runs what on a device."""

    vault: Account
    courier: Account

    def __post_init__(self) -> None:
        if self.vault.user == self.courier.user or 0 in (self.vault.user, self.courier.user):
            names = f"{self.vault.name!r} and {self.courier.name!r}"
            raise ParameterError(f"vault_account and courier_account must be two, neither of them root; got {names}")

    @staticmethod
    def check_may_make() -> None:
        """Raise unless accounts can be made here; nothing is made."""
        # Windows has no such accounts, nor this function.
        if getattr(os, "geteuid", lambda: -1)() != 0:
            raise ParameterError(f"vault and courier must have accounts of their own: {_WHAT_TO_DO}")

    @classmethod
    def made(cls, vault: str, courier: str) -> "DeviceAccounts":
        """Find both accounts, or make them, as system accounts without home, shell and password; for root only."""
        cls.check_may_make()
        return cls(_found_or_made(vault), _found_or_made(courier))

    def check_place(self, folder: Path) -> None:
        """Raise unless both accounts can go to a device's new folder, and neither can change it or the way there."""
        way = folder.resolve()
        for account in (self.vault, self.courier):
            for step in way.parents:
                if not _may_enter(account, step):
                    raise DataError(f"{step} cannot be entered by {account.name}; choose a folder elsewhere")
            for step in (way, *way.parents):
                if account.owns_or_writes(step):
                    raise DataError(f"{step} can be changed by {account.name}; choose a folder elsewhere")

    def take_over(self, folder: Path) -> None:
        """Give the folders in a new device's to their accounts; the device's own has been root's alone (0700) so far.

        An account that was taken over may be at work meanwhile. So until everything is done, nobody but root can go
        into the device's folder, nor has somebody stayed there who went in before: who could, might put links in the
        way of what is given away.
        """
        self.check_place(folder)
        found = folder.lstat()
        if (found.st_uid, stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)) != (0, stat.S_IFDIR, 0o700):
            raise DataError(f"{folder} must be root's alone while its parts are given away")
        (folder / "socket").mkdir()
        for name, owner, group, mode in (
            ("vault", self.vault, self.vault, 0o700),
            ("courier", self.courier, self.courier, 0o700),
            # The vault makes its socket here, and the courier may come in; what is made gets the folder's group.
            ("socket", self.vault, self.courier, 0o2750),
        ):
            for path in _all_in(folder / name):
                os.chown(path, owner.user, group.group, follow_symlinks=False)
            (folder / name).chmod(mode)
        folder.chmod(0o755)


def _found_or_made(name: str) -> Account:
    try:
        return Account.find(name)
    except ParameterError:
        program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
        if program is None:
            raise DataError(f"there is no useradd here to make the account {name!r}; make it by hand") from None
    command = [program, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DataError(f"the account {name!r} cannot be made: {done.stderr.strip()}")
    return Account.find(name)


def _all_in(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")


def _may_enter(account: Account, folder: Path) -> bool:
    found = folder.stat()
    if found.st_uid == account.user:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in account.groups:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
