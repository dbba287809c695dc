"""The shuffler as an HTTP service; routes only."""

import hmac

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect

from apes.shuffler.service.rounds import Desk, Refused

ROUND = "/v1/runs/{run}/rounds/{number}"
_BYTES = "application/octet-stream"


def create_app(desk: Desk, token: str) -> FastAPI:
    """Build the service.

    Args:
        desk: What answers.
        token: What a caller of the rounds must show as a bearer token.
    """
    app = FastAPI(title="APES shuffler", docs_url=None, redoc_url=None, openapi_url=None)
    expected = f"Bearer {token}".encode()

    def check_caller(request: Request) -> None:
        shown = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(shown, expected):
            raise Refused(401, "token", "show the analyzer's token")

    @app.exception_handler(Refused)
    async def refused(request: Request, refused: Refused) -> JSONResponse:
        desk.count_refusal(refused)
        body = {"refused": refused.reason, "message": str(refused), **refused.details}
        return JSONResponse(body, status_code=refused.status)

    @app.exception_handler(ClientDisconnect)
    async def cut_short(request: Request, error: ClientDisconnect) -> JSONResponse:
        return await refused(request, Refused(400, "cut-short", "the caller hung up in the middle of a batch"))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(desk.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get(ROUND)
    async def release(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await desk.release(run, number), media_type=_BYTES)

    @app.post(ROUND)
    async def close_round(request: Request, run: str, number: int) -> Response:
        check_caller(request)
        return Response(await desk.close_round(run, number, request.stream()), media_type=_BYTES)

    return app
