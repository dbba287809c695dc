"""The shuffler as an HTTPS service: its routes, and a port from its settings file."""

import hmac
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import ClientDisconnect

from apes.checks import whole
from apes.errors import DataError
from apes.shuffler.service.certificate import follow_files
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.rounds import RequestRefused, Rounds
from apes.storage.json_logs import log, take_over_logging
from apes.storage.settings import read_settings, read_token
from apes.wire.release import ROUND

_BYTES = "application/octet-stream"


@dataclass(frozen=True)
class ShufflerSettings:
    """Where the shuffler listens, and its files; paths are relative to the folder of the settings' own."""

    host: str
    port: int  # in [1, 65535]
    policy: str = "policy.json"
    key: str = "shuffler.key"  # X25519 private key that opens reports, 32 bytes
    token: str = "token"  # what the analyzer must show
    ledger: str = "ledger.sqlite"
    certificate: str = "tls.pem"
    certificate_key: str = "tls.key"

    def __post_init__(self) -> None:
        whole("port", self.port, 1, 65535)


def run_shuffler(file: Path) -> None:
    """Serve until the process is told to stop."""
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
    config = uvicorn.Config(
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
    config.load()
    if config.ssl is not None:
        follow_files(config.ssl, folder / settings.certificate, folder / settings.certificate_key)
    uvicorn.Server(config).run()
    ledger.close()


def create_app(rounds: Rounds, token: str) -> FastAPI:
    """Build the service; whoever asks for rounds must show the token."""
    app = FastAPI(title="APES shuffler", docs_url=None, redoc_url=None, openapi_url=None)
    expected = f"Bearer {token}".encode()

    def check_caller(request: Request) -> None:
        shown = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(shown, expected):
            raise RequestRefused(401, "token", "show the analyzer's token")

    @app.exception_handler(RequestRefused)
    async def refused(request: Request, refused: RequestRefused) -> JSONResponse:
        rounds.count_refusal(refused)
        body = {"refused": refused.reason, "message": str(refused), **refused.details}
        return JSONResponse(body, status_code=refused.status)

    @app.exception_handler(ClientDisconnect)
    async def cut_short(request: Request, error: ClientDisconnect) -> JSONResponse:
        return await refused(request, RequestRefused(400, "cut-short", "the caller hung up in the middle of a batch"))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(rounds.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get(ROUND)
    async def release(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await rounds.release(run, number), media_type=_BYTES)

    @app.post(ROUND)
    async def close_round(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await rounds.close_round(run, number, request.stream()), media_type=_BYTES)

    return app
