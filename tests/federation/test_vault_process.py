"""The vault as a real process on its socket: honest requests, changed ones, rubbish; killed, on a disk that fails."""

import socket
import stat
import subprocess

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import (
    ANALYZER,
    APES,
    BUDGETS,
    EXTREME_WEIGHTS,
    OTHER_RUN,
    RUN,
    VaultProcess,
    agreed,
    announced,
    broken_frame,
    opened,
    until,
)

from apes.federation.courier import ask_vault
from apes.federation.vault.vault import VaultRefusal
from apes.wire.frames import framed

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("vault")]
WORDS = {refusal.value for refusal in VaultRefusal}


@pytest.fixture(scope="module")
def terms():
    return agreed(rounds=100_000)


@pytest.fixture(scope="module")
def vault(small, terms, tmp_path_factory):
    party = VaultProcess(tmp_path_factory.mktemp("vault"), terms, small.keys, small.shuffler)
    party.start()
    yield party
    party.kill()


def is_answered(vault, small, number):
    """Whether a round gets a report of everybody."""
    levels, budgets, senders = opened(vault.sealed(number), small.shuffler)
    return (
        levels.shape == (8, 15)
        and levels.max() < 16
        and (budgets == BUDGETS).all()
        and [sender.hex() for sender in senders] == list(small.policy.senders)
    )


def word(vault, data):
    """The word that the vault refuses these bytes with; nothing else may come out."""
    answer = vault.ask(data)
    assert answer[:1] == b"\1"
    assert answer[1:].decode("ascii") in WORDS
    return answer[1:].decode("ascii")


def test_the_real_vault_answers_once(vault, small):
    number = vault.next_round()
    first = vault.sealed(number)
    assert vault.sealed(number) == first
    other = vault.request(number, np.arange(15, dtype="<f4").tobytes())
    assert word(vault, other) == "announcement"
    assert is_answered(vault, small, number)
    vault.kill()
    vault.start()
    assert vault.sealed(number) == first
    assert word(vault, other) == "announcement"
    assert is_answered(vault, small, vault.next_round())


def spent(vault):
    return vault.rows("select user, epsilon, rounds from spent order by user, epsilon")


def nan_weights():
    return np.full(15, np.nan, "<f4").tobytes()


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
    # Magic and version first; whatever else of an announcement is changed, it is not signed any more.
    number = vault.next_round()
    good = vault.request(number)
    told = [word(vault, flipped(good, 4 + place)) for place in range(186)]
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


def test_extreme_weights_at_the_real_vault(vault, small):
    for weights in EXTREME_WEIGHTS.values():
        levels, _, _ = opened(vault.sealed(vault.next_round(), weights=weights.astype("<f4").tobytes()), small.shuffler)
        assert levels.shape == (8, 15)
    assert not [event for event in vault.events() if event["event"] == "internal"]


def test_killed_before_the_answer_was_read(vault, small):
    number = vault.next_round()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(vault.socket))
        connection.sendall(vault.request(number))
        query = "select answer from answers where run = ? and round = ?"
        ((kept,),) = until(lambda: vault.rows(query, RUN, number))
        vault.kill()
    cost = spent(vault)
    vault.start()
    assert vault.sealed(number) == kept
    assert spent(vault) == cost
    assert is_answered(vault, small, number)


def test_a_disk_that_takes_nothing(vault, small):
    """Not even the log can be written meanwhile."""
    earlier, number = vault.next_round(), vault.next_round()
    kept, before = vault.sealed(earlier), spent(vault)
    vault.let_write(False)
    try:
        for _ in range(3):
            assert word(vault, vault.request(number)) == "ledger"
        assert vault.sealed(earlier) == kept
        assert spent(vault) == before
    finally:
        vault.let_write(True)
    assert is_answered(vault, small, number)
    assert [rounds for _, _, rounds in spent(vault)] == [rounds + 1 for _, _, rounds in before]


def test_a_second_vault_on_the_ledger_is_refused(vault, small):
    before = vault.socket.stat().st_ino
    other = subprocess.run([APES, "vault", vault.folder / "vault.json"], capture_output=True, text=True)
    assert other.returncode == 2
    assert "vault.sock is in use by another process" in other.stderr
    assert vault.socket.stat().st_ino == before
    assert is_answered(vault, small, vault.next_round())


def test_only_the_owner_may_ask(vault):
    assert stat.S_IMODE(vault.socket.stat().st_mode) == 0o600
    for name in ("data.npz", "keys.bin", "ledger.sqlite", "ledger.sqlite-wal"):
        assert stat.S_IMODE((vault.folder / name).stat().st_mode) == 0o600


def test_rubbish(vault, small, noise):
    """40,000 strings, some of them framed as requests are: it stays as large as it was, and so does its log."""
    lines, memory, answers = len(vault.events()), [], set()
    for _ in range(10):
        strings = noise(4_000)
        strings[::3] = [b"".join(framed([string, string[:60]])) for string in strings[::3]]
        for string in strings:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(vault.socket))
                try:
                    connection.sendall(string)
                    connection.shutdown(socket.SHUT_WR)
                    answers.add(connection.recv(64))
                except OSError:
                    continue
        memory.append(vault.memory())
    assert answers == {b"\1request"}
    assert memory[-1] - memory[0] < 20e6, memory
    # One line per power of 2, and what it says when it starts.
    assert len(vault.events()) - lines <= 18, vault.events()[lines:]
    counts = [event["count"] for event in vault.events() if event.get("reason") == "request"]
    assert max(counts) >= 2**15
    assert all(count & (count - 1) == 0 for count in counts)
    assert is_answered(vault, small, vault.next_round())


def test_logs_tell_no_values(vault, small):
    assert is_answered(vault, small, vault.next_round())
    events, text = vault.events(), vault.log.read_text()
    for event in events:
        counted = {"reason", "count"}
        told = {"answered": {"run", "round"}, "refused": counted, "late": counted | {"answer_seconds"}}
        told["vault"] = {"accounts", "message"}
        facts = told[event["event"]]
        assert event.keys() == {"time", "event"} | facts
    assert not [sender for sender in small.policy.senders if sender in text]
    assert not [budget for budget in BUDGETS if str(budget)[2:] in text]


def test_as_a_courier_asks(vault, small):
    number = vault.next_round()
    header = announced(vault.terms.digest, number).signed(ANALYZER)
    assert ask_vault(vault.socket, header, bytes(60), 60.0) == b"\0" + vault.sealed(number)
    assert is_answered(vault, small, number)
    assert ask_vault(vault.socket, b'{"op": "data"}', bytes(60), 60.0) == b"\1request"
    assert ask_vault(vault.socket, header, nan_weights(), 60.0) == b"\1weights"


def test_a_courier_whose_vault_says_nothing(tmp_path):
    """Neither where there is no socket, nor where nobody listens, nor where somebody does and keeps silent."""
    place = tmp_path / "silent.sock"
    assert ask_vault(place, b"{}", b"", 60.0) == b""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        assert ask_vault(place, b"{}", b"", 60.0) == b""
        listener.listen()
        assert ask_vault(place, b"{}", b"", 0.2) == b""
