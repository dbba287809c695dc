"""The application without a network: strangers are refused, what is sent is bounded, too many have to wait."""

import asyncio
import contextlib
import json
from dataclasses import dataclass

import pytest

from apes.page import desk
from apes.page.server import create_app
from tests.page.test_setting import ASKED

PORT = 8300


def question(page="test", number=1, **changed):
    return json.dumps({"page": page, "number": number, "setting": ASKED | changed}).encode()


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def lines(self):
        assert self.status == 200, self.body
        return [json.loads(line) for line in self.body.splitlines()]

    def json(self):
        return json.loads(self.body)


async def asked(app, method, path, body=None, **headers):
    """Ask an ASGI application, as a server would; a body may be chunks, whose length is not said beforehand."""
    named = {"Host": "127.0.0.1:PORT"} | {name.replace("_", "-"): value for name, value in headers.items()}
    chunks = list(body) if body is not None and not isinstance(body, bytes) else [body or b""]
    if isinstance(body, bytes):
        named["Content-Length"] = str(len(body))
    pairs = [(name, value) for name, values in named.items() for value in values.split("|")]
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.replace("PORT", str(PORT)).encode()) for name, value in pairs],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", PORT),
    }
    answer = Answer(0, {}, b"")

    async def receive():
        if not chunks:
            # Whoever asked stays on the line.
            await asyncio.Event().wait()
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    async def send(message):
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


def sent(app, *request, **headers):
    return asyncio.run(asked(app, *request, **headers))


@pytest.fixture
def client(monkeypatch):
    """The application, whose answers to a setting are one figure."""
    monkeypatch.setattr(desk, "parts", lambda setting: iter([("about", lambda: {"users": setting.users})]))
    return create_app(PORT)


STRANGERS = [
    ({"Host": "evil.example"}, 421),
    ({"Host": "evil.example:PORT"}, 421),
    ({"Host": "127.0.0.1"}, 421),
    ({"Host": "127.0.0.1:1"}, 421),
    ({"Host": "127.0.0.1.evil.example:PORT"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "https://127.0.0.1:PORT"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Sec_Fetch_Site": "cross-site"}, 403),
    ({"Sec_Fetch_Site": "same-site"}, 403),
    ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
    ({"Host": "localhost:PORT", "Origin": "http://localhost:PORT", "Sec_Fetch_Site": "same-origin"}, 200),
]
ASKS = [
    ("POST", "/answer", question(), "application/json"),
    ("POST", "/budgets?name=f.csv", b"0.5\n", "text/csv"),
    ("GET", "/health", None, "text/csv"),
    ("GET", "/page.js", None, "text/csv"),
]


@pytest.mark.parametrize(("headers", "status"), STRANGERS, ids=str)
def test_strangers_are_refused(client, headers, status):
    for method, path, body, kind in ASKS:
        assert sent(client, method, path, body, Content_Type=kind, **headers).status == status, path


@pytest.mark.parametrize(
    "hosts", ["127.0.0.1:PORT|evil.example", "evil.example|127.0.0.1:PORT", "127.0.0.1:PORT|127.0.0.1:PORT"]
)
def test_two_hosts_are_no_host(client, hosts):
    assert sent(client, "GET", "/health", Host=hosts).status == 421


def test_a_link_to_the_page_may_stand_anywhere(client):
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    answer = sent(client, "GET", "/", **visit)
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/health", 200), ("/nothing", 404), ("/answer", 405)])
def test_every_answer_says_that_nothing_is_loaded_from_elsewhere(client, path, status):
    for headers, expected in (({}, status), ({"Host": "evil.example"}, 421)):
        answer = sent(client, "GET", path, **headers)
        assert answer.status == expected
        policy = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
        own = dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'")
        none = dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
        assert policy == own | none
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/answer", b"{}", "application/json", 400),
        ("/answer", b"[]", "application/json", 400),
        ("/answer", b"{", "application/json", 400),
        ("/answer", b"[" * 60_000, "application/json", 400),
        ("/answer", b"\xff", "application/json", 400),
        ("/answer", b'{"page": 1, "number": 1, "setting": {}}', "application/json", 400),
        ("/answer", b'{"page": "p", "number": "1", "setting": {}}', "application/json", 400),
        ("/answer", b'{"page": "p", "number": 1, "setting": []}', "application/json", 400),
        ("/answer", b'{"page": "p", "number": 1, "setting": {}}', "text/plain", 415),
        ("/answer", b" " * (2**16 + 1), "application/json", 413),
        ("/budgets?name=f.csv", b"1\n" * (17 * 2**20), "text/csv", 413),
        ("/budgets", b"1\n", "text/csv", 422),
        ("/budgets?name=", b"1\n", "text/csv", 400),
        (f"/budgets?name={'x' * 300}", b"1\n", "text/csv", 400),
        ("/nothing", b"", "text/csv", 404),
        ("/../setting.py", b"", "text/csv", 404),
        ("/docs", b"", "text/csv", 404),
        ("/openapi.json", b"", "text/csv", 404),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_sent_is_bounded_and_understood(client, path, body, kind, status):
    assert sent(client, "POST", path, body, Content_Type=kind).status == status
    assert sent(client, "GET", "/health").status == 200


def test_a_body_without_a_length_is_bounded_too(client):
    chunks = (b" " * 4096 for _ in range(17))
    answer = sent(client, "POST", "/answer", chunks, Content_Type="application/json")
    assert answer.status == 413


def answers(app, **more):
    return sent(app, "POST", "/answer", question(**more), Content_Type="application/json").lines


def test_an_older_question_of_a_page_is_not_gone_on_with(client):
    """Number 8 comes after number 9 of the same page: it is not worked on; another page's is."""
    assert answers(client, page="other", number=9)[-1]["part"] == "end"
    assert answers(client, page="other", number=8)[-1]["part"] == "superseded"
    assert answers(client, page="third", number=8)[-1]["part"] == "end"


def test_nonsense_is_refused_field_by_field(client):
    wrong = question(rounds="x", users="-1")
    answer = sent(client, "POST", "/answer", wrong, Content_Type="application/json")
    assert answer.status == 422
    assert set(answer.json()["fields"]) == {"rounds", "users"}


@pytest.mark.parametrize("target", ["", "none", "0", "-1", "nan", None])
def test_a_target_that_is_none_is_said_beside_its_field(client, target):
    body = json.dumps({"setting": ASKED | {"target": target}}).encode()
    answer = sent(client, "POST", "/advise", body, Content_Type="application/json")
    assert answer.status == 422
    assert "target_epsilon must be" in answer.json()["fields"]["target"]


def test_a_budgets_file_is_taken_and_asked_about(client):
    answer = sent(client, "POST", "/budgets?name=wishes.csv", b"0.1\n0.5\n1\n" * 500, Content_Type="text/csv")
    assert answer.status == 200
    found = answer.json()
    assert found["users"] == 1500
    assert answers(client, upload=found["upload"])[0]["users"] == 1500
    answer = sent(client, "POST", "/budgets?name=wishes.csv", b"no,budgets\nhere,either\n", Content_Type="text/csv")
    assert answer.status == 422
    assert "must be a number" in answer.json()["refused"]


def test_too_many_at_once_are_told_to_wait(monkeypatch):
    """As many as may wait are worked on; the next is told that there are too many; all others get their answers."""
    monkeypatch.setattr(desk, "parts", lambda setting: iter([("about", dict)]))
    application = create_app(PORT)

    async def crowd():
        may_go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def made(self, worker, make):
            begun.release()
            await may_go_on.wait()
            return make()

        monkeypatch.setattr(desk.Desk, "_made", made)

        def ask(page):
            return asked(application, "POST", "/answer", question(page=page), Content_Type="application/json")

        first = [asyncio.ensure_future(ask(f"page {number}")) for number in range(desk._WAITING)]
        for _ in first:
            await begun.acquire()
        late, worked_on = (asyncio.ensure_future(each) for each in (ask("late"), begun.acquire()))
        await asyncio.wait({late, worked_on}, return_when=asyncio.FIRST_COMPLETED)
        may_go_on.set()
        return await late, await asyncio.gather(*first), await ask("late")

    late, first, again = asyncio.run(crowd())
    assert late.status == 503
    assert "too many" in late.json()["refused"]
    assert [answer.lines[-1]["part"] for answer in first] == ["end"] * desk._WAITING
    assert again.lines[-1]["part"] == "end"


def test_questions_that_arrive_together_are_counted_before_work_begins(monkeypatch):
    """Sixty at once: all places are taken, the others are refused, and afterwards every place is free again."""
    monkeypatch.setattr(desk, "parts", lambda setting: iter([("about", dict)]))
    application = create_app(PORT)

    def ask(page):
        return asked(application, "POST", "/answer", question(page=page), Content_Type="application/json")

    async def crowd():
        may_go_on, begun_or_refused = asyncio.Event(), asyncio.Semaphore(0)

        async def made(self, worker, make):
            begun_or_refused.release()
            await may_go_on.wait()
            return make()

        async def ask_and_tell(page):
            answer = await ask(page)
            if answer.status == 503:
                begun_or_refused.release()
            return answer

        monkeypatch.setattr(desk.Desk, "_made", made)
        asking = [asyncio.ensure_future(ask_and_tell(f"page {number}")) for number in range(60)]
        for _ in asking:
            await begun_or_refused.acquire()
        may_go_on.set()
        statuses = [answer.status for answer in await asyncio.gather(*asking)]
        again = [answer.status for answer in await asyncio.gather(*map(ask, map(str, range(desk._WAITING))))]
        return statuses, again

    statuses, again = asyncio.run(crowd())
    assert (statuses.count(200), statuses.count(503)) == (desk._WAITING, 60 - desk._WAITING)
    assert again == [200] * desk._WAITING


def test_a_question_whose_page_has_gone_gives_its_place_back(monkeypatch):
    """The client leaves before the first line is asked for: the place is free, not lost for ever."""
    monkeypatch.setattr(desk, "parts", lambda setting: iter([("about", dict)]))
    made = []
    real = desk.Desk.__init__
    monkeypatch.setattr(desk.Desk, "__init__", lambda self: (real(self), made.append(self))[0])
    application = create_app(PORT)
    body = question()

    async def leave():
        messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

        async def receive():
            return messages.pop(0) if messages else await asyncio.Event().wait()

        async def send(message):
            raise OSError("the client has gone")

        headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/answer", "query_string": b"", "headers": headers}
        scope |= {
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
        }
        scope |= {"raw_path": b"/answer", "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1)}
        with contextlib.suppress(Exception):
            await application(scope, receive, send)

    asyncio.run(leave())
    assert made[0]._working == 0


def test_what_goes_wrong_in_one_figure_takes_no_other_with_it(monkeypatch):
    def wrong():
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(desk, "parts", lambda setting: iter([("total", wrong), ("lower", lambda: {"lower": 1.0})]))
    first, second, end = answers(create_app(PORT))
    assert "ZeroDivisionError" in first["error"]
    assert second["lower"] == 1.0
    assert end["part"] == "end"
