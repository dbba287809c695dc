"""Processes that die, and a disk that refuses: no report counts twice, no budget is spent twice, no round is lost.

One federation of three devices trains through all of it, fault after fault. Every test brings up what is missing, so it
can run alone; run in order, they cost one start. After each, the books of all three parties must agree.
"""

import contextlib
import json
import resource
import shutil
import signal
import sqlite3
import subprocess
import time

import numpy as np
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import APES, apes, new_run, worst_of

from apes import CountedBatch, Plan, Simulation
from apes.accounting.roster import read_as
from apes.federation.subject import Subject
from apes.federation.terms import FederationTerms
from apes.federation.trial.setup import set_up
from apes.federation.trial.trial import FederationError, Trial
from apes.training.run_folder import RunFolder
from apes.wire.release import Release

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]
# A round takes 7 seconds on a quiet machine; nobody who lives may be left out on a busy one.
DEVICES, ROUNDS, ROUND_SECONDS = 3, 16, 120.0


@pytest.fixture(scope="module")
def trial(small_digits, tmp_path_factory):
    """Three devices of one user each; whatever runs at the end is stopped."""
    folder = tmp_path_factory.mktemp("f") / "faults"
    plan, people = Plan(rounds=ROUNDS, levels=16), Simulation(users=DEVICES, budgets="grid:0.5:1", features="pixels")
    set_up(
        folder,
        plan,
        Subject.of_images(people, small_digits),
        people.people(small_digits),
        DEVICES,
        colluding=0,
        round_seconds=ROUND_SECONDS,
    )
    trial = Trial(folder)
    try:
        yield trial
    finally:
        trial.down()


def test_a_shuffler_killed_in_mid_round_goes_on_from_its_ledger(trial):
    go_on(trial)
    before = next_round(trial)
    wait("a report", lambda: any(len(before) + 1 in answered for answered, _ in vaults(trial).values()))
    kill(trial, "shuffler")
    # Everybody has reported, and there is nobody to take it.
    wait("all reports", lambda: all(len(before) + 1 in answered for answered, _ in vaults(trial).values()))
    assert trial.metrics() == before
    trial.start(["shuffler"])
    wait_for_rounds(trial, len(before) + 1)
    assert trial.metrics()[: len(before)] == before
    books = check_books(trial)
    assert all(len(senders) == DEVICES for _, senders in books.values())


def test_an_analyzer_killed_after_a_round_goes_on_from_its_checkpoint(trial):
    go_on(trial)
    before = next_round(trial)
    # Some have answered the round that is lost with it; they are asked again and must not be charged again.
    wait("an answer", lambda: any(len(before) + 1 in answered for answered, _ in vaults(trial).values()))
    kill_analyzer(trial)
    before = trial.metrics()
    go_on(trial)
    wait_for_rounds(trial, len(before) + 1)
    assert trial.metrics()[: len(before)] == before
    check_books(trial)


def test_an_analyzer_killed_before_its_checkpoint_takes_the_same_release(trial, tmp_path):
    go_on(trial)
    before = next_round(trial)
    lost, run = len(before) + 1, trial.layout.analyzer / "run"
    files = ["checkpoint.npz", "metrics.jsonl", "exposures.jsonl"]
    for name in files:
        shutil.copy2(run / name, tmp_path)
    assert RunFolder.open(run).load().rounds == len(before)
    wait_for_rounds(trial, lost)
    kill_analyzer(trial)
    released, asked = releases(trial)[lost][0], times_asked(trial, lost)
    for name in files:
        shutil.copy2(tmp_path / name, run / name)
    go_on(trial)
    wait_for_rounds(trial, lost)
    assert trial.metrics()[: len(before)] == before
    assert releases(trial)[lost][0].encode() == released.encode()
    assert times_asked(trial, lost) == asked == DEVICES
    assert not (run / "rounds" / f"{lost:06d}.sealed").exists()
    check_books(trial)


def test_a_superlink_killed_and_started_again_takes_the_run_again(trial):
    go_on(trial)
    before, old = next_round(trial), analyzer_pid(trial)
    nodes = {name: trial.processes.all()[name] for name in trial.nodes}
    kill(trial, "superlink")
    trial.start(["superlink"])
    trial.submit()
    wait("the old analyzer's end", lambda: not is_running(old))
    wait_for_rounds(trial, len(before) + 1)
    assert {name: trial.processes.all()[name] for name in trial.nodes} == nodes
    assert trial.metrics()[: len(before)] == before
    books = check_books(trial)
    assert all(len(senders) == DEVICES for _, senders in books.values())


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of another process")
def test_a_disk_that_takes_no_checkpoint_ends_the_run_and_keeps_the_last_one(trial):
    run = go_on(trial, anew=True)
    before, folder = next_round(trial), trial.layout.analyzer / "run"
    # Enough for a batch of reports and a log, too little for the checkpoint: the round is released, and not kept.
    limit = (folder / "checkpoint.npz").stat().st_size * 3 // 4
    resource.prlimit(analyzer_pid(trial), resource.RLIMIT_FSIZE, (limit, limit))
    kept = (folder / "checkpoint.npz").read_bytes()
    with pytest.raises(FederationError, match=r"run cannot be written, so round \d+ does not count yet: .*too large"):
        trial.watch(run, lambda entry: None)
    assert trial.metrics() == before
    assert (folder / "checkpoint.npz").read_bytes() == kept
    assert not list(folder.glob(".checkpoint*"))
    lost = len(before) + 1
    released, asked = releases(trial)[lost][0], times_asked(trial, lost)
    go_on(trial)
    wait_for_rounds(trial, lost)
    assert trial.metrics()[: len(before)] == before
    assert releases(trial)[lost][0].encode() == released.encode()
    assert times_asked(trial, lost) == asked == DEVICES
    check_books(trial)


def test_a_device_that_dies_in_mid_round_is_not_counted_and_the_certificate_says_so(trial):
    # As patient as the machine asks for; the first round may have had loops to compile.
    seconds = max(15.0, 3 * max((entry.seconds for entry in trial.metrics()[1:]), default=10.0))
    change_settings(trial, round_seconds=seconds)
    go_on(trial, anew=True)
    before = next_round(trial)
    # The one with the smallest budget: without another, the others' largest budget might go.
    kill(trial, "courier-0001", "vault-0001")
    alone = len(before) + 1
    metrics = wait_for_rounds(trial, alone + 1)
    stop_analyzer(trial)
    books = check_books(trial)
    assert [len(books[number][1]) for number in (alone - 1, alone, alone + 1)] == [DEVICES, DEVICES - 1, DEVICES - 1]
    answered, spent = vaults(trial)[1]
    assert alone not in answered
    assert spent == len(before)
    # As many are charged as took part, those with the largest budgets; more than if nobody had been missing.
    certified = [entry.epsilon for entry in metrics]
    assert certified == charged(trial, largest(trial, books)[: alone + 1])
    whole = charged(trial, largest(trial, books)[: alone - 1] + [worst_of(roster(trial), DEVICES)] * 2)
    assert certified[: alone - 1] == whole[: alone - 1]
    assert certified[alone - 1] > whole[alone - 1]
    assert certified[alone] > whole[alone]
    change_settings(trial, round_seconds=ROUND_SECONDS)


def test_up_killed_leaves_nothing_that_down_does_not_stop_and_up_goes_on(trial, tmp_path):
    trial.down()
    before = trial.metrics()
    folder, output = trial.layout.folder, tmp_path / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen([APES, "federation", "up", folder], stdout=file, stderr=file) as up,
    ):
        try:
            wait("a round", lambda: len(trial.metrics()) > len(before) or up.poll() is not None, 400)
        finally:
            up.kill()
    before = trial.metrics()
    assert up.returncode == -signal.SIGKILL, output.read_text()
    assert not trial.summary.exists()
    left = family(trial)
    assert len(left) > 2 * DEVICES + 2
    stopped = told("down", folder)["stopped"]
    assert set(stopped) == {"analyzer-0001", "shuffler", "superlink", *trial.vaults, *trial.nodes}
    assert not [process for process in left if process.is_running() and is_running(process.pid)]
    assert not of_folder(folder)
    assert told("down", folder)["stopped"] == []

    summary = told("up", folder)
    assert not of_folder(folder)
    assert trial.metrics()[: len(before)] == before
    assert len(trial.metrics()) == summary["rounds"] == ROUNDS
    books = check_books(trial)
    assert summary["participants_by_round"] == [len(senders) for _, senders in books.values()]
    assert summary["certified"]["epsilon_by_round"] == charged(trial, largest(trial, books))
    with np.load(trial.layout.analyzer / "run" / "model.npz") as stored:
        np.testing.assert_array_equal(stored["weights"], replayed(trial, books).model())


def check_books(trial):
    """Check that analyzer, shuffler and vaults agree on every round; return the shuffler's rounds.

    The books are read from the last to be written to the first, since the run may go on meanwhile.
    """
    progress = RunFolder.open(trial.layout.analyzer / "run").load()
    books, own = releases(trial), vaults(trial)
    dimensions, users = terms(trial).dimensions, senders_of(trial)
    # No round lost: those that the analyzer counts, at most one more at the shuffler, at most one more at the vaults.
    reached = progress.rounds
    assert [entry.round for entry in progress.metrics] == [exposure.round for exposure in progress.exposures]
    assert [entry.round for entry in progress.metrics] == list(range(1, reached + 1))
    assert list(books) in ([*range(1, reached + 1)], [*range(1, reached + 2)])
    for number, (release, senders) in books.items():
        # No report counted twice: as many in every coordinate as there are senders, each of them once.
        assert release.receipt.round == number
        assert len(senders) == len(set(senders)) == release.receipt.users
        assert (release.counts.sum(axis=1) == len(senders)).all()
        assert set(senders) <= set(users)
        # Nor one that was not paid for.
        assert all(number in own[users[sender]][0] for sender in senders)
    for device, (answered, spent) in own.items():
        # No budget spent twice: one charge per round that was answered, and none of another size.
        assert spent == len(answered) == len(set(answered)), f"device {device}"
        assert max(answered) <= len(books) + 1
        assert costs(trial, device) == {dimensions * budget(trial, device)}
    # The analyzer is where the releases lead, to the bit.
    again = replayed(trial, {number: books[number] for number in range(1, reached + 1)}).progress
    np.testing.assert_array_equal(progress.state.weights, again.state.weights)
    np.testing.assert_array_equal(progress.state.velocity, again.state.velocity)
    np.testing.assert_array_equal(progress.state.average, again.state.average)
    assert [each.as_dict() for each in progress.exposures] == [each.as_dict() for each in again.exposures]
    assert [facts(entry) for entry in progress.metrics] == [facts(entry) for entry in again.metrics]
    return books


def facts(entry):
    """A round's metrics but for how long it took."""
    return entry.round, entry.accuracy, entry.loss, entry.epsilon


def replayed(trial, books):
    """The run that the releases of the ledger lead to."""
    run = new_run(trial.layout)
    for release, _ in books.values():
        budgets = read_as(roster(trial), release.receipt.users)
        run.charge(budgets, worst_of(roster(trial), release.receipt.users))
        run.conclude(CountedBatch(release.counts, budgets), time.perf_counter())
    return run


def roster(trial):
    """Everybody's budgets, in order of size."""
    return np.array(sorted(budget(trial, device) for device in range(1, DEVICES + 1)))


def largest(trial, books):
    """Whom rounds are charged for, by the roster: as many as were there."""
    return [worst_of(roster(trial), release.receipt.users) for release, _ in books.values()]


def charged(trial, budgets):
    """What was spent after every round, by the budgets of those who took part in it."""
    agreed = terms(trial)
    accountant = agreed.terms.accountant(1, settled=False)
    return [
        accountant.charge(agreed.terms.exposure(number, of_round, agreed.dimensions))
        for number, of_round in enumerate(budgets, 1)
    ]


def terms(trial):
    return FederationTerms.read(trial.layout.analyzer / "terms.json")


def budget(trial, device):
    """The budget of the user of a device, by its own record."""
    with np.load(trial.layout.vault(device) / "data.npz") as stored:
        return float(stored["budgets"][0])


def senders_of(trial):
    """The device of every registered sender, by the devices' own keys."""
    keys = {device: trial.layout.vault(device) / "keys.bin" for device in range(1, DEVICES + 1)}
    private = {device: Ed25519PrivateKey.from_private_bytes(path.read_bytes()) for device, path in keys.items()}
    return {key.public_key().public_bytes_raw(): device for device, key in private.items()}


def query(path, text, *values):
    """Read a ledger that its owner may have open."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(text, values).fetchall()


def releases(trial):
    """Release and senders of every round that the shuffler closed."""
    ledger = trial.layout.shuffler / "ledger.sqlite"
    rounds = query(ledger, "select round, release from rounds where run = ? order by round", trial.federation.run)
    senders = query(ledger, "select round, sender from participants where run = ?", trial.federation.run)
    return {
        number: (Release.decode(release), [sender for of, sender in senders if of == number])
        for number, release in rounds
    }


def vaults(trial):
    """Rounds that each vault answered, and how many it charged its user for."""
    found = {}
    for device in range(1, DEVICES + 1):
        ledger = trial.layout.vault(device) / "ledger.sqlite"
        answered = query(ledger, "select round from answers where run = ? order by round", trial.federation.run)
        ((spent,),) = query(ledger, "select coalesce(sum(rounds), 0) from spent")
        found[device] = ([number for (number,) in answered], spent)
    return found


def costs(trial, device):
    """What a vault charged for a round, each figure once."""
    return {epsilon for (epsilon,) in query(trial.layout.vault(device) / "ledger.sqlite", "select epsilon from spent")}


def times_asked(trial, number):
    """How often vaults were asked for a round, by their logs."""
    logs = [trial.processes.log(name).read_text().splitlines() for name in trial.vaults]
    entries = [json.loads(line) for log in logs for line in log if line.startswith("{")]
    return sum(entry["event"] == "answered" and entry["round"] == number for entry in entries)


def go_on(trial, *, anew=False):
    """Bring up whatever is missing; with ``anew`` a new analyzer in any case. Return the run if it was submitted."""
    if anew:
        stop_analyzer(trial)
    living = trial.processes.all()
    trial.start([name for name in ["shuffler", "superlink", *trial.vaults] if name not in living])
    trial.register_nodes()
    trial.start([name for name in trial.nodes if name not in living])
    if is_running(analyzer_pid(trial)):
        return None
    run = trial.submit()
    wait("the analyzer", lambda: is_running(analyzer_pid(trial)))
    return run


def change_settings(trial, **changes):
    """Change the analyzer's settings; a new analyzer reads them."""
    file = trial.layout.analyzer / "analyzer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def next_round(trial):
    """Wait until a round has just ended, so that the next one has just begun; return the metrics so far."""
    return wait_for_rounds(trial, len(trial.metrics()) + 1)


def wait_for_rounds(trial, count):
    """Wait until so many rounds are over and written down whole; return their metrics."""
    events = trial.layout.analyzer / "run" / "metrics.jsonl"
    wait(f"round {count}", lambda: events.exists() and len(events.read_text().splitlines()) >= count)
    return trial.metrics()[:count]


def wait(what, is_there, seconds=240.0):
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, f"waited {seconds:g} seconds for {what}"
        time.sleep(0.05)


def kill(trial, *names):
    """Kill parties, reaping them: their own children look whether they are there."""
    for name in names:
        trial.processes.all()[name].kill()
    wait("their end", lambda: trial.processes.all().keys().isdisjoint(names))


def analyzer_pid(trial):
    file = trial.layout.analyzer / "run" / "analyzer.pid"
    return int(file.read_text()) if file.exists() else None


def kill_analyzer(trial):
    pid = analyzer_pid(trial)
    psutil.Process(pid).kill()
    wait("the analyzer's end", lambda: not is_running(pid))


def stop_analyzer(trial):
    if is_running(analyzer_pid(trial)):
        kill_analyzer(trial)


def is_running(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def family(trial):
    """Every process of the trial: what was started, and what that started."""
    started = trial.processes.all().values()
    return {member for process in started for member in (process, *process.children(recursive=True))}


def of_folder(folder):
    """Command lines and working folders of processes that tell of the folder."""
    looked_at = [process.info for process in psutil.process_iter(["cmdline", "cwd", "status"])]
    told = [(info["cwd"], *(info["cmdline"] or ())) for info in looked_at if info["status"] != psutil.STATUS_ZOMBIE]
    return [words for words in told if any(str(folder) in word for word in words if word)]


def told(command, folder):
    """What a command says as JSON."""
    code, output, errors = apes("federation", command, folder, "--json")
    assert code == 0, errors
    return json.loads(output)
