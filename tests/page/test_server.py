"""The server: our own page is answered, strangers are not; what is sent is bounded; it starts and ends in order."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from apes.page.answers import certified
from apes.page.setting import read_setting
from apes.page.uploads import Uploads
from tests.page.test_setting import ASKED

SMALL = ASKED | {"users": "2000", "rounds": "2", "dimensions": "50"}


def start(*options):
    """A server of the command line's, its address and its process; ended with the context."""
    words = [sys.executable, "-m", "apes", "page", "--no-open", "--json", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def serving(*options):
    process = start(*options)
    try:
        yield process, int(json.loads(process.stdout.readline())["url"].split(":")[2].strip("/"))
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def port():
    with serving("--port", "0") as (_, port):
        yield port


def ask(port, method="GET", path="/", body=None, **headers):
    """Status, headers and body of a request, as whoever wrote it wants it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    with contextlib.closing(connection):
        return answer.status, dict(answer.getheaders()), answer.read()


def question(setting, page="test", number=1):
    return json.dumps({"page": page, "number": number, "setting": setting}).encode()


def answers(port, setting, **more):
    status, _, body = ask(port, "POST", "/answer", question(setting, **more), Content_Type="application/json")
    assert status == 200
    return [json.loads(line) for line in body.decode().splitlines()]


def test_the_page_is_there_and_loads_nothing_from_elsewhere(port):
    status, headers, body = ask(port)
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "server" not in headers
    text = body.decode()
    for name in ("page.css", "page.js", "asking.js", "charts.js", "fields.js", "mixture.js", "showing.js", "icon.svg"):
        status, _, part = ask(port, path=f"/{name}")
        assert status == 200
        text += part.decode()
    others = {word for word in text.split() if "://" in word and "www.w3.org/2000/svg" not in word}
    assert others == set()


def test_an_answer_in_parts(port):
    found = answers(port, SMALL)
    by_name = {part["part"]: part for part in found}
    assert found[0]["part"] == "about"
    assert found[-1]["part"] == "end"
    assert by_name["total"]["epsilon"] == certified(read_setting(SMALL, Uploads()))
    assert {part["number"] for part in found} == {1}
    assert not any("error" in part for part in found)


def test_an_older_question_of_a_page_is_not_gone_on_with(port):
    """Number 8 comes after number 9 of the same page: it is not worked on; another page's is."""
    assert answers(port, SMALL, page="other", number=9)[-1]["part"] == "end"
    assert answers(port, SMALL, page="other", number=8)[-1]["part"] == "superseded"
    assert answers(port, SMALL, page="third", number=8)[-1]["part"] == "end"


def test_a_budgets_file_is_taken_and_asked_about(port):
    headers = {"Content_Type": "text/csv"}
    status, _, body = ask(port, "POST", "/budgets?name=wishes.csv", b"0.1\n0.5\n1\n" * 500, **headers)
    assert status == 200
    found = json.loads(body)
    assert found["users"] == 1500
    assert answers(port, SMALL | {"upload": found["upload"]})[0]["users"] == 1500
    status, _, body = ask(port, "POST", "/budgets?name=wishes.csv", b"no,budgets\nhere,either\n", **headers)
    assert status == 422
    assert "must be a number" in json.loads(body)["refused"]


def test_nonsense_is_refused_field_by_field(port):
    wrong = question(SMALL | {"rounds": "x", "users": "-1"})
    status, _, body = ask(port, "POST", "/answer", wrong, Content_Type="application/json")
    assert status == 422
    assert set(json.loads(body)["fields"]) == {"rounds", "users"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
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
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/answer", "/budgets?name=f.csv", "/health", "/page.js"])
def test_strangers_are_refused(port, headers, status, path):
    body = {"/answer": question(SMALL, page=path + str(headers)), "/budgets?name=f.csv": b"0.5\n"}.get(path)
    method = "GET" if body is None else "POST"
    named = {name: value.replace("PORT", str(port)) for name, value in headers.items()}
    kind = "application/json" if path == "/answer" else "text/csv"
    assert ask(port, method, path, body, Content_Type=kind, **named)[0] == status


def test_two_hosts_are_no_host(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 200 " not in line.recv(200)


def test_a_link_to_the_page_may_stand_anywhere(port):
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    status, headers, _ = ask(port, **visit)
    assert status == 200
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


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
def test_what_is_sent_is_bounded_and_understood(port, path, body, kind, status):
    try:
        assert ask(port, "POST", path, body, Content_Type=kind)[0] == status
    except (BrokenPipeError, ConnectionResetError):
        # Refused before all of it was sent.
        assert status == 413
    assert ask(port, path="/health")[0] == 200


def test_a_body_without_a_length_is_bounded_too(port):
    """Chunk after chunk, far beyond the limit, and no length said beforehand."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        line.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(200):
                line.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b" 413 " in line.recv(200)
    assert ask(port, path="/health")[0] == 200


def test_many_at_once_are_answered_or_told_to_wait(port):
    """Forty questions of forty pages: each gets its answer or is told that there are too many; none hangs."""
    found = []

    def one(number):
        body = question(SMALL | {"rounds": str(number)}, page=f"crowd {number}")
        status, _, lines = ask(port, "POST", "/answer", body, Content_Type="application/json")
        found.append((status, json.loads(lines.splitlines()[-1])))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(1, 41)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert {status for status, _ in found} <= {200, 503}
    assert any(status == 200 for status, _ in found)
    assert all(last.get("part") == "end" or "too many" in last["refused"] for _, last in found)
    assert answers(port, SMALL, page="after the crowd")[-1]["part"] == "end"


def test_who_hangs_up_leaves_nothing_behind(port):
    """Thirty callers who go away after the first line: later ones are not told that there are too many."""
    for number in range(30):
        body = question(SMALL | {"rounds": str(100 + number)}, page=f"gone {number}")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            line.recv(100)
    assert answers(port, SMALL, page="who stays")[-1]["part"] == "end"


def test_a_slow_caller_keeps_nobody_waiting(port):
    slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
    try:
        for line in slow:
            line.sendall(f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 1000\r\n".encode())
        assert ask(port, path="/health")[0] == 200
        assert answers(port, SMALL, page="quick")[-1]["part"] == "end"
    finally:
        for line in slow:
            line.close()


def test_it_listens_on_loopback_only(port):
    others = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        with pytest.raises(OSError):  # noqa: PT011 - refused, out of reach or not there, by platform
            socket.create_connection((address, port), timeout=5).close()


def test_a_port_that_is_taken_is_one_line(port):
    process = start("--port", str(port))
    printed, said = process.communicate(timeout=120)
    assert (process.returncode, printed) == (2, "")
    assert said.startswith("apes: port must be one that is free")
    assert said.count("\n") == 1
    assert str(port) in said


@pytest.mark.parametrize("number", ["-1", "70000"])
def test_no_port_is_one_line(number):
    process = start(f"--port={number}")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.startswith("apes: port must be")
    assert said.count("\n") == 1


def test_interrupted_it_ends_quietly():
    with serving("--port", "0") as (process, port):
        # An answer is on its way.
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            body = question(SMALL | {"users": "20000"})
            head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            line.recv(100)
            os.kill(process.pid, signal.SIGINT)
            printed, said = process.communicate(timeout=120)
        assert (process.returncode, printed, said) == (0, "", "")


def test_nothing_that_is_asked_is_printed():
    with serving("--port", "0") as (process, port):
        answers(port, SMALL)
        ask(port, "POST", "/budgets?name=secret.csv", b"0.123456\n", Content_Type="text/csv")
        ask(port, path="/nothing", Host="evil.example")
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=120) == ("", "")


def test_the_adviser_says_what_the_command_says(port):
    asked = SMALL | {"target": "2"}
    body = json.dumps({"setting": asked}).encode()
    status, _, lines = ask(port, "POST", "/advise", body, Content_Type="application/json")
    assert status == 200
    *progress, found = [json.loads(line) for line in lines.decode().splitlines()]
    assert [line["done"] for line in progress] == sorted(line["done"] for line in progress)
    words = "advise --budgets 0.1:60%,0.5:30%,1:10% --users 2000 --rounds 2 --dimensions 50 --delta 1e-6".split()
    told = [sys.executable, "-m", "apes", *words, "--target-epsilon", "2", "--json"]
    expected = json.loads(subprocess.run(told, capture_output=True, text=True, check=True).stdout)["ways"]
    shown = [{name: way[name] for name in ("framework", "epsilon", "accuracy", "groups")} for way in found["ways"]]
    assert shown == [{name: way[name] for name in ("framework", "epsilon", "accuracy", "groups")} for way in expected]


@pytest.mark.parametrize("target", ["", "none", "0", "-1", "nan", None])
def test_a_target_that_is_none_is_said_beside_its_field(port, target):
    body = json.dumps({"setting": SMALL | {"target": target}}).encode()
    status, _, said = ask(port, "POST", "/advise", body, Content_Type="application/json")
    assert status == 422
    assert "target_epsilon must be" in json.loads(said)["fields"]["target"]
