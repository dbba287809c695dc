"""Start scripts: one a process, to be run as they are, on one machine or on several."""

from pathlib import Path

from apes.files import write_bytes

_HEAD = """#!/bin/sh
# Made by `apes federation init`. `apes`, `flwr` and `flower-...` must be on the PATH.
cd "$(dirname "$0")" || exit 1
"""

# Flower neither phones home nor installs anything, keeps its state here, and looks for work often.
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
_FLOWER = "".join(f"export {name}={value}\n" for name, value in FLOWER_ENVIRONMENT.items()) + (
    'export FLWR_HOME="$PWD/flwr"\n'
)


def superlink_script(port: int, host: str = "127.0.0.1") -> str:
    """Start the SuperLink: TLS, and only nodes whose keys are registered."""
    return (
        f"{_FLOWER}exec flower-superlink --host {host} --port {port} \\\n"
        '  --ssl-certfile tls.pem --ssl-keyfile tls.key --ssl-ca-certfile "$PWD/authority.pem" \\\n'
        "  --enable-supernode-auth --database state.db \\\n"
        "  --isolation subprocess --disable-runtime-dependency-installation"
    )


def supernode_script(superlink: str, port: int, own_port: int) -> str:
    """Start a SuperNode whose courier knows where the vault's socket is, and nothing else."""
    return (
        f"{_FLOWER}exec flower-supernode --superlink {superlink}:{port} \\\n"
        '  --root-certificates "$PWD/authority.pem" --auth-supernode-private-key node.key \\\n'
        f"  --host 127.0.0.1 --port {own_port} --isolation subprocess \\\n"
        '  --node-config "vault=\\"$PWD/vault.sock\\""'
    )


def write_script(path: Path, body: str) -> None:
    """Write an executable script."""
    write_bytes(path, f"{_HEAD}{body}\n".encode())
    path.chmod(0o755)
