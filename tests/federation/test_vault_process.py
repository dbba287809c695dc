"""The vault as a real process on its socket: honest requests, changed ones, rubbish; killed, on a disk that fails."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from parties import (
    APES,
    BUDGETS,
    EXTREME_WEIGHTS,
    OTHER_RUN,
    RUN,
    VaultProcess,
    agreed,
    broken_frame,
    is_root,
    opened,
    until,
)

from apes.federation.vault.vault import VaultRefusal
from apes.wire.frames import framed

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("vault")]
APP = Path(__file__).parents[2] / "src" / "apes" / "federation" / "app"
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
    assert vault.sealed(number, weights=np.arange(15, dtype="<f4").tobytes()) == first
    assert is_answered(vault, small, number)
    vault.kill()
    vault.start()
    assert vault.sealed(number) == first
    assert vault.sealed(number, weights=np.ones(15, "<f4").tobytes()) == first
    assert is_answered(vault, small, vault.next_round())


def spent(vault):
    return vault.rows("select user, epsilon, rounds from spent order by user, epsilon")


def header_of(vault, **changes):
    header = {"version": 2, "run": RUN, "round": 1, "terms": vault.terms.digest} | changes
    return {name: value for name, value in header.items() if value is not ...}


def nan_weights():
    return np.full(15, np.nan, "<f4").tobytes()


CHANGED = {
    "other terms": ({"terms": "00" * 32}, "terms"),
    "unknown run": ({"run": "00" * 16}, "run"),
    "empty run": ({"run": ""}, "run"),
    "broken run": ({"run": "\ud800"}, "run"),
    "round 0": ({"round": 0}, "round"),
    "round -1": ({"round": -1}, "round"),
    "round beyond": ({"round": 100_001}, "round"),
    "round far beyond": ({"round": 10**300}, "round"),
    "past round": ({"round": 1, "run": OTHER_RUN}, "past"),
    "extra key": ({"op": "report"}, "request"),
    "raw data": ({"op": "data"}, "request"),
    "no version": ({"version": ...}, "request"),
    "no run": ({"run": ...}, "request"),
    "no round": ({"round": ...}, "request"),
    "no terms": ({"terms": ...}, "request"),
    "version 1": ({"version": 1}, "request"),
    "version true": ({"version": True}, "request"),
    "version text": ({"version": "2"}, "request"),
    "round text": ({"round": "1"}, "request"),
    "round real": ({"round": 1.0}, "request"),
    "round true": ({"round": True}, "request"),
    "round nan": ({"round": float("nan")}, "request"),
    "round null": ({"round": None}, "request"),
    "run list": ({"run": [RUN]}, "request"),
    "run number": ({"run": 5}, "request"),
    "terms null": ({"terms": None}, "request"),
    "terms object": ({"terms": {}}, "request"),
    "long": ({"terms": 2000 * "0"}, "request"),
}


def test_changed_headers(vault, small):
    """Each is refused with its word, costs nothing, and the next honest request is answered."""
    assert vault.sealed(2, run=OTHER_RUN)
    before, weights = spent(vault), bytes(60)
    words = {
        name: word(vault, b"".join(framed([json.dumps(header_of(vault, **changes)).encode(), weights])))
        for name, (changes, _) in CHANGED.items()
    }
    assert words == {name: expected for name, (_, expected) in CHANGED.items()}
    assert spent(vault) == before
    assert is_answered(vault, small, vault.next_round())


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
    deep = [512 * b"[" + 512 * b"]", 1024 * b"[", 200 * b'{"a":' + b"1" + 200 * b"}"]
    for data in [
        *(b"".join(framed([text, bytes(60)])) for text in [*texts, *deep]),
        b"",
        good[:3],
        good[:50],
        good[:-1],
        good[:-60],
        broken_frame(1025, bytes(1025)),
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
    assert vault.sealed(number, weights=np.ones(15, "<f4").tobytes()) == kept
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
    """100,000 strings, some of them framed as requests are: it stays as large as it was, and so does its log."""
    lines, memory, answers = len(vault.events()), [], set()
    for _ in range(10):
        strings = noise(10_000)
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
    assert len(vault.events()) - lines <= 18
    counts = [event["count"] for event in vault.events() if event.get("reason") == "request"]
    assert max(counts) >= 2**16
    assert all(count & (count - 1) == 0 for count in counts)
    assert is_answered(vault, small, vault.next_round())


def test_logs_tell_no_values(vault, small):
    assert is_answered(vault, small, vault.next_round())
    events, text = vault.events(), vault.log.read_text()
    assert {event["event"] for event in events} <= {"answered", "late", "refused"}
    for event in events:
        counted = {"reason", "count"}
        told = {"answered": {"run", "round"}, "refused": counted, "late": counted | {"answer_seconds"}}
        facts = told[event["event"]]
        assert event.keys() == {"time", "event"} | facts
    assert not [sender for sender in small.policy.senders if sender in text]
    assert not [budget for budget in BUDGETS if str(budget)[2:] in text]


@pytest.fixture(scope="module")
def courier():
    """The module that is shipped to the nodes."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # Flower holds typer back, which click warns of.
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.syspath_prepend(APP)
        import apes_app.courier
    return apes_app.courier


def test_the_shipped_courier(vault, small, courier):
    number = vault.next_round()
    header = header_of(vault, round=number)
    answer = courier.ask_vault(str(vault.socket), header, bytes(60))
    assert answer == b"\0" + vault.sealed(number)
    assert is_answered(vault, small, number)
    assert courier.ask_vault(str(vault.socket), header | {"op": "data"}, bytes(60)) == b"\1request"
    assert courier.ask_vault(str(vault.socket), header | {"round": number + 1}, nan_weights()) == b"\1weights"


# What a courier under another account tries; the interpreter itself may lie where that account cannot go.
STRANGER = """
import json, os, socket, sys
folder, request = sys.argv[1], bytes.fromhex(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
told = {}
for name in ("data.npz", "keys.bin", "ledger.sqlite", "ledger.sqlite-wal", "vault.json"):
    try:
        told[name] = len(open(os.path.join(folder, name), "rb").read())
    except OSError as error:
        told[name] = type(error).__name__
try:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(folder, "vault.sock"))
    connection.sendall(request)
    answer = b""
    while piece := connection.recv(1 << 20):
        answer += piece
    told["answer"] = answer.hex()
except OSError as error:
    told["answer"] = type(error).__name__
print(json.dumps(told))
"""


def told_by_a_stranger(vault, number):
    done = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, vault.folder, vault.request(number).hex()],
        capture_output=True,
        check=True,
        text=True,
        cwd="/",
    )
    return json.loads(done.stdout)


@pytest.fixture
def open_folder():
    """A folder that everybody may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="apes-vault-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not is_root(), reason="only root can run a courier under another account")
def test_a_courier_under_another_account(small, terms, open_folder):
    """It can ask if the owner lets it, and can read nothing of what the vault guards."""
    vault = VaultProcess(open_folder, terms, small.keys, small.shuffler, socket_mode="666")
    vault.start()
    try:
        told = told_by_a_stranger(vault, 1)
        guarded = ("data.npz", "keys.bin", "ledger.sqlite", "ledger.sqlite-wal")
        assert [told[name] for name in guarded] == 4 * ["PermissionError"]
        assert told["vault.json"] == (open_folder / "vault.json").stat().st_size
        assert bytes.fromhex(told["answer"]) == b"\0" + vault.sealed(1)
        assert is_answered(vault, small, 1)
        os.chmod(vault.socket, 0o600)
        assert told_by_a_stranger(vault, 2)["answer"] == "PermissionError"
        assert is_answered(vault, small, 2)
    finally:
        vault.kill()
