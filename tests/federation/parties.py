"""Real `apes` processes for the tests: started, asked, killed, started again; and what honest users send."""

import hashlib
import io
import itertools
import json
import os
import resource
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from unittest import mock

import httpx
import numpy as np
import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings

from apes import Examples, LogisticRegression, Schedule, Terms
from apes.features.feature_map import seen_through
from apes.federation.agreed_model import own_model
from apes.federation.analyzer import AnalyzerSettings
from apes.federation.keys import Authority, write_secret
from apes.federation.parties import Task
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import HOST, free_ports
from apes.federation.vault.folder import VaultSettings
from apes.federation.vault.witness import new_witness
from apes.shuffler.service import witness
from apes.shuffler.service.policy import Limits
from apes.shuffler.service.server import ShufflerSettings
from apes.storage.database import read_database
from apes.storage.files import write_bytes
from apes.storage.settings import read_settings, write_settings
from apes.training.run import Identity, Run
from apes.wire.announcement import FIRST, Announcement
from apes.wire.envelope import envelope_size, parse
from apes.wire.frames import FrameReader, framed
from apes.wire.packing import unpacked
from apes.wire.receipt import Receipt
from apes.wire.release import Release
from apes.wire.roster import Roster

APES = Path(sys.executable).with_name("apes")
TOKEN = "a-token-of-the-tests"
RUN, OTHER_RUN = "0123456789abcdef" * 2, "fedcba9876543210" * 2
# As many as tests of one shuffler may want, beside those two.
RUNS = (RUN, OTHER_RUN, *(f"{number:032x}" for number in range(1, 200)))
# Eight users' levels and budgets; the budgets have digits that occur nowhere else.
LEVELS = np.random.default_rng(11).integers(0, 16, (8, 15), dtype=np.uint8)
BUDGETS = np.array([0.7318642, 0.0591837, 0.9946521, 0.3517264, 0.4628193, 0.8273916, 0.1938475, 0.6152738])
# Everybody is honest here; who may not be is looked at in test_who_counts.py.
LIMITS = Limits(0.05, 1.0, 3, largest_card=8, colluding=0)
ANALYZER, RECEIPTS = (Ed25519PrivateKey.from_private_bytes(bytes(32 * [number])) for number in (1, 2))
EXTREME_WEIGHTS = {
    "3e38": np.full(15, 3e38),
    "-3e38": np.full(15, -3e38),
    "both": 3e38 * np.array(15 * [1, -1])[:15],
    "one class": np.repeat([3e38, 0, -3e38], 5),
    "tiny": np.full(15, 1e-45),
}
_PATIENCE = 120.0
# A machine that is busy with other tests is no fault of Hypothesis' strategies.
patient = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# A small, quick federation, of too few people to protect anybody: the paper's plan, asked for by name.
PAPERS = ["--preset", "paper", "--allow-no-protection", "--no-comparison"]
PAPERS_INVITED = PAPERS[:-1]


def task_for_few(terms, test, model=None):
    """What a federation is to do whose terms protect nobody: it has a handful of people."""
    return Task(terms, Schedule(), test, model, allow_no_protection=True)


def apes(*arguments):
    """Exit code, output and errors of a command of ours; in this process, since a start takes seconds.

    A vault that ought to refuse and does not fails the test: it would listen for ever.
    """
    with warnings.catch_warnings():
        # Flower holds typer back, which click warns of.
        warnings.simplefilter("ignore", DeprecationWarning)
        from typer.testing import CliRunner

        from apes.cli.main import app

        started = AssertionError("the vault refused nothing: it listens")
        with mock.patch("apes.federation.vault.socket._listen", side_effect=started):
            done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def joining(device, invitation, data, *more):
    """The command by which a device joins, without being asked, vault and courier under one account."""
    return "federation", "join", "--yes", "--one-account", device, "--invitation", invitation, "--data", data, *more


def agreed(rounds=3, features=4, local=None, limits=None, **choices):
    """Terms on 3 classes and 16 levels; by default for three users or more with budgets from 0.05 to 1."""
    terms = Terms(rounds=rounds, levels=16, delta=1e-3, **choices)
    return FederationTerms(terms, LogisticRegression(features, 3, local), LIMITS if limits is None else limits)


def public(key):
    """The public half of a key, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def announced(terms, number=1, run=RUN, weights=bytes(60), previous=FIRST):
    """A round as the analyzer announces it, under the terms with this digest."""
    digest = hashlib.sha256(weights).digest()
    return Announcement(bytes.fromhex(run), number, bytes.fromhex(terms), digest, previous)


def honest(small, users=range(8), **bound):
    """Sealed reports of these users."""
    return [small.report(user, LEVELS[user], BUDGETS[user], **bound) for user in users]


def counts_of(levels):
    """How often each of the 16 levels occurs in each coordinate, by NumPy alone."""
    return np.stack([np.bincount(column, minlength=16) for column in np.asarray(levels).T])


def is_of(release, users):
    """Whether a release, or what was taken in so far, holds exactly the reports of these users."""
    users = sorted(users)
    is_released = isinstance(release, Release)
    counts, present = (
        (release.counts, release.receipt.users) if is_released else (release.counts(), len(release.senders))
    )
    return present == len(users) and (counts == counts_of(LEVELS[users])).all()


def release_of(announcement, users=range(8), budgets=BUDGETS, /, key=RECEIPTS, **changes):
    """The shuffler's release of these users' reports on an announcement; ``budgets`` are the roster's."""
    run, terms = announcement.run.hex(), announcement.terms.hex()
    roster, previous = Roster(run, terms, budgets).digest, announcement.previous.hex()
    bound = run, announcement.round, terms, announcement.digest.hex(), roster, len(users), 0, (0, 0), "0" * 64, previous
    return Release.of(replace(Receipt(*bound), **changes), counts_of(LEVELS[list(users)]), key)


def resigned(unsigned, key):
    """An envelope without its signature, signed by ``key``."""
    return unsigned + key.sign(unsigned)


def until(condition, process=None):
    """Ask again and again until the condition holds."""
    end = time.monotonic() + _PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.002)
    return found


class Party:
    """An `apes` process; it logs to a file in its folder."""

    def __init__(self, command, settings):
        self.folder, self.log, self.ledger = settings.parent, settings.parent / "log", settings.parent / "ledger.sqlite"
        self._arguments = [APES, command, settings]
        self._rounds = itertools.count(1)
        self._process = None
        self.open_files = None  # soft and hard limit, if not this process'

    def start(self):
        limit = None if self.open_files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, self.open_files)
        quiet = {"stdin": subprocess.DEVNULL, "preexec_fn": limit}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log, **quiet)
        try:
            until(self.is_ready, self._process)
        except BaseException:
            # Whoever started it has nothing to stop: no test ever gets it.
            self.kill()
            raise

    def kill(self):
        self._process.kill()
        self._process.wait()

    def next_round(self):
        """A round that no other test uses."""
        return next(self._rounds)

    def memory(self):
        """Resident memory, in bytes."""
        return psutil.Process(self._process.pid).memory_info().rss

    def let_write(self, allowed):
        """Let the process write files, or have every write fail with EFBIG; works for root and for anybody else."""
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (hard if allowed else 0, hard))

    def rows(self, query, *values):
        """What the ledger holds, read beside the process."""
        database = sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)
        try:
            return database.execute(query, values).fetchall()
        finally:
            database.close()

    def events(self):
        """What was logged; fails unless every line is a JSON object."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class ShufflerCalls:
    """What tests ask of a shuffler over ``http``, wherever it runs."""

    def next_run(self):
        """A run that no other test uses."""
        return f"{self.next_round():032x}"

    def get(self, number=1, run=RUN):
        return self.http.get(path(number, run))

    def announce(self, number=1, run=RUN, key=ANALYZER, **choices):
        """Announce a round; what the shuffler says to it."""
        signed = announced(self.terms, number, run, **choices).signed(key)
        return self.http.put(f"{path(number, run)}/announcement", content=signed)

    def post(self, reports, number=1, run=RUN, **choices):
        """Announce a round, and send its reports."""
        self.announce(number, run, **choices)
        return self.http.post(path(number, run), content=b"".join(framed(reports)))

    def metrics(self):
        lines = self.http.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def refused(self, what, reason):
        """The counter of refused reports or requests."""
        return self.metrics().get(f'apes_{what}_refused_total{{reason="{reason}"}}', 0)


class Shuffler(ShufflerCalls, Party):
    """A shuffler on a port of the loopback address."""

    def __init__(self, folder, policy, key, **choices):
        super().__init__("shuffler", folder / "shuffler.json")
        authority, (self.port,) = Authority(), free_ports(1)
        certificate, private = authority.issue(HOST)
        write_bytes(folder / "tls.pem", certificate)
        write_secret(folder / "tls.key", private)
        write_secret(folder / "shuffler.key", key.private_bytes_raw())
        write_secret(folder / "receipts.key", RECEIPTS.private_bytes_raw())
        write_secret(folder / "token", TOKEN.encode())
        self.write_policy(policy)
        write_settings(folder / "shuffler.json", ShufflerSettings(HOST, self.port, **choices))
        witness.new_witness(folder / "witness.json")
        self.tls = ssl.create_default_context(cadata=authority.certificate().decode())
        self.http = self.client()

    def write_policy(self, policy):
        write_settings(self.folder / "policy.json", policy, 0o600)
        self.terms = policy.terms

    def client(self):
        return httpx.Client(
            base_url=f"https://{HOST}:{self.port}",
            verify=self.tls,
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=_PATIENCE,
            trust_env=False,
        )

    def is_ready(self):
        try:
            return self.http.get("/health").json() == {"status": "ok"}
        except httpx.TransportError:
            return False

    def connect(self):
        """A bare TLS connection."""
        return self.tls.wrap_socket(socket.create_connection((HOST, self.port)), server_hostname=HOST)

    def begin_upload(self, run, body):
        """Announce a run's first round, send the head and a part of its batch; the rest is up to the caller."""
        self.announce(run=run)
        connection = self.connect()
        connection.sendall(
            f"POST {path(run=run)} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {len(body) + 1000}\r\n\r\n".encode()
            + body
        )
        return connection


def long_beginning(reports):
    """A batch with the beginning of a frame that is far too large: more than lies in a socket's buffers.

    Once it is sent, the other side must have read the reports.
    """
    return b"".join(framed(reports)) + (1 << 30).to_bytes(4, "little") + bytes(14 << 20)


def batch(reports):
    """Reports as they are sent."""
    return b"".join(framed(reports))


def is_open(shuffler, run):
    """Whether a run's first round is not released."""
    answer = shuffler.get(run=run)
    return (answer.status_code, answer.json()["refused"]) == (404, "open")


def closes(shuffler, small, run, users=range(8)):
    """Whether an honest batch closes the round, with nothing else in it."""
    answer = shuffler.post(honest(small, users, run=run), run=run)
    release = Release.decode(answer.content)
    return is_of(release, users) and (release.receipt.run, release.receipt.round) == (run, 1)


def rounds_of(ledger, sender):
    """In how many rounds a sender's report counted, by the shuffler's ledger."""
    return read_database(ledger, f"select count(*) from participants where sender = x'{sender.hex()}'")[0][0]


def path(number=1, run=RUN):
    return f"/v1/runs/{run}/rounds/{number}"


class VaultProcess(Party):
    """A vault on a Unix socket."""

    def __init__(self, folder, terms, keys, shuffler, *, allowance=np.inf, runs=(RUN, OTHER_RUN), **choices):
        super().__init__("vault", folder / "vault.json")
        self.terms, self.socket = terms, folder / "vault.sock"
        arrays = {**population(), "budgets": BUDGETS, "allowances": np.full(8, allowance)}
        archive = io.BytesIO()
        np.savez(archive, **arrays)
        write_secret(folder / "data.npz", archive.getvalue())
        write_secret(folder / "keys.bin", b"".join(key.private_bytes_raw() for key in keys))
        terms.write(folder / "terms.json")
        # Short: there are many questions, and only tests of time are about time.
        own = {"socket": "vault.sock", "one_account": True, "answer_seconds": 0.01, "ledger_id": os.urandom(16).hex()}
        settings = VaultSettings(runs, public(shuffler), public(ANALYZER), **own | choices)
        self.ledger = folder / settings.ledger
        new_witness(folder / settings.witness)
        write_settings(folder / "vault.json", settings)

    def is_ready(self):
        """Whether somebody listens; a connection that asks nothing is refused and forgotten."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def request(self, number, weights=None, key=ANALYZER, **changes):
        """A request as bytes, honest but for the changes."""
        weights = bytes(4 * self.terms.dimensions) if weights is None else weights
        bound = {"terms": self.terms.digest, "number": number, "weights": weights, **changes}
        return b"".join(framed([announced(**bound).signed(key), weights]))

    def ask(self, request):
        """The whole answer to these bytes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            pieces = []
            # A vault that has heard enough hangs up: the rest cannot be sent, and the answer ends with a reset.
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            try:
                while piece := connection.recv(1 << 20):
                    pieces.append(piece)
            except ConnectionResetError:
                pass
        return b"".join(pieces)

    def sealed(self, number, **changes):
        """The sealed reports of a round."""
        answer = self.ask(self.request(number, **changes))
        assert answer[:1] == b"\0", answer
        return answer[1:]


def new_run(layout):
    """The analyzer's run of a federation, before its first round, to replay what it was given."""
    terms = FederationTerms.read(layout.analyzer / "terms.json")
    schedule = read_settings(layout.analyzer / "schedule.json", Schedule)
    with np.load(layout.analyzer / "test.npz") as stored:
        test = seen_through(terms.feature_map(), Examples(stored["features"], stored["labels"]))
    of = Identity(terms.digest, "", "replayed")
    model = own_model(terms.model, read_settings(layout.analyzer / "analyzer.json", AnalyzerSettings).model)
    choices = {"start": model.start().astype(np.float64), "users": 1, "cohorts": None, "limit": terms.limit}
    return Run(terms.terms, schedule, model, of, test=test, **choices)


def worst_of(enrolled, honest):
    """Whom a round is charged for: somebody with the largest budget, among others with the largest that there are."""
    ordered = sorted(enrolled, reverse=True)
    return np.array([ordered[0], *ordered[: honest - 1]])


def take(run, batch, honest=None):
    """Charge a round and conclude it; ``honest`` are how many of those in it are relied on, by default all."""
    honest = batch.budgets.size if honest is None else honest
    run.charge(np.sort(batch.budgets), worst_of(batch.budgets, honest))
    run.conclude(batch, time.perf_counter())


def population():
    """Eight users with one to three examples of four features, in three classes."""
    generator = np.random.default_rng(12)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(1, 4, 8))])
    return {
        "features": generator.random((offsets[-1], 4), dtype=np.float32),
        "labels": generator.integers(0, 3, offsets[-1], dtype=np.uint8),
        "offsets": offsets,
    }


def frames_of(answer, dimensions=15, levels=16):
    """The sealed reports in an answer of a vault."""
    reader = FrameReader(envelope_size(dimensions, levels))
    frames = list(reader.feed(answer))
    assert reader.is_complete
    return frames


def opened(answer, key, dimensions=15, levels=16):
    """Levels, budgets and senders in an answer of a vault."""
    envelopes = [parse(frame, dimensions, levels) for frame in frames_of(answer, dimensions, levels)]
    budgets, reports = zip(*(envelope.open(key) for envelope in envelopes), strict=True)
    rows = np.stack([unpacked(report, dimensions, levels) for report in reports])
    return rows, np.array(budgets), [envelope.sender for envelope in envelopes]


def broken_frame(length, body):
    """A frame that says another length than it has."""
    return struct.pack("<I", length) + body


def is_root():
    return os.geteuid() == 0
