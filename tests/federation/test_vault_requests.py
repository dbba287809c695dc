"""The vault asked in bytes, in this process: honest requests, changed ones, and what is none.

Only sealed reports and words of refusal leave, what is refused costs nothing, and the log tells no values.
"""

import sqlite3

import numpy as np
import pytest
from asked import is_answered, nan_weights, spent, word
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from local_vault import LocalVault
from parties import BUDGETS, EXTREME_WEIGHTS, OTHER_RUN, agreed, broken_frame, opened

from apes.wire.frames import framed


@pytest.fixture(scope="module")
def vault(small, tmp_path_factory):
    # A millisecond for an answer: there are hundreds of questions.
    folder, terms = tmp_path_factory.mktemp("vault"), agreed(rounds=100_000)
    party = LocalVault(folder, terms, small.keys, small.shuffler, answer_seconds=0.001)
    party.start()
    yield party
    party.kill()


STRANGER_KEY = Ed25519PrivateKey.generate()
CHANGED = {
    "other terms": ({"terms": "00" * 32}, "terms"),
    "unknown run": ({"run": "00" * 16}, "run"),
    "round beyond": ({"number": 100_001}, "round"),
    "round far beyond": ({"number": 2**32 - 1}, "round"),
    "past round": ({"number": 1, "run": OTHER_RUN}, "past"),
    "another announcement of an answered round": (
        {"number": 2, "run": OTHER_RUN, "previous": b"9" * 32},
        "announcement",
    ),
    "signed by a stranger": ({"key": STRANGER_KEY}, "announcement"),
    "signed by a stranger, last round": ({"key": STRANGER_KEY, "number": 100_000}, "announcement"),
    "signed by a stranger, weights of 9": (
        {"key": STRANGER_KEY, "weights": np.full(15, 9, "<f4").tobytes()},
        "announcement",
    ),
}


def flipped(data, place):
    """The bytes with one bit changed."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_changed_announcements(vault, small):
    """Each is refused with its word, costs nothing, and the next honest request is answered."""
    assert vault.sealed(2, run=OTHER_RUN)
    before = spent(vault)
    words = {name: word(vault, vault.request(**({"number": 1} | changes))) for name, (changes, _) in CHANGED.items()}
    assert words == {name: expected for name, (_, expected) in CHANGED.items()}
    # Magic and version first; whatever else of an announcement is changed, it is not signed any more. Not the first
    # round, which one bit would make round 0.
    number = vault.next_round() + 1
    good = vault.request(number)
    told = [word(vault, flipped(good, 4 + place)) for place in range(186)]
    assert vault.next_round() == number
    assert told[:6] == 6 * ["request"]
    assert set(told[6:]) == {"announcement"}
    assert word(vault, flipped(good, len(good) - 1)) == "weights"
    assert spent(vault) == before
    assert is_answered(vault, small, number)


def test_changed_weights(vault, small):
    number, before = vault.next_round(), spent(vault)
    for weights, expected in [
        (nan_weights(), "weights"),
        (bytes(56) + np.array([np.inf], "<f4").tobytes(), "weights"),
        (b"", "weights"),
        (bytes(56), "weights"),
        (bytes(59), "weights"),
        (bytes(61), "request"),
        (bytes(1 << 20), "request"),
    ]:
        assert word(vault, vault.request(number, weights)) == expected
    assert spent(vault) == before
    assert is_answered(vault, small, number)


def test_what_is_no_request(vault, small):
    number, before = vault.next_round(), spent(vault)
    good = vault.request(number)
    texts = [b"", b"{", b"null", b"3", b"[]", b'"text"', b"{}", b"\xff\xfe", b"NaN", b'{"op": "data"}']
    deep = [93 * b"[" + 93 * b"]", 186 * b"[", 1024 * b"["]
    for data in [
        *(b"".join(framed([text, bytes(60)])) for text in [*texts, *deep]),
        b"",
        good[:3],
        good[:50],
        good[:-1],
        good[:-60],
        broken_frame(187, bytes(187)),
        broken_frame(2**32 - 1, bytes(10)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"".join(framed([b"data.npz", b""])),
    ]:
        assert word(vault, data) == "request", data
    assert spent(vault) == before
    assert is_answered(vault, small, number)


def test_extreme_weights(vault, small):
    for weights in EXTREME_WEIGHTS.values():
        levels, _, _ = opened(vault.sealed(vault.next_round(), weights=weights.astype("<f4").tobytes()), small.shuffler)
        assert levels.shape == (8, 15)
    assert not [event for event in vault.events() if event["event"] == "internal"]


def test_an_answered_round_stays_as_it_was(vault, small):
    number = vault.next_round()
    first = vault.sealed(number)
    other = vault.request(number, np.arange(15, dtype="<f4").tobytes())
    for _ in range(2):
        assert vault.sealed(number) == first
        assert word(vault, other) == "announcement"
        vault.restart()
    assert is_answered(vault, small, vault.next_round())


def test_a_ledger_that_takes_nothing(vault, small):
    """What left before is answered as it was; what is new costs nothing."""
    earlier, number = vault.next_round(), vault.next_round()
    kept, before = vault.sealed(earlier), spent(vault)
    for error in (OSError(28, "No space left on device"), sqlite3.OperationalError("disk I/O error")):
        vault.fail("before the ledger's commit", error)
        assert [word(vault, vault.request(number)) for _ in range(3)] == 3 * ["ledger"]
        assert vault.sealed(earlier) == kept
        assert spent(vault) == before
    vault.heal()
    assert is_answered(vault, small, number)
    assert [rounds for _, _, rounds in spent(vault)] == [rounds + 1 for _, _, rounds in before]


def test_an_error_inside_tells_nobody_its_words(vault, small):
    """It may depend on the data: neither the courier nor the log hears more than that there was one, and its kind."""
    number, before = vault.next_round(), spent(vault)
    vault.fail("before the draw", RuntimeError(f"user 3 has the budget {BUDGETS[3]}"))
    lines = len(vault.events())
    assert word(vault, vault.request(number)) == "internal"
    vault.heal()
    told = [event for event in vault.events()[lines:] if event["event"] != "late"]
    assert [event.keys() - {"time"} for event in told] == [{"event", "kind"}, {"event", "reason", "count"}]
    assert (told[0]["kind"], told[1]["reason"]) == ("RuntimeError", "internal")
    assert spent(vault) == before
    assert is_answered(vault, small, number)


def test_logs_tell_no_values(vault, small):
    assert is_answered(vault, small, vault.next_round())
    assert word(vault, vault.request(vault.next_round(), nan_weights())) == "weights"
    counted = {"reason", "count"}
    told = {"answered": {"run", "round"}, "refused": counted, "late": counted | {"answer_seconds"}}
    told |= {"vault": {"accounts", "message"}, "internal": {"kind"}}
    events, text = vault.events(), vault.log.read_text()
    assert {"answered", "refused", "vault"} <= {event["event"] for event in events}
    for event in events:
        assert event.keys() == {"time", "event"} | told[event["event"]]
    assert not [sender for sender in small.policy.senders if sender in text]
    assert not [budget for budget in BUDGETS if str(budget)[2:] in text]


def test_rubbish(vault, small, noise):
    """Some of it framed as requests are: it is no request, costs nothing, and its log grows by the powers of two."""
    lines, before, strings = len(vault.events()), spent(vault), noise(300)
    strings[::3] = [b"".join(framed([string, string[:60]])) for string in strings[::3]]
    assert {vault.ask(string) for string in strings} == {b"\1request"}
    counts = [event["count"] for event in vault.events()[lines:] if event["event"] == "refused"]
    assert all(count & (count - 1) == 0 for count in counts)
    assert len(counts) <= 10
    assert spent(vault) == before
    assert is_answered(vault, small, vault.next_round())
