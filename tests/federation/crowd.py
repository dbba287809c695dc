"""A crowd at a port of the loopback address: connections that want nothing, or say it too slowly. Run as a program.

    crowd.py PORT COUNT KIND SOURCES

It opens COUNT connections from SOURCES addresses, 127.0.0.2 and on, says how many it has, and holds them until the
other side has closed all of them, or its input ends; then it says how many the other side has closed. KIND is idle (no
byte), half (TLS, and half a header) or again (TLS, one request that is answered, then half a header).
"""

import resource
import select
import socket
import ssl
import sys

HALF = b"GET /health HTTP/1.1\r\nHost: shuffler\r\nX-Slow: "
WHOLE = b"GET /health HTTP/1.1\r\nHost: shuffler\r\n\r\n"


def connect(port, kind, source):
    """A connection that is held; None if the other side did not want it."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 120, (source, 0))
        if kind != "idle":
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            connection = tls.wrap_socket(connection)
            if kind == "again":
                connection.sendall(WHOLE)
                connection.recv(4096)
            connection.sendall(HALF)
        return connection
    except OSError:
        return None


def is_over(connection):
    """Whether the other side has ended a connection; what it said before that is read and forgotten."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def closed_of(held):
    """How many connections the other side has ended, or never wanted."""
    return sum(connection is None or is_over(connection) for connection in held)


def main():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, count, kind, sources = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    held = [connect(port, kind, f"127.0.0.{2 + number % sources}") for number in range(count)]
    print(sum(connection is not None for connection in held), flush=True)
    while closed_of(held) < count and not select.select([sys.stdin], [], [], 0.2)[0]:
        continue
    print(closed_of(held), flush=True)


if __name__ == "__main__":
    main()
