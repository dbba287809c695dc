"""Start scripts: one per process, to be run as they are, on one machine or on several."""

from pathlib import Path

from apes.federation.device_accounts import DeviceAccounts
from apes.federation.superlink import FLOWER, SUPERLINK, SuperLinkSettings
from apes.storage.files import write_bytes

FLWR = "flwr.sh"
"""Name of a script that runs Flower's command line with a connection ``here``: to the SuperLink's local door."""

_HEAD = """#!/bin/sh
# Made by `apes federation`. `apes`, `flwr` and `flower-...` must be on the PATH.
cd "$(dirname "$0")" || exit 1
"""
_FLOWER = "".join(f"export {name}={value}\n" for name, value in FLOWER.items()) + 'export FLWR_HOME="$PWD/flwr"\n'
_COMMAND_LINE = r"""mkdir -p flwr
printf '[superlink.here]\naddress = "%s"\nroot-certificates = "%s"\n' {control} "$PWD/authority.pem" > flwr/config.toml
exec flwr "$@"
"""
# The SuperLink starts the analyzer.
_ANALYZER = rf"""exec ./{FLWR} run app here --stream -c "settings=\"$PWD/analyzer.json\""
"""
# Compiled loops are kept at home.
_AS_WHOM = 'env HOME="$PWD" setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs '


def write_server_scripts(folder: Path, superlink: SuperLinkSettings) -> None:
    """Write what starts shuffler, SuperLink and analyzer, into the folder of each."""
    _write(folder / "shuffler" / "start.sh", "exec apes shuffler shuffler.json\n")
    _write(folder / "superlink" / "start.sh", f"exec apes superlink {SUPERLINK}\n")
    _write(folder / "superlink" / "register.sh", "exec apes federation register .\n")
    _write(folder / "analyzer" / "start.sh", _ANALYZER)
    for caller in ("superlink", "analyzer"):
        _write(folder / caller / FLWR, _FLOWER + _COMMAND_LINE.format(control=superlink.control))


def write_device_scripts(folder: Path, accounts: DeviceAccounts | None = None) -> None:
    """Write what starts the vault and the courier of a device or silo; root starts those with accounts of their own."""
    for name in ("vault", "courier"):
        as_whom = ""
        if accounts is not None:
            account = {"vault": accounts.vault, "courier": accounts.courier}[name]
            as_whom = _AS_WHOM.format(user=account.user, group=account.group)
        _write(folder / f"start-{name}.sh", f"cd {name} || exit 1\nexec {as_whom}apes {name} {name}.json\n")


def _write(path: Path, body: str) -> None:
    write_bytes(path, f"{_HEAD}{body}".encode(), 0o755)
