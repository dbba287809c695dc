"""Keys that a SuperLink is told: one that is none, or is not taken, costs nobody else anything.

Before, the first such key ended the registration, and with it the thread of a SuperLink that had just been started.
"""

import json

import httpx
import pytest

pytest.importorskip("flwr")

from apes.errors import ProtocolError
from apes.federation import registration
from apes.federation.keys import Authority, node_key
from apes.federation.superlink import SuperLinkSettings, _register


class Control:
    """Stands in for the SuperLink's local door: notes who is registered, and refuses whom it is told to."""

    def __init__(self):
        self.names, self.refused, self.away = [], (), False

    def __call__(self, url, **choices):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def RegisterNode(self, asked):  # noqa: N802 - Flower's name
        if self.away:
            raise httpx.ConnectError("nobody there")
        if asked.name in self.refused:
            answer = httpx.Response(500, text="no", request=httpx.Request("POST", "https://here"))
            raise httpx.HTTPStatusError("no", request=answer.request, response=answer)
        self.names.append(asked.name)


@pytest.fixture
def control(monkeypatch):
    stub = Control()
    monkeypatch.setattr(registration, "ControlHttpClient", stub)
    return stub


@pytest.fixture
def folder(tmp_path):
    """A SuperLink's, with three nodes' keys."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "authority.pem").write_bytes(Authority().certificate())
    for number in range(3):
        (tmp_path / "nodes" / f"node-{number}.pub").write_bytes(node_key()[1])
    return tmp_path


def events(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("junk", [b"junk 1", b"", b"\xff\xfe", b"ssh-ed25519 AAAA", b"ssh-nothing AAAA x"])
def test_a_bad_key_is_logged_and_the_others_are_registered(control, folder, capsys, junk):
    (folder / "nodes" / "node-.pub").write_bytes(junk)
    assert registration.register(folder, "here:1") == 3
    assert control.names == ["node-0", "node-1", "node-2"]
    (event,) = events(capsys)
    assert event["event"] == "node-not-registered"
    assert "node-.pub" in event["error"]


def test_a_key_that_is_not_taken_is_logged_and_the_others_are_registered(control, folder, capsys):
    control.refused = ("node-0",)
    assert registration.register(folder, "here:1") == 2
    assert control.names == ["node-1", "node-2"]
    (event,) = events(capsys)
    assert event["error"] == "the SuperLink does not register node-0: 500"


def test_nobody_there_is_an_error(control, folder):
    control.away = True
    with pytest.raises(ProtocolError, match="cannot be reached"):
        registration.register(folder, "here:1", patience=0)


def test_what_goes_wrong_as_a_superlink_starts_is_one_line(control, folder, capsys):
    (folder / "authority.pem").unlink()
    _register(folder, SuperLinkSettings("here", 1, 2))
    (event,) = events(capsys)
    assert event["event"] == "not-registered"
    assert "FileNotFoundError" in event["error"]
