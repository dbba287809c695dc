"""The analyzer's client of the shuffler, without a network: what it asks again, and what is the end."""

import httpx
import pytest

from apes.errors import ProtocolError
from apes.federation import shuffler_client
from apes.federation.keys import Authority
from apes.federation.shuffler_client import CohortTooSmall, ShufflerClient, TargetReached


class HungUp:
    """What is left of a connection that the server has closed."""

    def get_extra_info(self, name):
        return None


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client that is answered by what is in its list, one after the other."""
    (tmp_path / "authority.pem").write_bytes(Authority().certificate())
    made, answers = ShufflerClient("https://here", "token", tmp_path / "authority.pem"), []

    def answer(request):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        found.extensions["network_stream"] = HungUp()
        return found

    made._http.close()
    made._http = httpx.Client(transport=httpx.MockTransport(answer), base_url="https://here")
    made.answers = answers
    monkeypatch.setattr(shuffler_client.time, "sleep", lambda seconds: None)
    yield made
    made._http.close()


def test_the_token_goes_to_the_shuffler_and_to_no_proxy(tmp_path, monkeypatch):
    """Whatever the environment says: a proxy could keep the batch, too."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    (tmp_path / "authority.pem").write_bytes(Authority().certificate())
    made = ShufflerClient("https://here", "token", tmp_path / "authority.pem")
    try:
        assert not made._http.trust_env
        assert not made._http._mounts
    finally:
        made._http.close()


def refusal(status, reason):
    return httpx.Response(status, json={"refused": reason, "message": "no"})


def test_who_hangs_up_after_an_answer_has_answered(client):
    """It ended the analyzer: there was no certificate any more to look at."""
    client.answers.append(httpx.Response(204))
    client.announce("ab" * 16, 1, b"announcement")
    assert client.answers == []


def test_who_is_away_or_cannot_write_is_asked_again(client):
    away = httpx.ConnectError("nobody there")
    client.answers += [away, refusal(503, "ledger"), httpx.ReadError("cut"), httpx.Response(204)]
    client.announce("ab" * 16, 1, b"announcement")
    assert client.answers == []


def test_patience_has_an_end(client):
    client._patience = 0.0
    client.answers.append(refusal(503, "ledger"))
    with pytest.raises(ProtocolError, match="the shuffler at https://here does not answer: it answered 503"):
        client.announce("ab" * 16, 1, b"announcement")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(422, "cohort", CohortTooSmall), (403, "target", TargetReached), (401, "token", ProtocolError)],
)
def test_refusals_are_told_apart(client, tmp_path, status, reason, kind):
    (tmp_path / "batch").write_bytes(b"reports")
    client.answers.append(refusal(status, reason))
    with pytest.raises(ProtocolError, match=rf"the shuffler refused \({reason}\): no") as raised:
        client.close_round("ab" * 16, 1, tmp_path / "batch")
    assert type(raised.value) is kind


def test_a_round_that_is_open_has_no_release(client):
    client.answers.append(refusal(404, "open"))
    assert client.release("ab" * 16, 1) is None
