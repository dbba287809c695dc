"""The vault: one sealed report per round, words of refusal, and nothing else; in memory and as a real process."""

import itertools
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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import (
    APES,
    BUDGETS,
    OTHER_RUN,
    RUN,
    VaultProcess,
    broken_frame,
    counts_of,
    frames_of,
    is_root,
    opened,
    population,
    until,
)
from scipy.stats import chi2

from apes import Plan
from apes.errors import DataError
from apes.federation.terms import Terms
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.socket import VaultSocket
from apes.federation.vault.vault import Holdings, Request, Vault, VaultRefusal, VaultRefused
from apes.mathematics.levels import level_probabilities
from apes.population import InMemoryPopulation
from apes.shuffler.service.intake import Intake
from apes.wire.frames import framed

# One worker builds the module's fixture, once.
pytestmark = pytest.mark.xdist_group("vault")
APP = Path(__file__).parents[2] / "src" / "apes" / "federation" / "app"
WORDS = {refusal.value for refusal in VaultRefusal}
FALSE_ALARM = 1e-6


@pytest.fixture
def ledgers(tmp_path):
    """Make ledgers, and close them."""
    made = []

    def make(users=8):
        made.append(VaultLedger(tmp_path / f"{len(made)}.sqlite", users))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


def holdings(keys, rounds=np.inf, dimensions=15, **changes):
    """The holdings of eight users who grant so many rounds each."""
    arrays = {**population(), "budgets": BUDGETS, **changes}
    allowances = dimensions * arrays["budgets"] * np.broadcast_to(rounds, 8)
    return Holdings(InMemoryPopulation(**arrays), keys, allowances)


def vault_of(small, held, ledger, terms=None):
    return Vault(terms or small.terms, (RUN, OTHER_RUN), held, small.shuffler.public_key(), ledger)


def request(small, number, run=RUN, digest=None, weights=None, terms=None):
    terms = terms or small.terms
    weights = np.zeros(terms.dimensions) if weights is None else weights
    digest = terms.fingerprint if digest is None else digest
    return Request(run, number, digest, np.asarray(weights, dtype="<f4").tobytes())


def refusal_of(vault, asked):
    with pytest.raises(VaultRefused) as refused:
        vault.answer(asked)
    return refused.value.reason


def counts_for_the_shuffler(small, answer, number, run=RUN):
    """Whether the shuffler takes all reports of an answer, and counts them as NumPy does."""
    intake = Intake(small.policy, run, number, small.shuffler)
    intake.take(frames_of(answer))
    levels, budgets, _ = opened(answer, small.shuffler)
    batch = intake.release().batch
    return (
        not intake.refused and (batch.counts == counts_of(levels)).all() and (batch.budgets == np.sort(budgets)).all()
    )


def test_an_answer_is_what_the_shuffler_counts(small, ledgers):
    answer = vault_of(small, holdings(small.keys), ledgers()).answer(request(small, 1))
    assert counts_for_the_shuffler(small, answer, 1)
    _, budgets, senders = opened(answer, small.shuffler)
    assert [sender.hex() for sender in senders] == list(small.policy.senders)
    assert (budgets == BUDGETS).all()


def test_a_round_has_one_answer(small, ledgers):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys), ledger)
    first = vault.answer(request(small, 1))
    spent = ledger.spent().tolist()
    assert vault.answer(request(small, 1)) == first
    assert vault.answer(request(small, 1, weights=np.arange(15))) == first
    # Weights are not looked at when there is an answer already.
    assert vault.answer(request(small, 1, weights=[np.nan])) == first
    assert ledger.spent().tolist() == spent == (15 * BUDGETS).tolist()
    assert vault.answer(request(small, 2)) != first
    assert vault.answer(request(small, 1, OTHER_RUN)) != first


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"digest": "00" * 32}, VaultRefusal.TERMS),
        ({"digest": ""}, VaultRefusal.TERMS),
        ({"run": "00" * 16}, VaultRefusal.RUN),
        ({"run": ""}, VaultRefusal.RUN),
        ({"run": RUN.upper()}, VaultRefusal.RUN),
        ({"number": 0}, VaultRefusal.ROUND),
        ({"number": -1}, VaultRefusal.ROUND),
        ({"number": 4}, VaultRefusal.ROUND),
        ({"number": 10**400}, VaultRefusal.ROUND),
        ({"weights": np.full(15, np.nan)}, VaultRefusal.WEIGHTS),
        ({"weights": [*np.zeros(14), np.inf]}, VaultRefusal.WEIGHTS),
        ({"weights": [-np.inf, *np.zeros(14)]}, VaultRefusal.WEIGHTS),
        ({"weights": np.zeros(14)}, VaultRefusal.WEIGHTS),
        ({"weights": np.zeros(16)}, VaultRefusal.WEIGHTS),
        ({"weights": []}, VaultRefusal.WEIGHTS),
    ],
    ids=str,
)
def test_refusals_cost_nothing(small, ledgers, changes, reason):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys, 1), ledger)
    assert refusal_of(vault, request(small, **({"number": 1} | changes))) == reason
    assert ledger.spent().tolist() == 8 * [0]
    assert counts_for_the_shuffler(small, vault.answer(request(small, 1)), 1)


def test_a_past_round_is_over(small, ledgers):
    vault = vault_of(small, holdings(small.keys), ledgers())
    first, third = (vault.answer(request(small, number)) for number in (1, 3))
    assert refusal_of(vault, request(small, 2)) == VaultRefusal.PAST
    # The answer to round 1 is forgotten by now.
    assert refusal_of(vault, request(small, 1)) == VaultRefusal.PAST
    assert vault.answer(request(small, 3)) == third != first
    assert counts_for_the_shuffler(small, vault.answer(request(small, 2, OTHER_RUN)), 2, OTHER_RUN)


@pytest.mark.parametrize(
    "asked",
    [[(RUN, 1), (RUN, 2), (RUN, 3)], [(RUN, 1), (OTHER_RUN, 1), (RUN, 2)], [(OTHER_RUN, 2), (RUN, 1), (OTHER_RUN, 3)]],
)
def test_an_allowance_is_for_so_many_rounds(small, ledgers, asked):
    ledger, held = ledgers(), holdings(small.keys, 3)
    vault = vault_of(small, held, ledger)
    answers = [vault.answer(request(small, number, run)) for run, number in asked]
    assert all(len(frames_of(answer)) == 8 for answer in answers)
    assert (ledger.spent() == held.allowances).all()
    refused = [
        refusal_of(vault, request(small, number, run))
        for run, number in itertools.product((RUN, OTHER_RUN), (1, 2, 3))
        if ledger.find(run, number) is None
    ]
    assert VaultRefusal.ALLOWANCE in refused
    assert set(refused) <= {VaultRefusal.ALLOWANCE, VaultRefusal.PAST}
    assert (ledger.spent() == held.allowances).all()
    assert vault.answer(request(small, asked[-1][1], asked[-1][0])) == answers[-1]


def test_a_little_less_is_a_round_less(small, ledgers):
    vault = vault_of(small, holdings(small.keys, np.nextafter(2, 0)), ledgers())
    vault.answer(request(small, 1))
    assert refusal_of(vault, request(small, 2)) == VaultRefusal.ALLOWANCE


@pytest.mark.parametrize(
    ("choice", "coordinates"),
    [
        ({"framework": "s-apes-first", "keep": 0.2}, 6),
        ({"framework": "s-apes", "sparsifier": "random-b", "keep": 0.2}, 3),
        ({"framework": "s-apes-threshold"}, 15),
    ],
    ids=str,
)
def test_a_sparse_report_costs_what_its_sparsifier_says(small, ledgers, choice, coordinates):
    terms = Terms(Plan(users=8, rounds=3, levels=16, delta=1e-3, **choice), features=4, classes=3)
    ledger = ledgers()
    answer = vault_of(small, holdings(small.keys), ledger, terms).answer(request(small, 1, terms=terms))
    levels, _, _ = opened(answer, small.shuffler)
    assert levels.shape == (8, 15)
    assert (ledger.spent() == coordinates * BUDGETS).all()


def test_users_of_a_silo_drop_out_one_by_one(small, ledgers):
    terms = Terms(Plan(users=8, rounds=10, levels=16, delta=1e-3), features=4, classes=3)
    vault = vault_of(small, holdings(small.keys, np.arange(1, 9)), ledgers(), terms)
    for number in range(1, 9):
        _, budgets, senders = opened(vault.answer(request(small, number, terms=terms)), small.shuffler)
        assert [sender.hex() for sender in senders] == list(small.policy.senders[number - 1 :])
        assert (budgets == BUDGETS[number - 1 :]).all()
    assert refusal_of(vault, request(small, 9, terms=terms)) == VaultRefusal.ALLOWANCE


EXTREME_WEIGHTS = {
    "3e38": np.full(15, 3e38),
    "-3e38": np.full(15, -3e38),
    "both": 3e38 * np.array(15 * [1, -1])[:15],
    "one class": np.repeat([3e38, 0, -3e38], 5),
    "tiny": np.full(15, 1e-45),
}
EXTREME_FEATURES = {"usual": 1.0, "zero": 0.0, "3e38": 3e38, "-3e38": -3e38, "tiny": 1e-45}


@pytest.mark.parametrize("update", ["gradient", "fedprox"])
@pytest.mark.parametrize("weights", EXTREME_WEIGHTS)
def test_extreme_weights_tell_nothing_about_the_data(small, ledgers, update, weights):
    """Whatever the data is, the answer has the same form: an error that depends on data would say something of it."""
    terms = Terms(Plan(users=8, rounds=3, levels=16, delta=1e-3, update=update), features=4, classes=3)
    sizes = set()
    for scale in EXTREME_FEATURES.values():
        features = np.full_like(population()["features"], scale)
        features[::2] *= -1
        vault = vault_of(small, holdings(small.keys, features=features), ledgers(), terms)
        answer = vault.answer(request(small, 1, weights=EXTREME_WEIGHTS[weights], terms=terms))
        levels, _, senders = opened(answer, small.shuffler)
        assert levels.max() < 16
        sizes.add((len(answer), len(senders)))
    assert sizes == {(8 * (4 + 225), 8)}


# Inputs are beyond the clip, so the level that goes into the randomizer is known: 0 in the coordinates of the user's
# own class, 15 in the others. 64 users of 3 x 401 coordinates give 25,664 and 51,328 draws, at least 111 of them
# expected at every level; a budget 10 % too large is missed with probability 4e-10.
LAW = Terms(Plan(users=64, rounds=1, levels=16, clip=1e-3, delta=1e-3), features=400, classes=3)
LAW_BUDGET = 4.0


def levels_by_input(small, ledger, budget):
    """Draws of a vault under this budget, for input level 0 and for input level 15."""
    labels = np.arange(64, dtype=np.uint8) % 3
    people = InMemoryPopulation(np.full((64, 400), 100.0, np.float32), labels, np.arange(65), np.full(64, budget))
    held = Holdings(people, [Ed25519PrivateKey.generate() for _ in labels], np.full(64, np.inf))
    vault = Vault(LAW, (RUN,), held, small.shuffler.public_key(), ledger)
    levels, _, _ = opened(vault.answer(request(small, 1, terms=LAW)), small.shuffler, LAW.dimensions)
    own = np.repeat(np.arange(3) == labels[:, None], 401, axis=1)
    return levels[own], levels[~own]


def misfit(levels, law):
    """Pearson's statistic against the law, and what it exceeds once in a million tests."""
    expected = levels.size * law
    assert expected.min() > 100
    observed = np.bincount(levels, minlength=16)
    return ((observed - expected) ** 2 / expected).sum(), chi2.isf(FALSE_ALARM, 15)


def test_levels_have_the_law_of_the_randomizer(small, ledgers):
    low, high = levels_by_input(small, ledgers(64), LAW_BUDGET)
    assert (low.size, high.size) == (64 * 401, 2 * 64 * 401)
    law = level_probabilities(np.array([LAW_BUDGET]), 16)[0]
    for levels, row in ((low, law[0]), (high, law[15])):
        statistic, limit = misfit(levels, row)
        assert statistic < limit


def test_the_test_of_the_law_sees_a_budget_ten_percent_too_large(small, ledgers):
    low, high = levels_by_input(small, ledgers(64), 1.1 * LAW_BUDGET)
    law = level_probabilities(np.array([LAW_BUDGET]), 16)[0]
    for levels, row in ((low, law[0]), (high, law[15])):
        statistic, limit = misfit(levels, row)
        assert statistic > limit


def test_a_ledger_that_fails(small, ledgers):
    ledger = ledgers()
    vault = vault_of(small, holdings(small.keys), ledger)
    ledger.close()
    assert refusal_of(vault, request(small, 1)) == VaultRefusal.LEDGER


@pytest.fixture(scope="module")
def terms():
    return Terms(Plan(users=8, rounds=100_000, levels=16, delta=1e-3), features=4, classes=3)


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
    header = {"version": 2, "run": RUN, "round": 1, "terms": vault.terms.fingerprint} | changes
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
    assert "ledger.sqlite is in use by another process" in other.stderr
    assert vault.socket.stat().st_ino == before
    assert is_answered(vault, small, vault.next_round())


def test_only_the_owner_may_ask(vault):
    assert stat.S_IMODE(vault.socket.stat().st_mode) == 0o600
    for name in ("data.npz", "keys.bin", "ledger.sqlite", "ledger.sqlite-wal"):
        assert stat.S_IMODE((vault.folder / name).stat().st_mode) == 0o600


def test_a_socket_path_too_long(tmp_path):
    with pytest.raises(DataError, match="longer than 103 bytes"):
        VaultSocket(tmp_path / ("s" * (104 - len(str(tmp_path)))), None, 60)


def test_a_file_in_the_sockets_place(tmp_path):
    place = tmp_path / "vault.sock"
    place.write_text("mine")
    with pytest.raises(DataError, match=r"vault\.sock is there already and is not a socket"):
        VaultSocket(place, None, 60)
    assert place.read_text() == "mine"


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
    assert {event["event"] for event in events} <= {"answered", "refused"}
    for event in events:
        facts = {"answered": {"run", "round"}, "refused": {"reason", "count"}}[event["event"]]
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
