"""The server of the page: loopback only, nothing is logged, nothing comes from any network."""

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from apes.errors import ApesError, ParameterError
from apes.page.advising import advice
from apes.page.desk import Desk
from apes.page.door import Door, Refused, body_of
from apes.page.opening import opening
from apes.page.setting import Setting, SettingError, read_setting, read_target
from apes.page.uploads import MOST_BYTES, Uploads, read_upload

HOST = "127.0.0.1"
_STATIC = Path(__file__).parent / "static"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Of a question: some dozen numbers.
_MOST_QUESTION = 2**16
_LONGEST_NAME = 200
_LINES = "application/x-ndjson"


def listen(port: int) -> socket.socket:
    """A socket on loopback; ParameterError if the port is taken or not to be had. 0 for any that is free."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or "it is no port"
        must = f"port must be one that is free on this machine, or 0 for any: {why.lower()}"
        raise ParameterError(f"{must}; got {port}") from None
    return listening


def serve(listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; ``ready`` is called with its address once it can be opened."""
    port = listening.getsockname()[1]
    # Nothing is logged: what somebody asks about own people is nobody's business.
    config = uvicorn.Config(
        create_app(port),
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config, partial(ready, f"http://{HOST}:{port}/"))
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        # This is how it ends: uvicorn has shut down by now.
        pass


class _Server(uvicorn.Server):
    """Says when it can be asked."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def create_app(port: int) -> ASGIApp:
    """The application behind its door, for a server on this port."""
    desk, uploads = Desk(), Uploads()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    _add_files(app)
    _add_answers(app, desk, uploads)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return error.response

    @app.exception_handler(SettingError)
    async def not_understood(request: Request, error: SettingError) -> JSONResponse:
        return JSONResponse({"fields": error.fields}, status_code=422)

    @app.exception_handler(ApesError)
    async def wrong(request: Request, error: ApesError) -> JSONResponse:
        return JSONResponse({"refused": str(error)}, status_code=422)

    return Door(app, port)


def _add_files(app: FastAPI) -> None:
    """Add the page itself and all that it is made of."""
    for file in sorted(_STATIC.iterdir()):
        if file.suffix in _KINDS:
            content, kind = file.read_bytes(), _KINDS[file.suffix]
            place = "/" if file.name == "index.html" else f"/{file.name}"
            app.get(place)(partial(_file, content, kind))

    @app.get("/opening")
    async def start() -> dict[str, object]:
        return opening()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}


async def _file(content: bytes, kind: str) -> Response:
    return Response(content, media_type=kind)


def _add_answers(app: FastAPI, desk: Desk, uploads: Uploads) -> None:
    """Add what the page asks."""

    @app.post("/answer")
    async def answer(request: Request) -> Response:
        asked = await _question(request)
        page, number = asked.get("page"), asked.get("number")
        if not (isinstance(page, str) and len(page) <= _LONGEST_NAME and isinstance(number, int)):
            raise Refused(400, "a question needs a page, which is a text, and a number")
        setting = _setting(asked, uploads)
        desk.take(page, number)
        return _Answer(desk.answer(setting, page, number), desk.release)

    @app.post("/advise")
    async def advise(request: Request) -> Response:
        asked = await _question(request)
        setting = _setting(asked, uploads)
        target = read_target(asked["setting"])
        desk.reserve()
        return _Answer(desk.advise(partial(advice, setting, target)), desk.release)

    @app.post("/budgets")
    async def budgets(request: Request, name: str, column: str | None = None) -> dict[str, Any]:
        content = await body_of(request, MOST_BYTES)
        if not 0 < len(name) <= _LONGEST_NAME or len(column or "") > _LONGEST_NAME:
            raise Refused(400, "a file's name and column have 1 to 200 characters")
        found = await desk.later(partial(read_upload, content, name, column))
        return uploads.keep(found).as_dict()


class _Answer(StreamingResponse):
    """Lines of JSON, sent as they are made; the question's place is free again when they end, however they end."""

    def __init__(self, lines: AsyncIterator[str], release: Callable[[], None]) -> None:
        super().__init__(lines, media_type=_LINES)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not in the lines themselves: if the client leaves before the first one, they never begin and never end.
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


async def _question(request: Request) -> dict[str, Any]:
    """A question's fields; other pages cannot send JSON without being asked whether they may."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "questions are JSON")
    try:
        asked = json.loads(await body_of(request, _MOST_QUESTION))
    except (ValueError, RecursionError):
        raise Refused(400, "questions are JSON") from None
    if not isinstance(asked, dict):
        raise Refused(400, "a question is a JSON object")
    return asked


def _setting(asked: dict[str, Any], uploads: Uploads) -> Setting:
    setting = asked.get("setting")
    if not isinstance(setting, dict):
        raise Refused(400, "a question has a setting, a JSON object")
    return read_setting(setting, uploads)
