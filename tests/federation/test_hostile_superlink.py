"""A SuperLink that answers a user's courier with more than there is memory: a real courier, over real TLS.

Answers of other kinds are in test_fleet.py.
"""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading

import pytest

from apes.federation.courier import COURIER, CourierSettings, largest_question
from apes.federation.keys import Authority, node_key, write_secret
from apes.federation.trial.processes import environment
from apes.storage.settings import write_settings

pytestmark = pytest.mark.process
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/protobuf\r\n"
MEGABYTES = 400
# Runs a command and prints the most memory that it took, in KiB, as the system counted: nothing of it is missed between
# two looks. In a small process of its own, since a child's count begins at its parent's size.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def chunked():
    """An answer that does not say how long it is."""
    yield HEAD + b"transfer-encoding: chunked\r\n\r\n"
    for _ in range(MEGABYTES):
        yield b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    yield b"0\r\n\r\n"


@contextlib.contextmanager
def superlink(folder, answer):
    """Its port; everybody gets this answer."""
    authority = Authority()
    (folder / "authority.pem").write_bytes(authority.certificate())
    certificate, key = authority.issue("127.0.0.1")
    write_secret(folder / "tls.pem", key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")

    def serve(listening):
        # Until it is closed.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as one:
                    one.recv(1 << 16)
                    for piece in answer():
                        one.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            server.join()


def test_a_superlink_does_not_fill_the_memory_of_a_users_machine(tmp_path):
    """It was taken whole, whatever its length, before anybody looked at it."""
    write_secret(tmp_path / "node.key", node_key()[0])
    with superlink(tmp_path, chunked) as port:
        settings = CourierSettings(f"127.0.0.1:{port}", largest=largest_question(7850))
        write_settings(tmp_path / COURIER, settings)
        command = [sys.executable, "-c", MEASURED, "apes", "courier", str(tmp_path / COURIER)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, lines
    assert lines[-1].startswith("apes: the server")
    assert "has more than" in lines[-1]
    # Python and Flower take some 100 MB.
    assert int(done.stdout) < 300 << 10
