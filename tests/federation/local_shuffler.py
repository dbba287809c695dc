"""A shuffler in this process: made of what `apes shuffler` is made of, but for sockets and TLS; it can crash anywhere.

A crash is an exception at a point where a process may be killed: before or after the ledger commits, before or after
the witness is written, before the answer leaves. Nothing is written any more after it, the caller sees a connection
that ended, and whoever asks then finds nobody, until the shuffler is started again on the same folder.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import errno
import itertools
import json
import queue
import sqlite3
import sys
import threading
from http import HTTPStatus

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from parties import RECEIPTS, TOKEN, ShufflerCalls, path
from starlette.requests import ClientDisconnect

from apes.federation.keys import Authority, write_secret
from apes.federation.shuffler_client import ShufflerClient
from apes.federation.trial.layout import HOST
from apes.shuffler.service.crew import Alone
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy_file import PolicyFile
from apes.shuffler.service.rounds import Keys, Rounds
from apes.shuffler.service.server import ShufflerSettings, create_app
from apes.shuffler.service.store import ledger_place
from apes.shuffler.service.witness import Witness, new_witness
from apes.storage import json_logs
from apes.storage.database import read_database
from apes.storage.files import write_bytes
from apes.storage.settings import read_key, read_settings, read_token, write_settings

BEFORE_COMMIT, AFTER_COMMIT = "before the ledger commits", "after the ledger commits"
BEFORE_WITNESS, AFTER_WITNESS = "before the witness is written", "after the witness is written"
BEFORE_ANSWER = "before the answer leaves"
POINTS = (BEFORE_COMMIT, AFTER_COMMIT, BEFORE_WITNESS, AFTER_WITNESS, BEFORE_ANSWER)
_PATIENCE = 120.0
# Who serves a request, and so whose log its lines belong to.
_serving = contextvars.ContextVar("serving", default=None)


class Crash(BaseException):
    """The process was killed here; nobody who handles errors may go on after it."""


class LocalShuffler(ShufflerCalls):
    """What `parties.Shuffler` is, without a process."""

    def __init__(self, folder, policy, key, **choices):
        self.folder, self.log, self.ledger = folder, folder / "log", folder / "ledger.sqlite"
        self._rounds = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)
        write_secret(folder / "shuffler.key", key.private_bytes_raw())
        write_secret(folder / "receipts.key", RECEIPTS.private_bytes_raw())
        write_secret(folder / "token", TOKEN.encode())
        self.write_policy(policy)
        write_settings(folder / "shuffler.json", ShufflerSettings(HOST, 1, **choices))
        new_witness(folder / "witness.json")
        self.port = None
        self.is_running, self.passed = False, []
        self._crash, self._failures, self._uploads = None, {}, []
        self.http = self.client()

    def write_policy(self, policy):
        write_settings(self.folder / "policy.json", policy, 0o600)
        self.terms = policy.terms

    def start(self):
        """Open the folder, as `apes.shuffler.service.server.run_shuffler` does; errors are raised here."""
        assert not self.is_running
        token = _serving.set(self)
        try:
            self._open()
        finally:
            _serving.reset(token)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.is_running = True

    def _open(self):
        settings, folder = read_settings(self.folder / "shuffler.json", ShufflerSettings), self.folder
        assert settings.workers == 1, "workers are processes"
        opening = read_key(folder / settings.key, X25519PrivateKey.from_private_bytes)
        keys = Keys(opening, read_key(folder / settings.receipts_key, Ed25519PrivateKey.from_private_bytes))
        token, witness = read_token(folder / settings.token), Witness(folder / settings.witness)
        counters = Alone(opening)
        self.opened = ShufflerLedger(ledger_place(folder, settings.ledger), witness)
        try:
            policy = PolicyFile(
                folder / settings.policy, lambda policy, now: Rounds(policy, keys, self.opened, counters, now=now)
            )
        except BaseException:
            self.opened.close()
            raise
        self._watch_ledger(self.opened._store)
        self._watch_witness(witness)
        json_logs.log("serving", host=settings.host, port=settings.port, senders=policy.senders)
        self._app = create_app(policy.rounds(), token, policy.rounds)

    def kill(self):
        """Forget everything but the folder; requests that are under way end without an answer."""
        if self.is_running or self.has_crashed:
            self._stop()
        self.is_running, self._crash, self._failures, self.passed = False, None, {}, []

    def _stop(self):
        for upload in self._uploads:
            upload.hang_up()
        self._uploads = []
        self._loop.call_soon_threadsafe(self._end_tasks)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self.opened.close()

    def _end_tasks(self):
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ending = asyncio.gather(*tasks, return_exceptions=True)
        ending.add_done_callback(lambda _: self._loop.stop())

    def restart(self):
        """As after a kill: what is in memory is lost."""
        self.kill()
        self.start()

    def crash_at(self, point, skip=0):
        """Be killed when this point is reached next, or after it was passed ``skip`` times."""
        assert point in POINTS
        self._crash = {"point": point, "left": skip, "is_over": False}

    def fail_at(self, point, error):
        """Raise an error whenever this point is reached, until it is healed."""
        assert point in POINTS
        self._failures[point] = error

    def heal(self):
        """No more errors."""
        self._failures = {}

    def let_write(self, allowed):
        """Let files be written, or have every write fail: ledger, witness and log."""
        self.heal()
        if not allowed:
            full = OSError(errno.EFBIG, "File too large")
            self._failures = {BEFORE_COMMIT: sqlite3.OperationalError("disk I/O error"), BEFORE_WITNESS: full}
            self._failures["log"] = full

    @property
    def has_crashed(self):
        return self._crash is not None and self._crash["is_over"]

    def reach(self, point):
        """A point at which a process may be killed."""
        crash = self._crash
        if crash is not None and crash["is_over"]:
            raise Crash(point)
        if crash is not None and crash["point"] == point:
            if not crash["left"]:
                crash["is_over"], self.is_running = True, False
                raise Crash(point)
            crash["left"] -= 1
        if point in self._failures:
            raise self._failures[point]
        self.passed.append(point)

    def _watch_ledger(self, store):
        inner, depth = store.transaction, threading.local()

        @contextlib.contextmanager
        def transaction(run):
            outermost = not getattr(depth, "now", 0)
            depth.now = getattr(depth, "now", 0) + 1
            try:
                with inner(run):
                    yield
                    if outermost:
                        self.reach(BEFORE_COMMIT)
            finally:
                depth.now -= 1
            if outermost:
                self.reach(AFTER_COMMIT)

        store.transaction = transaction

    def _watch_witness(self, witness):
        inner = witness._write

        def write(runs):
            self.reach(BEFORE_WITNESS)
            inner(runs)
            self.reach(AFTER_WITNESS)

        witness._write = write

    def write_line(self, line):
        """Add a line to the log, if there is room on the disk."""
        if "log" in self._failures:
            raise self._failures["log"]
        if self.has_crashed:
            raise Crash
        with self.log.open("a") as file:
            file.write(line + "\n")

    def is_ready(self):
        try:
            return self.http.get("/health").json() == {"status": "ok"}
        except httpx.TransportError:
            return False

    def client(self):
        """A caller with the token."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        return httpx.Client(transport=_InProcess(self), base_url=f"https://{HOST}", headers=headers)

    def analyzers_client(self, patience=_PATIENCE):
        """The analyzer's own client of this shuffler."""
        authority = self.folder / "authority.pem"
        if not authority.exists():
            write_bytes(authority, Authority().certificate())
        client = ShufflerClient(f"https://{HOST}", TOKEN, authority, patience)
        client._http.close()
        client._http = self.client()
        return client

    def next_round(self):
        """A round that no other test uses."""
        return next(self._rounds)

    def rows(self, query, *values):
        """What the ledger holds, read beside the shuffler."""
        return read_database(self.ledger, query, values)

    def events(self):
        """What was logged; fails unless every line is a JSON object."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def begin_upload(self, run, body):
        """Announce a run's first round and send a part of its batch, which the shuffler has taken when this returns."""
        self.announce(run=run)
        upload = Upload(self, path(run=run), body, len(body) + 1000)
        self._uploads.append(upload)
        return upload

    async def serve(self, scope, receive, send):
        """Answer a request."""
        _serving.set(self)
        await self._app(scope, receive, send)

    def submit(self, coroutine):
        """Run a coroutine where the shuffler runs."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


class Upload:
    """A batch on its way, used as a socket is: the shuffler has taken all that was sent so far."""

    def __init__(self, shuffler, place, body, length):
        self._pieces, self._wanted, self._left, self._taken = queue.Queue(), queue.Queue(), length, 0
        self._answer = queue.Queue()
        self._client = shuffler.client()
        headers = {"content-length": str(length)}
        self._sending = threading.Thread(target=self._post, args=(place, headers), daemon=True)
        self._sending.start()
        self._wanted.get(timeout=_PATIENCE)
        self.sendall(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def sendall(self, data):
        """Send more of the batch; after its last byte, the answer is on its way."""
        self._left -= len(data)
        self._pieces.put(data)
        self._wanted.get(timeout=_PATIENCE)

    def recv(self, _):
        """The first line of the answer."""
        answer = self._answer.get(timeout=_PATIENCE)
        if isinstance(answer, Exception):
            return b""
        return f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}\r\n".encode()

    def close(self):
        """Hang up, if there was no answer yet."""
        self.hang_up()
        self._sending.join(_PATIENCE)
        self._client.close()

    def hang_up(self):
        """Send nothing more."""
        self._pieces.put(None)

    def _post(self, place, headers):
        try:
            self._answer.put(self._client.post(place, content=self._body(), headers=headers))
        except httpx.TransportError as error:
            self._answer.put(error)
        finally:
            self._wanted.put(None)

    def _body(self):
        while True:
            self._wanted.put(None)
            piece = self._pieces.get()
            if piece is None:
                raise ClientDisconnect
            yield piece
            if not self._left:
                return


class _NoTls:
    """What httpx tells of a connection by TLS, where there is none."""

    def get_extra_info(self, _):
        return self

    def getpeercert(self, _):
        return None


class _InProcess(httpx.BaseTransport):
    """Hands requests to a shuffler's application, and brings its answers back."""

    def __init__(self, shuffler):
        self._shuffler = shuffler

    def handle_request(self, request):
        shuffler = self._shuffler
        if not shuffler.is_running:
            raise httpx.ConnectError("nobody listens", request=request)
        try:
            status, headers, content = shuffler.submit(self._ask(request)).result(_PATIENCE)
        except (Crash, concurrent.futures.CancelledError, ClientDisconnect, TimeoutError) as error:
            raise httpx.ReadError(f"the connection has ended: {type(error).__name__}", request=request) from None
        return httpx.Response(status, headers=headers, content=content, extensions={"network_stream": _NoTls()})

    async def _ask(self, request):
        url, pieces, said, content = request.url, iter(request.stream), {}, bytearray()
        is_whole, is_sent = isinstance(request.stream, httpx.ByteStream), False

        async def receive():
            nonlocal is_sent
            if is_sent:
                # Nobody hangs up who waits for an answer.
                await asyncio.Event().wait()
            try:
                piece = next(pieces, None) if is_whole else await asyncio.to_thread(next, pieces, None)
            except ClientDisconnect:
                return {"type": "http.disconnect"}
            if piece is None:
                is_sent = True
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        async def send(message):
            if message["type"] == "http.response.start":
                self._shuffler.reach(BEFORE_ANSWER)
                said["status"], said["headers"] = message["status"], message["headers"]
            else:
                content.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
            "server": (HOST, 1),
        }
        await self._shuffler.serve(scope, receive, send)
        return said["status"], said["headers"], bytes(content)


def _print(line, *, file=None, flush=False):
    """Lines of the log go to the shuffler that serves; all others where they always go."""
    shuffler = _serving.get()
    if shuffler is None:
        print(line, file=sys.stderr if file is None else file, flush=flush)
    else:
        shuffler.write_line(line)


json_logs.print = _print
