"""The shuffler's door: how many connections there may be at once, and which of them go first when there is no room.

Whoever shows the analyzer's token is never sent away for somebody who has not. All others, who may be anybody, get a
few seconds to say what they want, and make room, the oldest first, for those who come after them.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable

# Ledger, logs, workers' pipes, sockets that listen or are about to close.
_FILES_OF_OUR_OWN = 100
_MOST_FILES = 1 << 20

Peer = tuple[str, int]


class Visitor:
    """A connection, from when it was taken to when it is gone."""

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.peer, self.source = peer, source_of(peer[0])
        self.transport: asyncio.Transport | None = None  # once the handshake is done
        self.timer: asyncio.TimerHandle | None = None
        self._socket = connection

    def send_away(self) -> None:
        """End the connection, without waiting for the other side."""
        if self.transport is not None:
            self.transport.abort()
            return
        # In mid-handshake the loop has the socket, and sees its end.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class Door:
    """Keeps count of who is in; all in the thread of the event loop.

    Guarantee:
        At most ``most`` connections, and ``most_per_source`` of one address (of IPv6, one network of 64 bits). One that
        is not in the middle of a request with the token ends ``seconds`` after it began or was answered last. Where
        there is no room, the oldest such connection goes, of the address that has most of them; if the newcomer's own
        address is full, of that one.
    """

    def __init__(self, most: int, most_per_source: int, seconds: float, count: Callable[[str], None]) -> None:
        self._most, self._most_per_source, self._seconds, self._count = most, most_per_source, seconds, count
        self._visitors: dict[Peer, Visitor] = {}
        self._by_source: Counter[str] = Counter()
        # Of every address, those who may be sent away, the oldest first.
        self._waiting: dict[str, dict[Peer, Visitor]] = {}

    def enter(self, visitor: Visitor) -> bool:
        """Let a connection in, if there is room or some can be made."""
        crowded = None
        if self._by_source[visitor.source] >= self._most_per_source:
            crowded = visitor.source
        elif len(self._visitors) >= self._most:
            crowded = max(self._waiting, key=lambda source: len(self._waiting[source]), default=visitor.source)
        if crowded is not None and not self._make_room(crowded):
            self._count("full")
            return False
        self._visitors[visitor.peer] = visitor
        self._by_source[visitor.source] += 1
        self._wait_for(visitor)
        return True

    def leave(self, visitor: Visitor) -> None:
        """Forget a connection."""
        if self._visitors.get(visitor.peer) is not visitor:
            return
        self._stop_waiting(visitor)
        del self._visitors[visitor.peer]
        self._by_source[visitor.source] -= 1
        if not self._by_source[visitor.source]:
            del self._by_source[visitor.source]

    def asked(self, peer: Peer, shows_token: bool) -> None:
        """A whole header has come; with the token, its connection has all the time that it needs."""
        visitor = self._visitors.get(peer)
        if visitor is not None and shows_token:
            self._stop_waiting(visitor)

    def answered(self, peer: Peer) -> None:
        """A request is over: its connection has to say what it wants next."""
        visitor = self._visitors.get(peer)
        if visitor is not None:
            self._stop_waiting(visitor)
            self._wait_for(visitor)

    def shut(self) -> None:
        """Send away whoever is not in the middle of a request with the token."""
        for visitor in [visitor for waiting in self._waiting.values() for visitor in waiting.values()]:
            self._send_away(visitor)

    def _wait_for(self, visitor: Visitor) -> None:
        self._waiting.setdefault(visitor.source, {})[visitor.peer] = visitor
        visitor.timer = asyncio.get_running_loop().call_later(self._seconds, self._too_slow, visitor)

    def _stop_waiting(self, visitor: Visitor) -> None:
        if visitor.timer is not None:
            visitor.timer.cancel()
            visitor.timer = None
        waiting = self._waiting.get(visitor.source, {})
        waiting.pop(visitor.peer, None)
        if not waiting:
            self._waiting.pop(visitor.source, None)

    def _make_room(self, source: str) -> bool:
        oldest = next(iter(self._waiting.get(source, {}).values()), None)
        if oldest is None:
            return False
        self._count("crowded")
        self._send_away(oldest)
        return True

    def _too_slow(self, visitor: Visitor) -> None:
        self._count("slow")
        self._send_away(visitor)

    def _send_away(self, visitor: Visitor) -> None:
        self.leave(visitor)
        visitor.send_away()


def source_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, all of which one host may have.

    >>> source_of("192.0.2.7"), source_of("2001:db8::7"), source_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def room_for(connections: int) -> int:
    """Let this process open as many files as it ever may; return how many connections, of those wanted, that allows."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, min(connections, most - _FILES_OF_OUR_OWN))
