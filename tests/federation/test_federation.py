"""Devices, shuffler and analyzer as real processes over TLS on Flower, and what each of them can see.

One federation of two devices runs its rounds; the tests look at what it left, and at the analyzer's memory while it
ran. What is the same without processes is in test_local_federation.py.
"""

import contextlib
import dataclasses
import json
import os
import re
import socket
import threading

import numpy as np
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from parties import PAPERS, apes, until
from trials import begin_up, end_up, is_simulated, looked_at, opened, sealed, told

from apes.federation.courier import COURIER, CourierSettings
from apes.federation.trial.layout import Layout
from apes.federation.vault.folder import read_accounts
from apes.federation.vault.lifetime import Lifetime
from apes.shuffler.service.policy import Policy
from apes.storage.settings import read_settings, write_settings
from apes.training.run_folder import RunFolder
from apes.wire.roster import Roster

pytestmark = pytest.mark.process
DEVICES, ROUNDS = 2, 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A federation that has run, and the analyzer's memory as it was in between."""
    folder = tmp_path_factory.mktemp("f") / "two"
    choices = ["--rounds", ROUNDS, "--keep-sealed", "--colluding", 0, "--seed", 3, *PAPERS]
    told("federation", "init", folder, "--devices", DEVICES, *choices)
    layout = Layout(folder)
    # The third round waits for us: the analyzer is there for as long as its memory is read.
    with held_back(layout, 1, lambda: rounds_over(layout) >= 2) as pass_on:
        up = begin_up(folder)
        try:
            until(lambda: rounds_over(layout) >= 2 or up.poll() is not None)
            memory = None if up.poll() is not None else read_memory(int(pid_file(layout).read_text()))
        finally:
            pass_on.set()
            code, output, errors = end_up(up, folder)
    assert code == 0, errors
    seen = looked_at(folder, json.loads(output))
    seen.memory = memory
    return seen


@contextlib.contextmanager
def held_back(layout, device, is_time):
    """A socket between a device's courier and its vault. What is asked once it is time waits for the event.

    The courier's settings name this socket; the vault's own is where it was.
    """
    file = layout.device(device) / "courier" / COURIER
    settings = read_settings(file, CourierSettings)
    vault, between = file.parent / settings.vault, layout.device(device) / "between.sock"
    write_settings(file, dataclasses.replace(settings, vault=str(between)))
    pass_on = threading.Event()

    def serve():
        while True:
            try:
                courier, _ = listening.accept()
            except OSError:
                return
            if is_time():
                pass_on.wait()
            with courier, socket.socket(socket.AF_UNIX) as asked:
                asked.connect(str(vault))
                threading.Thread(target=carry, args=(courier, asked), daemon=True).start()
                carry(asked, courier)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(between))
        listening.listen()
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield pass_on
        finally:
            pass_on.set()
            # Whoever waits in `accept` returns.
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


def carry(source, target):
    """Pass on what comes until there is no more, and say so; who hangs up in between ends it as well."""
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    # Not left to `close`: it says nothing while another thread still waits for the same connection.
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def rounds_over(layout):
    """How many rounds the analyzer has written down."""
    metrics = layout.analyzer / "run" / "private/metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def pid_file(layout):
    return layout.analyzer / "run" / "analyzer.pid"


def read_memory(pid):
    """Writable memory of a process, which stands still meanwhile: what it would unmap could not be read.

    None on a system that has no such files, or does not let us read those of our own processes.
    """
    if not os.path.exists("/proc/self/mem"):
        return None
    pieces = []
    try:
        process = psutil.Process(pid)
        process.suspend()
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
                for line in maps:
                    start, stop, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
                    if rights.startswith("rw") and "[v" not in line:
                        # A mapping beyond the end of its file, or of a device, has nothing to read.
                        with contextlib.suppress(OSError):
                            memory.seek(int(start, 16))
                            pieces.append(memory.read(int(stop, 16) - int(start, 16)))
        finally:
            process.resume()
    except (PermissionError, psutil.AccessDenied):
        return None
    return b"\n".join(pieces)


def test_every_round_took_place_with_everybody(trained):
    assert trained.summary["rounds"] == ROUNDS
    assert trained.summary["participants_by_round"] == [DEVICES] * ROUNDS
    assert [release.receipt.refused for release in trained.releases] == [{}] * ROUNDS


def test_the_model_is_the_simulations_bit_for_bit(trained):
    """The same sealed reports, opened and put through the simulation's collector and run, give the same model."""
    assert is_simulated(trained)


def test_the_guarantee_is_what_was_agreed(trained):
    """Whoever chose who took part: the limit of the terms, of which all rounds with everybody spent only a part."""
    certified, limit = trained.summary["certified"], trained.terms.limit
    assert (certified["epsilon"], certified["road"]) == (limit.epsilon(certified["delta"]), "adaptive")
    assert certified["mu"] == limit.mu_squared**0.5
    assert certified["epsilon_by_round"] == sorted(certified["epsilon_by_round"])
    assert 0 < certified["epsilon_by_round"][-1] < certified["epsilon"]
    by_round, guarantee = RunFolder.open(trained.layout.analyzer / "run").recertify()
    assert (by_round, guarantee.epsilon) == (certified["epsilon_by_round"], certified["epsilon"])


def test_up_again_says_the_same_without_running(trained):
    again = told("federation", "up", trained.layout.folder)
    assert {**again, "seconds": 0} == {**trained.summary, "seconds": 0}


def test_nothing_is_left_running(trained):
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert lines
    assert not [line for line in lines if str(trained.layout.folder) in line]


def test_init_refuses_a_folder_that_exists(trained):
    code, _, errors = apes("federation", "init", trained.layout.folder, "--devices", DEVICES, "--colluding", 0)
    assert code == 2
    assert "must not exist yet" in errors
    assert trained.layout.settings.exists()


def held(memory, messages):
    """Whether memory holds any of some pieces of 24 bytes out of the messages; by chance: never (2^-150)."""
    places = np.linspace(100, len(messages[0]) - 124, 4).astype(int)
    return any(message[place : place + 24] in memory for message in messages for place in places)


class TestAnalyzerSees:
    """The lines of the analyzer in docs/guarantees.md."""

    def test_never_the_bytes_of_an_opened_report(self, trained):
        if trained.memory is None:
            pytest.skip("this system does not let us read the memory of our own processes")
        # The search works: the sealed reports, which the analyzer does hold, are found.
        relayed = [envelope.sealed for number in (1, 2) for envelope in sealed(trained, number)]
        assert held(trained.memory, relayed)
        assert not held(
            trained.memory, [levels.tobytes() for number in (1, 2) for _, levels in opened(trained, number)]
        )

    def test_no_key_that_opens_or_signs(self, trained):
        secrets = [trained.layout.shuffler / name for name in ("shuffler.key", "receipts.key")]
        secrets.append(trained.layout.folder / "organiser.key")
        secrets += [trained.layout.vault(number) / "keys.bin" for number in range(1, DEVICES + 1)]
        for secret in secrets:
            key = secret.read_bytes()
            assert trained.memory is None or key not in trained.memory
            for file in trained.layout.analyzer.rglob("*"):
                assert not file.is_file() or key not in file.read_bytes()

    def test_only_counts_and_how_many_there_are(self, trained):
        """A release is what anybody could compute from the levels as a set: no order, no names, no budgets."""
        for number, release in enumerate(trained.releases, 1):
            reports = opened(trained, number)
            levels = np.stack([row for _, row in reports])
            counts = np.stack([np.bincount(column, minlength=trained.terms.levels) for column in levels.T])
            assert (release.counts == counts).all()
            assert release.receipt.users == len(reports)
            assert not any(np.float64(budget).tobytes() in release.encode() for budget, _ in reports)


class TestRelaySees:
    """The lines of SuperLink, couriers and network in docs/guarantees.md."""

    def test_reports_of_one_size(self, trained):
        sizes = {len(envelope.sealed) for number in (1, 2, 3) for envelope in sealed(trained, number)}
        assert sizes == {8 + trained.terms.dimensions + 48}

    def test_who_takes_part(self, trained):
        """Senders are in the clear, by their keys: a relay knows who reported, and nothing of what."""
        policy = read_settings(trained.layout.shuffler / "policy.json", Policy)
        for number in (1, 2, 3):
            envelopes = sealed(trained, number)
            assert {envelope.sender.hex() for envelope in envelopes} == set(policy.senders)
            assert all(each.is_signed(Ed25519PublicKey.from_public_bytes(each.sender)) for each in envelopes)

    def test_nothing_of_the_vault_in_flowers_state(self, trained):
        """Neither data nor keys nor levels are in anything that Flower wrote, on either side."""
        keys = [(trained.layout.vault(n) / "keys.bin").read_bytes() for n in range(1, DEVICES + 1)]
        levels = [row.tobytes()[:24] for number in (1, 2, 3) for _, row in opened(trained, number)]
        homes = [trained.layout.superlink, *(trained.layout.device(n) / "courier" for n in range(1, DEVICES + 1))]
        for file in (file for home in homes for file in home.rglob("*") if file.is_file()):
            content = file.read_bytes()
            assert not any(secret in content for secret in keys + levels), file

    def test_the_app_that_is_shipped_has_nothing_for_nodes(self, trained):
        """Flower asks for a part that runs on nodes; ours refuses, and couriers never look at it."""
        app = trained.layout.analyzer / "app"
        assert sorted(path.name for path in (app / "apes_app").glob("*.py")) == [
            "__init__.py",
            "analyzer.py",
            "refusal.py",
        ]
        source = (app / "apes_app" / "refusal.py").read_text()
        assert set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE)) == {"flwr"}
        assert "raise RuntimeError" in source


class TestShufflerSees:
    """The lines of the shuffler in docs/guarantees.md."""

    def test_neither_model_nor_data(self, trained):
        """Nothing in its folder holds a user's image or the model."""
        with np.load(trained.layout.analyzer / "run" / "model.npz") as stored:
            model = stored["weights"].astype(np.float32).tobytes()[4000:4064]
        images = []
        for number in range(1, DEVICES + 1):
            with np.load(trained.layout.vault(number) / "data.npz") as data:
                images.append(data["features"][0].tobytes()[1000:1200])
        for file in trained.layout.shuffler.rglob("*"):
            content = file.read_bytes() if file.is_file() else b""
            assert model not in content
            assert not any(image in content for image in images if any(image))

    def test_its_log_names_no_value(self, trained):
        log = (trained.layout.logs / "shuffler.log").read_text()
        policy = read_settings(trained.layout.shuffler / "policy.json", Policy)
        assert not any(sender in log for sender in policy.senders)
        assert not any(repr(budget) in log for budget, _ in opened(trained, 1))
        events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
        assert events.count("released") == ROUNDS


class TestVaultKeeps:
    """The lines of the vault in docs/guarantees.md."""

    def test_its_files_to_its_owner(self, trained):
        for number in range(1, DEVICES + 1):
            folder = trained.layout.device(number)
            for name in ("vault/data.npz", "vault/keys.bin", "courier/node.key", "vault/ledger.sqlite"):
                assert (folder / name).stat().st_mode & 0o077 == 0, name

    def test_the_policy_with_its_budgets_to_the_shuffler(self, trained):
        for name in ("policy.json", "shuffler.key", "receipts.key", "ledger.sqlite"):
            assert (trained.layout.shuffler / name).stat().st_mode & 0o077 == 0, name

    def test_a_ledger_of_what_was_spent(self, trained):
        for number in range(1, DEVICES + 1):
            (account,) = read_accounts(trained.layout.device(number))
            with np.load(trained.layout.vault(number) / "data.npz") as data:
                spent = trained.terms.dimensions * data["budgets"] * ROUNDS
                assert [account.spent] == spent.tolist() == data["allowances"].tolist()
                (cost,) = Lifetime().costs(trained.terms, data["budgets"])
            # All was answered in one run, and nobody is told more than that run is certified for.
            most = min(ROUNDS * cost.mu_squared, trained.terms.granted.mu_squared)
            assert account.central.mu == pytest.approx(most**0.5, rel=1e-12)
            assert account.rounds_left == 0

    def test_whose_report_is_whose(self, trained):
        """The model is made of what these vaults drew: the roster's budgets are those of their own files."""
        budgets = []
        for number in range(1, DEVICES + 1):
            with np.load(trained.layout.vault(number) / "data.npz") as data:
                budgets += data["budgets"].tolist()
        roster = Roster.decode((trained.layout.analyzer / "run" / "roster.bin").read_bytes())
        assert sorted(budgets) == roster.budgets.tolist()
