"""The analyzer's run, without a network: its guarantee is the limit that was agreed, and no other cohorts count."""

import hashlib
import json
import shutil
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import BUDGETS, LIMITS, agreed, release_of, task_for_few, worst_of
from typer.testing import CliRunner

from apes import Examples
from apes.cli.main import app
from apes.errors import DataError, ProtocolError
from apes.federation.analyzer import AnalyzerRun
from apes.federation.invitation import read_invitation
from apes.federation.parties import Servers, invite
from apes.federation.receipts import Charging, certify_by_receipts
from apes.training.run_folder import RunFolder
from apes.wire.receipt import Receipt
from apes.wire.roster import Roster

USERS = [range(8), range(3), range(2, 7)]


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    """The folder of whoever invited, and the terms."""
    terms, test = agreed(), Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    folder = tmp_path_factory.mktemp("i") / "f"
    invitation = invite(folder, task_for_few(terms, test), Servers(("here", 1), ("there", 2), 1))
    return folder, invitation, terms


@pytest.fixture
def open_run(invited, tmp_path, monkeypatch):
    """Open the run of an analyzer whose shuffler has released these rounds; after the first time, once more."""
    return opener(invited, tmp_path, monkeypatch)


def opener(invited, tmp_path, monkeypatch):
    folder, invitation, terms = invited
    shutil.copytree(folder, tmp_path / "f", ignore=shutil.ignore_patterns("app"))
    key = Ed25519PrivateKey.from_private_bytes((folder / "shuffler" / "receipts.key").read_bytes())

    def open_again(rounds, budgets=BUDGETS, of_roster=None, **changes):
        run = AnalyzerRun(tmp_path / "f" / "analyzer" / "analyzer.json")

        def release(_, number):
            return release_of(run._announced(), rounds[number - 1], budgets, **{"key": key, **changes})

        own = {"run": invitation.run, "terms": terms.digest, "budgets": budgets, "key": key} | (of_roster or {})
        roster_of = Roster(own["run"], own["terms"], own["budgets"]).signed(own["key"])
        monkeypatch.setattr(run._shuffler, "release", release)
        monkeypatch.setattr(run._shuffler, "roster", lambda _: roster_of)
        return run

    return open_again


def spent_by(terms, rounds):
    """What cohorts have spent after each round, by the Gaussians that a filter counts in."""
    accountant, figures = terms.terms.accountant(1, settled=False), []
    for users in rounds:
        figures.append(accountant.record(terms.terms.exposure(0, worst_of(BUDGETS, len(users)), terms.dimensions)))
    return figures


def test_the_guarantee_is_the_limit(open_run):
    """Also for a run that was stopped, opened again, and certified from its folder."""
    run = open_run(USERS)
    assert not run.begin_round()
    run = open_run(USERS)
    assert not any(run.begin_round() for _ in range(2))
    assert run.is_done
    run.finish()
    certified = json.loads((run.folder / "private/summary.json").read_text())["certified"]
    limit = run.terms.limit
    assert (certified["epsilon"], certified["road"]) == (limit.epsilon(1e-3), "adaptive")
    assert certified["mu"] == limit.mu_squared**0.5
    assert certified["epsilon_by_round"] == spent_by(run.terms, USERS)
    assert certified["epsilon_by_round"][-1] < certified["epsilon"]
    signed, terms, _ = read_invitation(invitation_of(run))
    charging = Charging.under(terms, signed.run, signed.receipts_key)
    for by_round, guarantee in (
        RunFolder.open(run.folder).recertify(),
        certify_by_receipts(RunFolder.open(run.folder), terms, charging),
    ):
        assert (by_round, guarantee.epsilon) == (certified["epsilon_by_round"], certified["epsilon"])


def test_the_worst_cohort_in_every_round_is_within_the_limit(open_run):
    run = open_run(3 * [range(3)], np.full(8, 1.0))
    while not run.is_done:
        assert not run.begin_round()
    run.finish()
    certified = json.loads((run.folder / "private/summary.json").read_text())["certified"]
    assert certified["epsilon_by_round"][-1] == pytest.approx(certified["epsilon"], rel=1e-3)


@pytest.mark.parametrize(
    ("budgets", "users"),
    [([1.0, 1.0, 1.0], 2), ([0.5, 0.5, 1.001], 3), ([0.5, 0.5, 0.049], 3), ([0.5, 0.5, 0.5], 4)],
    ids=["too few", "too large", "too small", "too many"],
)
def test_a_cohort_beyond_the_limits_does_not_count(open_run, budgets, users):
    run = open_run([range(users)], np.array(budgets))
    with pytest.raises(ProtocolError, match="release 1 is of a cohort beyond the terms' limits"):
        run.begin_round()
    names = Counter(path.name for path in run.folder.iterdir())
    assert (run.progress.rounds, names) == (0, {"config.json": 1, "README.txt": 1, "private": 1, "roster.bin": 1})
    assert LIMITS.takes(np.array([0.05, 1.0]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key": Ed25519PrivateKey.generate()}, "not signed by the shuffler"),
        ({"announcement": "ab" * 32}, "not that of round 1 as it was announced"),
        ({"round": 2}, "not that of round 1"),
        ({"terms": "ab" * 32}, "not that of round 1"),
        ({"run": "ab" * 16}, "not that of round 1"),
        ({"roster": "ab" * 32}, "of this run and roster"),
        ({"previous": "ab" * 32}, "does not follow on the one before it"),
    ],
    ids=["stranger", "announcement", "round", "terms", "run", "roster", "previous"],
)
def test_a_release_with_another_receipt_does_not_count(open_run, changes, told):
    run = open_run(USERS, **changes)
    with pytest.raises(ProtocolError, match=told):
        run.begin_round()
    assert run.progress.rounds == 0
    assert not (run.folder / "receipts.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key": Ed25519PrivateKey.generate()}, "not signed by the shuffler"),
        ({"run": "ab" * 16}, "the roster is not that of this run under these terms"),
        ({"terms": "ab" * 32}, "the roster is not that of this run under these terms"),
    ],
    ids=["stranger", "run", "terms"],
)
def test_a_roster_that_is_another_is_not_kept(open_run, changes, told):
    run = open_run(USERS, of_roster=changes)
    with pytest.raises(ProtocolError, match=told):
        run.begin_round()
    assert not (run.folder / "roster.bin").exists()


@pytest.fixture(scope="module")
def at_the_end(invited, tmp_path_factory):
    """The folder of a run that is over."""
    with pytest.MonkeyPatch.context() as patch:
        run = opener(invited, tmp_path_factory.mktemp("e"), patch)(USERS)
        while not run.is_done:
            assert not run.begin_round()
        run.finish()
    return run.folder.parents[1]


@pytest.fixture
def run(at_the_end, tmp_path):
    """A copy of that folder, as its run is seen afterwards."""
    shutil.rmtree(tmp_path / "f", ignore_errors=True)
    shutil.copytree(at_the_end, tmp_path / "f")
    return SimpleNamespace(folder=tmp_path / "f" / "analyzer" / "run")


def invitation_of(run):
    return run.folder.parents[1] / "invitation"


def accounted(run, *options):
    return CliRunner().invoke(
        app, ["account", "--run", str(run.folder), "--invitation", str(invitation_of(run)), *options]
    )


def refused(run):
    """The one line in which `apes account --run` refuses a run."""
    done = accounted(run)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    return done.stderr


def reconfigured(run, change):
    """Change the configuration, the owner's copy of what was chosen, and what the log says it is; return it."""
    file, owners = run.folder / "config.json", run.folder / "private" / "choices.json"
    config, own = json.loads(file.read_text()), json.loads(owners.read_text())
    change(config)
    file.write_text(json.dumps(config))
    owners.write_text(json.dumps(own | {"choices": own["choices"] | config["choices"]}))
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    log = lines_of(run.folder / "exposures.jsonl")
    for line in log:
        line["run"]["config"] = digest
    (run.folder / "exposures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    return config


def receipts_edited(run, edit):
    file = run.folder / "receipts.jsonl"
    file.write_text("".join(f"{line}\n" for line in edit(file.read_text().splitlines())))


def with_users(line, users):
    return line.replace('"users": 8', f'"users": {users}')


EDITS = {
    "the last one missing": (lambda lines: lines[:-1], "it has 2 receipts, 3 rounds were released"),
    "the first one missing": (lambda lines: lines[1:], "does not follow on the one before it"),
    "one in the middle missing": (lambda lines: [lines[0], lines[2]], "does not follow on the one before it"),
    "one twice": (lambda lines: [lines[0], *lines], "does not follow on the one before it"),
    "more users than there were": (
        lambda lines: [with_users(lines[0], 9), *lines[1:]],
        "is not signed by the shuffler",
    ),
    "fewer users than there were": (lambda lines: [with_users(lines[0], 7), *lines[1:]], "is not signed"),
    "no receipts": (lambda lines: ["none", "at", "all"], "not a receipt"),
}


@pytest.mark.parametrize("name", EDITS)
def test_forged_and_missing_receipts_are_refused(open_run, run, name):
    edit, told = EDITS[name]
    receipts_edited(run, edit)
    assert told in refused(run)
    with pytest.raises(DataError, match=r"receipts\.jsonl does not hold"):
        open_run(USERS).finish()


def test_a_run_charged_for_less_than_its_receipts_say_is_refused(run):
    """Whoever edits all that is not signed, and not what is: the log is for others than the receipts are."""
    reconfigured(run, lambda config: config["choices"].update(colluding=1))
    assert "its configuration is not of those who take part in" in refused(run)
    (run.folder / "roster.bin").unlink()
    assert "roster.bin does not hold" in refused(run)


def test_the_summary_is_what_the_receipts_prove(run):
    summary = json.loads((run.folder / "private/summary.json").read_text())
    assert summary["participants_by_round"] == [len(users) for users in USERS]
    told = json.loads(accounted(run, "--json").stdout)
    assert told["fingerprint"] == read_invitation(invitation_of(run))[0].fingerprint
    again = told["certified"]
    assert {name: again[name] for name in summary["certified"]} == summary["certified"]


def test_the_announcement_is_the_same_after_a_crash(open_run):
    run = open_run(USERS)
    assert not run.begin_round()
    assert open_run(USERS).announcement == run.announcement
    first = run._announced()
    assert not run.begin_round()
    assert (run._announced().round, first.round) == (3, 2)
    assert run._announced().previous != first.previous


def test_a_release_that_was_kept_and_not_concluded_is_taken_again(open_run, monkeypatch):
    """A kill between the receipt and the checkpoint."""
    run = open_run(USERS)
    monkeypatch.setattr(run._run, "charge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.begin_round()
    assert len((run.folder / "receipts.jsonl").read_text().splitlines()) == 1
    again = open_run(USERS)
    assert again.progress.rounds == 0
    assert not again.begin_round()
    assert len((run.folder / "receipts.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta", 0.4),
        ("expected_rounds", 1),
        ("target", 1e-3),
        ("colluders", 1),
        ("settled", True),
        ("limit", None),
        ("limit", {"mu_squared": 1e-9, "delta": 1e-9}),
        ("rounds", 1),
        ("cohorts", "0" * 64),
    ],
)
def test_a_finished_run_is_not_certified_as_another(run, name, value):
    """As settled, say, for what was spent; or for a smaller limit."""
    file = run.folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"basis": config["basis"] | {name: value}}))
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    assert f"config.json is not that of its log: {name} is" in refused(run)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def rewritten(run, change, **basis):
    """Everything that is not signed says something smaller, and agrees with itself; nothing else is left to compare."""
    for name in ("private/checkpoint.npz", "private/metrics.jsonl", "private/summary.json"):
        (run.folder / name).unlink(missing_ok=True)
    config = reconfigured(run, lambda config: config["basis"].update(basis))
    log = [change(line) for line in lines_of(run.folder / "exposures.jsonl")]
    for line in log:
        line["run"]["basis"] = json.dumps(config["basis"], sort_keys=True)
    (run.folder / "exposures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))


LIMIT = {"mu_squared": 1e-3, "delta": 1e-6}


@pytest.mark.parametrize(
    ("change", "basis", "told"),
    [
        (lambda line: line, {"limit": LIMIT}, "its receipts prove"),
        (lambda line: line, {"delta": 0.4}, "its receipts prove"),
        (lambda line: line | {"charged": 1, "dimensions": 1}, {"limit": LIMIT}, "charged otherwise than its receipt"),
        (lambda line: line | {"levels": 2}, {"limit": LIMIT}, "charged otherwise than its receipt"),
        (lambda line: line | {"sparsifier": "random-b", "charged": 1}, {}, "charged otherwise than its receipt"),
    ],
    ids=["limit", "delta", "coordinates", "levels", "sparsifier"],
)
def test_a_log_that_agrees_with_itself_and_not_with_what_was_signed(run, change, basis, told):
    """Receipts and roster are as they were: once, the folder's own limit and form were taken all the same."""
    rewritten(run, change, **basis)
    # By itself it would be believed.
    assert RunFolder.open(run.folder).recertify()[1].epsilon > 0
    assert told in refused(run)


def test_receipts_of_another_shuffler_are_refused(run):
    """Everything signed anew, with a key of the analyzer's own, and that key in the configuration."""
    own = Ed25519PrivateKey.generate()
    receipts = [Receipt.read(line).signed(own) for line in (run.folder / "receipts.jsonl").read_text().splitlines()]
    (run.folder / "receipts.jsonl").write_text("".join(f"{receipt.line()}\n" for receipt in receipts))
    key = own.public_key().public_bytes_raw().hex()
    reconfigured(run, lambda config: config["choices"].update(receipts_key=key))
    assert "is not signed by the shuffler" in refused(run)


def test_a_federations_run_is_certified_by_its_invitation_alone(run, tmp_path):
    done = CliRunner().invoke(app, ["account", "--run", str(run.folder)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "invitation must be given: a federation's run is certified by the terms" in " ".join(done.stderr.split())
    (invitation_of(run) / "terms.json").write_text((invitation_of(run) / "terms.json").read_text().replace("3", "4", 1))
    assert accounted(run).exit_code == 2
