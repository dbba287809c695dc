"""The server as a process: it answers on this machine, in parts, bounds what is sent, starts and ends in order.

Who is answered at all, and what is refused, is in test_door.py.
"""

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
from typer.testing import CliRunner

from apes.cli.main import app
from apes.page.answers import certified
from apes.page.server import listen
from apes.page.setting import read_setting
from apes.page.uploads import Uploads
from tests.page.test_setting import ASKED

pytestmark = pytest.mark.process
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
        process.communicate(timeout=600)


@pytest.fixture(scope="module")
def port():
    with serving("--port", "0") as (_, port):
        yield port


def ask(port, method="GET", path="/", body=None, **headers):
    """Status, headers and body of a request, as whoever wrote it wants it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
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


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}], ids=str
)
def test_strangers_are_refused(port, headers):
    assert ask(port, path="/health", **headers)[0] in (403, 421)


def test_two_hosts_are_no_host(port):
    with socket.create_connection(("127.0.0.1", port), timeout=600) as line:
        line.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 200 " not in line.recv(200)


def test_a_body_that_is_too_long_is_refused(port):
    try:
        assert ask(port, "POST", "/answer", b" " * (2**16 + 1), Content_Type="application/json")[0] == 413
    except (BrokenPipeError, ConnectionResetError):
        # Refused before all of it was sent.
        pass
    assert ask(port, path="/health")[0] == 200


def test_a_body_without_a_length_is_bounded_too(port):
    """Chunk after chunk, far beyond the limit, and no length said beforehand."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as line:
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        line.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(200):
                line.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b" 413 " in line.recv(200)
    assert ask(port, path="/health")[0] == 200


def test_many_at_once_are_answered_or_told_to_wait(port):
    """Forty questions of forty pages: each gets its answer or is told that there are too many; none hangs.

    All ask about the same few settings, whose figures are remembered.
    """
    found = []

    def one(number):
        body = question(SMALL | {"rounds": str(1 + number % 2)}, page=f"crowd {number}")
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
        body = question(SMALL | {"rounds": str(1 + number % 2)}, page=f"gone {number}")
        with socket.create_connection(("127.0.0.1", port), timeout=600) as line:
            head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            line.recv(100)
    assert answers(port, SMALL, page="who stays")[-1]["part"] == "end"


def test_a_slow_caller_keeps_nobody_waiting(port):
    slow = [socket.create_connection(("127.0.0.1", port), timeout=600) for _ in range(20)]
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
    printed, said = process.communicate(timeout=600)
    assert (process.returncode, printed) == (2, "")
    assert said.startswith("apes: --port must be one that is free")
    assert said.count("\n") == 1
    assert str(port) in said


@pytest.mark.service
@pytest.mark.parametrize("number", ["-1", "70000"])
def test_no_port_is_one_line(number):
    done = CliRunner().invoke(app, ["page", "--no-open", f"--port={number}"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("apes: --port must be")
    assert done.stderr.count("\n") == 1


@pytest.mark.service
def test_the_address_is_of_this_machine_alone():
    with contextlib.closing(listen(0)) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_interrupted_it_ends_quietly():
    with serving("--port", "0") as (process, port):
        # An answer is on its way.
        with socket.create_connection(("127.0.0.1", port), timeout=600) as line:
            body = question(SMALL | {"users": "20000"})
            head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            line.recv(100)
            os.kill(process.pid, signal.SIGINT)
            printed, said = process.communicate(timeout=600)
        assert (process.returncode, printed, said) == (0, "", "")


def test_nothing_that_is_asked_is_printed():
    with serving("--port", "0") as (process, port):
        answers(port, SMALL)
        ask(port, "POST", "/budgets?name=secret.csv", b"0.123456\n", Content_Type="text/csv")
        ask(port, path="/nothing", Host="evil.example")
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=600) == ("", "")


def test_the_adviser_says_what_the_command_says(port):
    asked = SMALL | {"target": "2"}
    body = json.dumps({"setting": asked}).encode()
    status, _, lines = ask(port, "POST", "/advise", body, Content_Type="application/json")
    assert status == 200
    *progress, found = [json.loads(line) for line in lines.decode().splitlines()]
    assert [line["done"] for line in progress] == sorted(line["done"] for line in progress)
    words = "advise --budgets 0.1:60%,0.5:30%,1:10% --users 2000 --rounds 2 --dimensions 50 --delta 1e-6".split()
    told = CliRunner().invoke(app, [*words, "--target-epsilon", "2", "--json"])
    expected = json.loads(told.stdout)["ways"]
    shown = [{name: way[name] for name in ("framework", "epsilon", "accuracy", "groups")} for way in found["ways"]]
    assert shown == [{name: way[name] for name in ("framework", "epsilon", "accuracy", "groups")} for way in expected]
