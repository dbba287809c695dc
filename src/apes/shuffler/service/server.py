"""The shuffler as an HTTPS service: its routes, and a port from its settings file."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import ClientDisconnect

from apes.checks import positive, whole
from apes.shuffler.service.certificate import follow_files
from apes.shuffler.service.crew import Alone, Counters, Crew
from apes.shuffler.service.door import Door, room_for
from apes.shuffler.service.header_limit import MOST_HEADER
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.listener import Greeter, Listener, is_shown
from apes.shuffler.service.metrics import Metrics
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.policy_file import PolicyFile
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Keys, Rounds
from apes.shuffler.service.store import ledger_place
from apes.shuffler.service.witness import Witness
from apes.storage.json_logs import log, take_over_logging
from apes.storage.settings import read_key, read_settings, read_token
from apes.wire.inclusion import INCLUSION
from apes.wire.release import ANNOUNCEMENT, ROUND
from apes.wire.roster import ROSTER

_BYTES = "application/octet-stream"
# Between two requests on one connection.
_SECONDS_IDLE = 5


@dataclass(frozen=True)
class ShufflerSettings:
    """Where the shuffler listens, and its files; paths are relative to the folder of the settings' own."""

    host: str
    port: int  # in [1, 65535]
    policy: str = "policy.json"
    key: str = "shuffler.key"  # X25519 private key that opens reports, 32 bytes
    receipts_key: str = "receipts.key"  # Ed25519 private key that signs receipts, 32 bytes
    token: str = "token"  # what the analyzer must show
    ledger: str = "ledger.sqlite"  # or postgresql://USER@HOST/DATABASE, which several shufflers may share
    witness: str = "witness.json"  # the last of each run that the ledger held when something left
    certificate: str = "tls.pem"
    certificate_key: str = "tls.key"
    connections: int = 1000  # at once, at least 1; fewer where the system allows fewer open files
    connections_per_address: int = 100  # at once, at least 1
    workers: int = 1  # processes that open and count reports, at least 1; one is the service itself
    header_seconds: float = 10.0  # for TLS and a whole header, from the beginning of a connection; in (0, inf)

    def __post_init__(self) -> None:
        whole("port", self.port, 1, 65535)
        whole("workers", self.workers, 1)
        whole("connections", self.connections, 1)
        whole("connections_per_address", self.connections_per_address, 1)
        positive("header_seconds", self.header_seconds)


def run_shuffler(file: Path) -> None:
    """Serve until the process is told to stop."""
    settings, folder = read_settings(file, ShufflerSettings), file.parent
    opening = read_key(folder / settings.key, X25519PrivateKey.from_private_bytes)
    keys = Keys(opening, read_key(folder / settings.receipts_key, Ed25519PrivateKey.from_private_bytes))
    token = read_token(folder / settings.token)
    with ExitStack() as at_the_end:
        place, witness = ledger_place(folder, settings.ledger), Witness(folder / settings.witness)
        ledger = at_the_end.enter_context(closing(ShufflerLedger(place, witness)))
        counters: Counters = Alone(opening) if settings.workers == 1 else Crew(opening, settings.workers)
        at_the_end.callback(counters.close)

        def make(policy: Policy, now: Callable[[], Policy]) -> Rounds:
            return Rounds(policy, keys, ledger, counters, now=now)

        policy = PolicyFile(folder / settings.policy, make)
        take_over_logging()
        log("serving", host=settings.host, port=settings.port, senders=policy.senders)
        rounds = policy.rounds()
        app = create_app(rounds, token, policy.rounds)
        door = _door(settings, rounds.metrics)
        greeter = Greeter(app, door, _authorization(token))
        Listener(_config(settings, folder, greeter), door, settings.header_seconds, at_the_end.close).run()


def _door(settings: ShufflerSettings, metrics: Metrics) -> Door:
    most = room_for(settings.connections)
    if most < settings.connections:
        log("few-files", connections=most, wanted=settings.connections)
    return Door(most, settings.connections_per_address, settings.header_seconds, metrics.count_connection)


def _config(settings: ShufflerSettings, folder: Path, app: Greeter) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        # The parser that bounds what it keeps of a header that is not complete yet.
        http="h11",
        h11_max_incomplete_event_size=MOST_HEADER,
        ws="none",
        lifespan="off",
        # Who asks is who is connected, whatever the header says.
        proxy_headers=False,
        ssl_certfile=str(folder / settings.certificate),
        ssl_keyfile=str(folder / settings.certificate_key),
        timeout_keep_alive=_SECONDS_IDLE,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    config.load()
    if config.ssl is not None:
        follow_files(config.ssl, folder / settings.certificate, folder / settings.certificate_key)
    return config


def _authorization(token: str) -> bytes:
    return f"Bearer {token}".encode()


def create_app(rounds: Rounds, token: str, latest: Callable[[], Rounds] | None = None) -> FastAPI:
    """Build the service; whoever asks for rounds must show the token. ``latest`` says which rounds are in force."""
    in_force = latest or (lambda: rounds)
    app = FastAPI(title="APES shuffler", docs_url=None, redoc_url=None, openapi_url=None)
    expected = _authorization(token)

    def check_caller(request: Request) -> None:
        if not is_shown(request.headers.raw, expected):
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

    _add_beginning(app, in_force, check_caller)

    @app.post(INCLUSION)
    async def inclusion(request: Request, run: str, number: int) -> Response:
        # Without the token: senders ask, and sign what they ask.
        return Response(await in_force().inclusion(run, number, request.stream()), media_type=_BYTES)

    @app.get(ROUND)
    async def release(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await in_force().release(run, number), media_type=_BYTES)

    @app.post(ROUND)
    async def close_round(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await in_force().close_round(run, number, request.stream()), media_type=_BYTES)

    return app


def _add_beginning(app: FastAPI, in_force: Callable[[], Rounds], check_caller: Callable[[Request], None]) -> None:
    """Add the routes of what comes before a round's reports."""

    @app.get(ROSTER)
    async def roster(request: Request, run: str) -> Response:
        check_caller(request)
        return Response(await in_force().roster(run), media_type=_BYTES)

    @app.put(ANNOUNCEMENT)
    async def announce(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        await in_force().announce(run, number, request.stream())
        return Response(status_code=204)
