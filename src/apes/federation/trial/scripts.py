"""Start scripts: one a process, to be run as they are, on one machine or on several."""

from pathlib import Path

from apes.storage.files import write_bytes

_HEAD = """#!/bin/sh
# Made by `apes federation`. `apes`, `flwr` and `flower-...` must be on the PATH.
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


def superlink_script(host: str, port: int) -> str:
    """Start the SuperLink: TLS, and only nodes whose keys are registered."""
    return (
        f"{_FLOWER}exec flower-superlink --host {host} --port {port} \\\n"
        '  --ssl-certfile tls.pem --ssl-keyfile tls.key --ssl-ca-certfile "$PWD/authority.pem" \\\n'
        "  --enable-supernode-auth --database state.db \\\n"
        "  --isolation subprocess --disable-runtime-dependency-installation"
    )


def register_script(host: str, port: int) -> str:
    """Tell a running SuperLink which SuperNodes may join."""
    register = 'flwr supernode register "$key" here --name "$(basename "$key" .pub)"'
    return f"{_FLOWER}{_connection(host, port)}for key in nodes/*.pub; do {register}; done"


def analyzer_script(host: str, port: int) -> str:
    """Have a running SuperLink start the analyzer, and the couriers with it."""
    settings = '-c "settings=\\"$PWD/analyzer.json\\""'
    return f"{_FLOWER}{_connection(host, port)}exec flwr run app here --stream {settings}"


def _connection(host: str, port: int) -> str:
    """Tell Flower's command line where the SuperLink is."""
    return (
        "mkdir -p flwr\n"
        'printf \'[superlink.here]\\naddress = "%s"\\nroot-certificates = "%s"\\n\' \\\n'
        f'  {host}:{port} "$PWD/authority.pem" > flwr/config.toml\n'
    )


def supernode_script(superlink: str, own_port: int) -> str:
    """Start a SuperNode whose courier knows where the vault's socket is, and nothing else."""
    return (
        f"{_FLOWER}exec flower-supernode --superlink {superlink} \\\n"
        '  --root-certificates "$PWD/authority.pem" --auth-supernode-private-key node.key \\\n'
        f"  --host 127.0.0.1 --port {own_port} --isolation subprocess \\\n"
        '  --node-config "vault=\\"$PWD/vault.sock\\""'
    )


def write_script(path: Path, body: str) -> None:
    """Write an executable script."""
    write_bytes(path, f"{_HEAD}{body}\n".encode())
    path.chmod(0o755)
