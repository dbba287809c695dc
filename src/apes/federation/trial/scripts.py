"""Start scripts: one per process, to be run as they are, on one machine or on several."""

from pathlib import Path

from apes.storage.files import write_bytes

FLWR = "flwr.sh"
"""Name of a script that runs Flower's command line with a connection ``here``: to the federation's SuperLink."""

_HEAD = """#!/bin/sh
# Made by `apes federation`. `apes`, `flwr` and `flower-...` must be on the PATH.
cd "$(dirname "$0")" || exit 1
"""
# Flower neither phones home nor installs anything, keeps its state here, and looks for work often.
_FLOWER = """export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1
export FLWR_HOME="$PWD/flwr"
"""
_COMMAND_LINE = r"""mkdir -p flwr
printf '[superlink.here]\naddress = "%s"\nroot-certificates = "%s"\n' \
  {host}:{port} "$PWD/authority.pem" > flwr/config.toml
exec flwr "$@"
"""
# TLS, and only nodes whose keys are registered.
_SUPERLINK = r"""exec flower-superlink --host {host} --port {port} \
  --ssl-certfile tls.pem --ssl-keyfile tls.pem --ssl-ca-certfile "$PWD/authority.pem" \
  --enable-supernode-auth --database state.db \
  --isolation subprocess --disable-runtime-dependency-installation
"""
_REGISTER = rf"""for key in nodes/*.pub; do
  ./{FLWR} supernode register "$key" here --name "$(basename "$key" .pub)"
done
"""
# The SuperLink starts the analyzer, and the couriers with it.
_ANALYZER = rf"""exec ./{FLWR} run app here --stream -c "settings=\"$PWD/analyzer.json\""
"""
# The courier knows where the vault's socket is, and nothing else.
_SUPERNODE = r"""exec flower-supernode --superlink {superlink} \
  --root-certificates "$PWD/authority.pem" --auth-supernode-private-key node.key \
  --host 127.0.0.1 --port {port} --isolation subprocess \
  --node-config "vault=\"$PWD/vault.sock\""
"""


def write_server_scripts(folder: Path, superlink: tuple[str, int]) -> None:
    """Write what starts shuffler, SuperLink and analyzer, into the folder of each."""
    host, port = superlink
    _write(folder / "shuffler" / "start.sh", "exec apes shuffler shuffler.json\n")
    _write(folder / "superlink" / "start.sh", _FLOWER + _SUPERLINK.format(host=host, port=port))
    _write(folder / "superlink" / "register.sh", _REGISTER)
    _write(folder / "analyzer" / "start.sh", _ANALYZER)
    for caller in ("superlink", "analyzer"):
        _write(folder / caller / FLWR, _FLOWER + _COMMAND_LINE.format(host=host, port=port))


def write_device_scripts(folder: Path, superlink: str, node_port: int) -> None:
    """Write what starts the vault and the SuperNode of a device or silo; the SuperLink as host and port."""
    _write(folder / "start-vault.sh", "exec apes vault vault.json\n")
    _write(folder / "start-supernode.sh", _FLOWER + _SUPERNODE.format(superlink=superlink, port=node_port))


def _write(path: Path, body: str) -> None:
    write_bytes(path, f"{_HEAD}{body}".encode(), 0o755)
