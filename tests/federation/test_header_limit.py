"""The limit on a request's header, by real requests on the loopback address to both public ports of ours."""

import contextlib
import socket
import ssl
import threading
import time

import pytest
from starlette.responses import PlainTextResponse

from apes.federation.keys import Authority, write_secret
from apes.federation.superlink import LOCAL, SuperLinkSettings, _with_two_doors
from apes.shuffler.service.door import Door
from apes.shuffler.service.header_limit import MOST_HEADER, is_too_long
from apes.shuffler.service.listener import Greeter, Listener
from apes.shuffler.service.server import ShufflerSettings, _config

NEVER, HANGS = 1e6, 300
TOKEN = b"Bearer secret"
START = b"GET /health HTTP/1.1\r\nHost: here\r\nAuthorization: " + TOKEN + b"\r\nX-Long: "
END = b"\r\n\r\n"
# Of a whole header, from the request line to the empty line.
ALLOWED = (100, 16_000, MOST_HEADER)
REFUSED = (MOST_HEADER + 1, 17_000, 20_000, 65_000, 200_000)


def scope_of(path=b"/health", query=b"", headers=((b"host", b"here"),)):
    return {"method": "GET", "raw_path": path, "query_string": query, "headers": list(headers)}


@pytest.mark.parametrize("part", ["path", "query", "name", "value", "many"])
def test_every_part_of_a_header_counts(part):
    long = MOST_HEADER * b"x"
    headers = {"name": [(long, b"")], "value": [(b"x", long)], "many": [(b"x", b"y")] * (MOST_HEADER // 4)}
    assert is_too_long(scope_of(**({part: long} if part in ("path", "query") else {"headers": headers[part]})))
    assert not is_too_long(scope_of())


class Anybody:
    """An application that answers everybody, and counts whom."""

    def __init__(self):
        self.reached = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError("of a server's own beginning and end")
        self.reached += 1
        await PlainTextResponse("ok")(scope, receive, send)


@contextlib.contextmanager
def in_a_thread(server, run):
    """Serve until the block ends."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(HANGS)
        assert not thread.is_alive()


@contextlib.contextmanager
def shuffler(app, folder, monkeypatch):
    """The shuffler's port, as its settings make it, with another application than its own."""
    with socket.create_server((LOCAL, 0)) as free:
        settings = ShufflerSettings(LOCAL, free.getsockname()[1], certificate_key="tls.pem")
    door = Door(100, 100, NEVER, lambda reason: None)
    server = Listener(_config(settings, folder, Greeter(app, door, TOKEN)), door, NEVER, lambda: None)
    with in_a_thread(server, server.run):
        yield settings.port


@contextlib.contextmanager
def superlink(app, folder, monkeypatch):
    """The SuperLink's public port, with another application than Flower's."""
    doors = [socket.create_server((LOCAL, 0)) for _ in range(2)]
    public, control = (door.getsockname()[1] for door in doors)
    opened, servers = iter(doors), []
    with monkeypatch.context() as patch:
        patch.setattr("apes.federation.superlink._door", lambda *place: next(opened))
        patch.setattr("uvicorn.Server.run", lambda server, sockets: servers.append(server))
        # As Flower calls it.
        given = {"host": LOCAL, "port": control, "reload": False, "access_log": True, "log_config": None, "workers": 1}
        files = {"ssl_certfile": str(folder / "tls.pem"), "ssl_keyfile": str(folder / "tls.pem")}
        _with_two_doors(SuperLinkSettings(LOCAL, public, control))(app, **given, **files)
    (server,) = servers
    with in_a_thread(server, lambda: server.run(sockets=doors)):
        yield public


def answer_to(port, authority, size, pieces):
    """The status line of the answer to a header of so many bytes, sent in pieces of a size; empty if there is none."""
    header = START + (size - len(START) - len(END)) * b"x" + END
    assert len(header) == size
    with connected(port, authority) as connection:
        with contextlib.suppress(OSError):
            for start in range(0, size, pieces):
                connection.sendall(header[start : start + pieces])
        with contextlib.suppress(OSError):
            return connection.recv(4096).partition(b"\r\n")[0]
    return b""


def is_ended(port, authority):
    """Whether a header is refused that never comes to its end."""
    with connected(port, authority) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(START + (1 << 20) * b"x")
        try:
            return connection.recv(4096)[:12] in (b"HTTP/1.1 400", b"")
        except ConnectionError:
            return True


def connected(port, authority):
    """A connection, as soon as the port is open."""
    context = ssl.create_default_context(cadata=authority.certificate().decode())
    give_up = time.monotonic() + HANGS
    while time.monotonic() < give_up:
        with contextlib.suppress(ConnectionRefusedError):
            return context.wrap_socket(socket.create_connection((LOCAL, port), HANGS), server_hostname=LOCAL)
    pytest.fail(f"port {port} does not open")


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.mark.service
@pytest.mark.parametrize("pieces", [1 << 20, 1000])
@pytest.mark.parametrize("public_port", [shuffler, superlink])
def test_a_header_of_more_than_16_kib_is_refused(public_port, pieces, authority, tmp_path, monkeypatch):
    app, (certificate, key) = Anybody(), authority.issue(LOCAL)
    write_secret(tmp_path / "tls.pem", key + certificate)
    with public_port(app, tmp_path, monkeypatch) as port:
        for size in ALLOWED:
            assert answer_to(port, authority, size, pieces) == b"HTTP/1.1 200 OK", size
        assert app.reached == len(ALLOWED)
        for size in REFUSED:
            said = answer_to(port, authority, size, pieces)
            # A connection that is closed in the middle of what it sends may not see why.
            assert not said or said.split()[1] in (b"400", b"431"), (size, said)
        assert is_ended(port, authority)
        assert app.reached == len(ALLOWED)
        assert answer_to(port, authority, 100, pieces) == b"HTTP/1.1 200 OK"
