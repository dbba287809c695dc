"""The vault as a real process on its socket: killed, on a disk that fails, beside a second one, flooded with rubbish.

What it says to which bytes, and what a failure at every point leaves behind, is looked at in test_vault_requests.py and
test_local_vault.py, in one process.
"""

import socket
import stat
import subprocess

import numpy as np
import pytest
from asked import is_answered, nan_weights, spent, word
from parties import ANALYZER, APES, BUDGETS, RUN, VaultProcess, agreed, announced, until

from apes.federation.courier import ask_vault
from apes.wire.frames import framed

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def terms():
    return agreed(rounds=100_000)


@pytest.fixture(scope="module")
def vault(small, terms, tmp_path_factory):
    party = VaultProcess(tmp_path_factory.mktemp("vault"), terms, small.keys, small.shuffler)
    party.start()
    yield party
    party.kill()


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


@pytest.mark.parametrize("each", [400, pytest.param(4_000, marks=pytest.mark.exhaustive)])
def test_rubbish(vault, small, noise, each):
    """Ten times so many strings, some of them framed as requests are: it stays as large as it was, so does its log."""
    lines, memory, answers = len(vault.events()), [], set()
    for _ in range(10):
        strings = noise(each)
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
    # One line per power of 2 of those that it refused, and no other that they cause.
    events = vault.events()[lines:]
    counts = [event["count"] for event in events if event["event"] == "refused"]
    assert counts == sorted(set(counts))
    assert all(count & (count - 1) == 0 for count in counts)
    assert max(counts) >= 10 * each / 2
    # A machine that is busy makes answers late, which has nothing to do with them.
    assert {event["event"] for event in events} <= {"refused", "late"}
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


@pytest.mark.service
def test_a_courier_whose_vault_says_nothing(tmp_path):
    """Neither where there is no socket, nor where nobody listens, nor where somebody does and keeps silent."""
    place = tmp_path / "silent.sock"
    assert ask_vault(place, b"{}", b"", 60.0) == b""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        assert ask_vault(place, b"{}", b"", 60.0) == b""
        listener.listen()
        assert ask_vault(place, b"{}", b"", 0.2) == b""
