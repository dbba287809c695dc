"""The shuffler's door by direct calls: who is let in, who has to go, who may stay; and how long a header may be."""

import asyncio
from types import SimpleNamespace

import pytest
import uvicorn

from apes.shuffler.service.door import Door, Visitor, source_of
from apes.shuffler.service.listener import Greeter, Listener, _Visit, is_shown

NEVER = 1e6


class Guest(Visitor):
    """A connection that notes when it is sent away."""

    def __init__(self, host, port):
        super().__init__(None, (host, port))
        self.is_gone = False

    def send_away(self):
        self.is_gone = True


def at_a_door(story, most=4, most_per_source=3, seconds=NEVER):
    """Tell a story of a door in an event loop; the reasons for which connections had to go, in order."""
    reasons = []

    async def told():
        door = Door(most, most_per_source, seconds, reasons.append)
        await story(door)
        door.shut()

    asyncio.run(told())
    return reasons


def test_an_address_has_so_many_connections_and_its_oldest_makes_room():
    async def story(door):
        guests = [Guest("192.0.2.1", port) for port in range(4)]
        assert all([door.enter(guest) for guest in guests])
        assert [guest.is_gone for guest in guests] == [True, False, False, False]
        other = Guest("192.0.2.2", 1)
        assert door.enter(other)
        assert not other.is_gone

    assert at_a_door(story) == ["crowded"]


def test_where_everything_is_full_the_address_with_most_makes_room():
    async def story(door):
        few, many = Guest("192.0.2.9", 1), [Guest("192.0.2.1", port) for port in range(3)]
        assert all([door.enter(guest) for guest in (few, *many)])
        assert door.enter(Guest("192.0.2.7", 1))
        assert [guest.is_gone for guest in (few, *many)] == [False, True, False, False]

    assert at_a_door(story) == ["crowded"]


def test_who_shows_the_token_is_sent_away_for_nobody():
    async def story(door):
        analyzers = [Guest("192.0.2.1", port) for port in range(3)]
        for guest in analyzers:
            assert door.enter(guest)
            door.asked(guest.peer, True)
        assert not door.enter(Guest("192.0.2.1", 9))
        assert not any(guest.is_gone for guest in analyzers)
        # Answered, it waits as anybody does.
        door.answered(analyzers[1].peer)
        assert door.enter(Guest("192.0.2.1", 10))
        assert [guest.is_gone for guest in analyzers] == [False, True, False]

    assert at_a_door(story) == ["full", "crowded"]


def test_a_request_without_the_token_gives_no_right_to_stay():
    async def story(door):
        stranger = Guest("192.0.2.1", 1)
        assert door.enter(stranger)
        door.asked(stranger.peer, False)
        assert all([door.enter(Guest("192.0.2.1", port)) for port in range(2, 5)])
        assert stranger.is_gone

    assert at_a_door(story) == ["crowded"]


def test_who_says_nothing_goes_and_who_is_served_stays():
    async def story(door):
        silent, analyzer = Guest("192.0.2.1", 1), Guest("192.0.2.1", 2)
        for guest in (silent, analyzer):
            assert door.enter(guest)
        door.asked(analyzer.peer, True)
        async with asyncio.timeout(300):
            while not silent.is_gone:
                await asyncio.sleep(0.001)
            assert not analyzer.is_gone
            door.answered(analyzer.peer)
            while not analyzer.is_gone:
                await asyncio.sleep(0.001)

    assert at_a_door(story, seconds=0.005) == ["slow", "slow"]


def test_who_leaves_makes_room():
    async def story(door):
        for port in range(20):
            guest = Guest("192.0.2.1", port)
            assert door.enter(guest)
            door.leave(guest)
            door.leave(guest)
        assert not door._visitors
        assert not door._by_source
        assert not door._waiting

    assert at_a_door(story) == []


def test_a_door_that_is_shut_lets_requests_with_the_token_end():
    async def story(door):
        silent, analyzer = Guest("192.0.2.1", 1), Guest("192.0.2.1", 2)
        for guest in (silent, analyzer):
            assert door.enter(guest)
        door.asked(analyzer.peer, True)
        door.shut()
        assert (silent.is_gone, analyzer.is_gone) == (True, False)

    assert at_a_door(story) == []


@pytest.mark.parametrize(
    ("host", "source"), [("127.0.0.1", "127.0.0.1"), ("2001:db8::1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64")]
)
def test_what_counts_as_one_address(host, source):
    assert source_of(host) == source


@pytest.mark.parametrize(
    "shown", [None, b"", b"secret", b"Bearer", b"Bearer secre", b"Bearer secrets", b"bearer secret"]
)
def test_what_is_not_the_token(shown):
    headers = [(b"host", b"Bearer secret")] + ([] if shown is None else [(b"authorization", shown)])
    assert not is_shown(headers, b"Bearer secret")
    # Nor is it when it comes second.
    if shown is not None:
        assert not is_shown([*headers, (b"authorization", b"Bearer secret")], b"Bearer secret")
    assert is_shown([(b"authorization", b"Bearer secret")], b"Bearer secret")


def test_a_greeter_tells_the_door_who_asked_and_that_it_is_over():
    heard = []
    door = SimpleNamespace(
        asked=lambda peer, shows: heard.append(("asked", peer, shows)),
        answered=lambda peer: heard.append(("answered", peer)),
    )

    async def app(scope, receive, send):
        heard.append("app")
        raise KeyError

    greeter = Greeter(app, door, b"Bearer secret")
    scope = {"client": ["192.0.2.1", 7], "method": "GET", "raw_path": b"/"}
    scope["headers"] = [(b"authorization", b"Bearer secret")]
    with pytest.raises(KeyError):
        asyncio.run(greeter(scope, None, None))
    peer = ("192.0.2.1", 7)
    assert heard == [("asked", peer, True), "app", ("answered", peer)]


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self):
        self.written, self.is_closed = b"", False

    def write(self, data):
        self.written += data

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed

    def get_extra_info(self, _):
        return None


def test_a_header_without_end_is_refused_at_16_kib():
    async def story(door):
        config = uvicorn.Config(lambda *_: None, http="h11", ws="none", lifespan="off", log_config=None)
        config.load()
        listener = Listener(config, door, NEVER, lambda: None)
        listener.lifespan = config.lifespan_class(config)
        guest, wire = Guest("192.0.2.1", 1), Wire()
        assert door.enter(guest)
        visit = _Visit(listener, door, guest)
        visit.connection_made(wire)
        visit.data_received(b"GET /health HTTP/1.1\r\nX-Long: ")
        for _ in range(15):
            visit.data_received(1024 * b"x")
        assert wire.written == b""
        visit.data_received(2048 * b"x")
        assert wire.written.startswith(b"HTTP/1.1 400")
        visit.connection_lost(None)
        # The door has heard of its end.
        assert not door._visitors

    assert at_a_door(story) == []
