"""The shuffler as an HTTP service; routes only."""

import hmac

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import ClientDisconnect

from apes.shuffler.service.rounds import RequestRefused, Rounds
from apes.wire.release import ROUND

_BYTES = "application/octet-stream"


def create_app(rounds: Rounds, token: str) -> FastAPI:
    """Build the service.

    Args:
        rounds: What answers.
        token: What a caller of the rounds must show as a bearer token.
    """
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
