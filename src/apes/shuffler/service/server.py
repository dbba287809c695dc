"""The shuffler from its settings file, on a port, with TLS."""

from dataclasses import dataclass
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.checks import whole
from apes.errors import DataError
from apes.shuffler.service.app import create_app
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.rounds import Rounds
from apes.storage.json_logs import log, take_over_logging
from apes.storage.settings import read_settings, read_token


@dataclass(frozen=True)
class ShufflerSettings:
    """Settings of the shuffler; paths are relative to their file's folder.

    Attributes:
        host: Address to listen on.
        port: Port to listen on, in [1, 65535].
        policy: File with the policy.
        key: File with the X25519 private key that opens reports, 32 bytes.
        token: File with the token that the analyzer must show.
        ledger: The ledger's database.
        certificate: TLS certificate, PEM.
        certificate_key: Its private key, PEM.
    """

    host: str
    port: int
    policy: str = "policy.json"
    key: str = "shuffler.key"
    token: str = "token"
    ledger: str = "ledger.sqlite"
    certificate: str = "tls.pem"
    certificate_key: str = "tls.key"

    def __post_init__(self) -> None:
        whole("port", self.port, 1, 65535)


def run_shuffler(file: Path) -> None:
    """Serve until the process is told to stop.

    Raises:
        DataError: If something is missing or damaged.
    """
    settings, folder = read_settings(file, ShufflerSettings), file.parent
    policy = read_settings(folder / settings.policy, Policy)
    try:
        key = X25519PrivateKey.from_private_bytes((folder / settings.key).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / settings.key} cannot be read: {error}") from None
    token = read_token(folder / settings.token)
    ledger = ShufflerLedger(folder / settings.ledger)
    take_over_logging()
    log("serving", host=settings.host, port=settings.port, senders=len(policy.senders))
    uvicorn.run(
        create_app(Rounds(policy, key, ledger), token),
        host=settings.host,
        port=settings.port,
        ssl_certfile=str(folder / settings.certificate),
        ssl_keyfile=str(folder / settings.certificate_key),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    ledger.close()
