"""Processes that die, and a disk that refuses: no report counts twice, no budget is spent twice, no round is lost.

One federation of two devices goes through all of it, fault after fault: it begins with an `up` that is killed and ends
with one that is told to stop. Every test brings up what is missing, so it can run alone; run in order, they cost one
start. After each, the books of all parties must agree. Every step at which an analyzer, a vault or the shuffler may die
is tried in test_local_federation.py; here it is one of each that really dies.
"""

import contextlib
import json
import resource
import signal
import sqlite3
import time

import numpy as np
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from local_federation import few_people
from parties import apes, new_run, worst_of
from trials import begin_up

from apes import CountedBatch, LogisticRegression, Plan
from apes.accounting.roster import read_as
from apes.federation.subject import Subject
from apes.federation.terms import FederationTerms
from apes.federation.trial.processes import is_running
from apes.federation.trial.setup import set_up
from apes.federation.trial.trial import FederationError, Trial
from apes.training.run_folder import RunFolder
from apes.wire.release import Release

pytestmark = pytest.mark.process
# More rounds than there is time for; nobody who lives may be left out on a busy machine.
DEVICES, ROUNDS, ROUND_SECONDS = 2, 5000, 600.0
# Wide enough for a checkpoint that is larger than all other files.
FEATURES = 2000
_PATIENCE = 400.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Two devices of one user each; whatever runs at the end is stopped."""
    folder, people = tmp_path_factory.mktemp("f") / "faults", few_people(DEVICES, features=FEATURES)
    plan, subject = Plan(rounds=ROUNDS, levels=16), Subject(LogisticRegression(FEATURES, 3), people.test, DEVICES)
    limits = {"colluding": 0, "round_seconds": ROUND_SECONDS, "allow_no_protection": True}
    set_up(folder, plan, subject, people, DEVICES, **limits)
    trial = Trial(folder)
    for number in range(1, DEVICES + 1):
        change(trial.layout.vault(number) / "vault.json", answer_seconds=1.0)
    try:
        yield trial
    finally:
        trial.down()


def change(file, **changes):
    """Change a settings file by hand."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_second_up_is_refused_and_a_killed_one_leaves_its_parties(trial):
    with begin_up(trial.layout.folder) as up:
        try:
            wait("a round", lambda: trial.metrics() or up.poll() is not None)
            assert up.poll() is None, up.stderr.read()
            before = trial.processes.all()
            code, _, errors = apes("federation", "up", trial.layout.folder)
            assert code == 2
            assert "federation.json is in use by another process" in errors
            next_round(trial)
            assert up.poll() is None
            assert trial.processes.all() == before
        finally:
            up.kill()
    assert up.wait() == -signal.SIGKILL
    assert set(trial.processes.all()) == {"shuffler", "superlink", *trial.vaults, *trial.nodes}
    # The rounds go on.
    next_round(trial)
    check_books(trial)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of another process")
def test_a_disk_that_takes_no_checkpoint_ends_the_run_and_keeps_the_last_one(trial):
    run = go_on(trial, anew=True)
    next_round(trial)
    with mid_round(trial) as lost:
        folder = trial.layout.analyzer / "run"
        kept = (folder / "private/checkpoint.npz").read_bytes()
        before = trial.metrics()
        # Enough for a batch of reports, too little for the checkpoint: the round is released, and not kept.
        resource.prlimit(analyzer_pid(trial), resource.RLIMIT_FSIZE, (len(kept) * 3 // 4,) * 2)
    with pytest.raises(FederationError, match=r"run cannot be written, so round \d+ does not count yet: .*too large"):
        trial.watch(run, lambda entry: None)
    assert trial.metrics() == before
    assert (folder / "private/checkpoint.npz").read_bytes() == kept
    assert not list(folder.rglob(".checkpoint*"))
    released, asked = releases(trial)[lost][0], times_asked(trial, lost)
    go_on(trial)
    wait_for_rounds(trial, lost)
    assert trial.metrics()[: len(before)] == before
    assert releases(trial)[lost][0].encode() == released.encode()
    assert times_asked(trial, lost) == asked == DEVICES
    check_books(trial)


def test_a_shuffler_killed_in_mid_round_goes_on_from_its_ledger(trial):
    go_on(trial)
    with mid_round(trial) as number:
        kill(trial, "shuffler")
    # Everybody reports, and there is nobody to take it.
    wait("all reports", lambda: all(number in answered for answered, _ in vaults(trial).values()))
    before = trial.metrics()
    assert len(before) == number - 1
    trial.start(["shuffler"])
    assert wait_for_rounds(trial, number)[: number - 1] == before
    check_books(trial)


def test_an_analyzer_killed_in_mid_round_goes_on_from_its_checkpoint(trial):
    """Some have answered the round that is lost with it; they are asked again and must not be charged again."""
    go_on(trial)
    with mid_round(trial) as number:
        kill_analyzer(trial)
    before = trial.metrics()
    assert len(before) == number - 1
    go_on(trial)
    assert wait_for_rounds(trial, number)[: number - 1] == before
    check_books(trial)


def test_a_superlink_killed_and_started_again_takes_the_run_again(trial):
    go_on(trial)
    before, old = next_round(trial), analyzer_pid(trial)
    nodes = {name: trial.processes.all()[name] for name in trial.nodes}
    kill(trial, "superlink")
    trial.start(["superlink"])
    trial.submit()
    wait("the old analyzer's end", lambda: not runs(old))
    reached = len(trial.metrics())
    wait_for_rounds(trial, reached + 1)
    assert {name: trial.processes.all()[name] for name in trial.nodes} == nodes
    assert trial.metrics()[: len(before)] == before
    check_books(trial)


def test_down_stops_everybody_and_up_goes_on_until_it_is_told_to_stop(trial):
    folder = trial.layout.folder
    go_on(trial)
    left = family(trial)
    assert len(left) > 2 * DEVICES + 2
    stopped = told("down", folder)["stopped"]
    assert set(stopped) == {"analyzer-0001", "shuffler", "superlink", *trial.vaults, *trial.nodes}
    assert not [process for process in left if is_running(process)]
    assert not of_folder(folder)
    assert told("down", folder)["stopped"] == []
    check_books(trial)

    before = trial.metrics()
    with begin_up(folder) as up:
        try:
            wait("a round", lambda: len(trial.metrics()) > len(before) or up.poll() is not None)
            assert up.poll() is None, up.stderr.read()
            left = family(trial)
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=_PATIENCE)
        finally:
            up.kill()
    assert up.returncode == 128 + signal.SIGTERM
    assert not [process for process in left if is_running(process)]
    assert not of_folder(folder)
    assert trial.metrics()[: len(before)] == before
    check_books(trial)


@contextlib.contextmanager
def mid_round(trial):
    """A round that the second vault has answered and the first has not, for as long as the block lasts.

    The first one's courier stands still meanwhile, so the round cannot end. It may have stopped with its vault's answer
    in hand: both vaults have answered then, and that round is let pass.
    """
    courier = trial.processes.all()[trial.nodes[0]]
    while True:
        with standing_still(courier):
            wait("an answer of the second vault", lambda: last(trial, 2) > min(last(trial, 1), len(trial.metrics())))
            number = last(trial, 2)
            if number > last(trial, 1):
                wait("the end of the one before", lambda before=number - 1: len(trial.metrics()) == before)
                yield number
                return
        wait_for_rounds(trial, number)


def last(trial, device):
    """The last round that a vault answered."""
    return max(vaults(trial)[device][0])


@contextlib.contextmanager
def standing_still(*processes):
    """Processes that do nothing until the block ends."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def check_books(trial):
    """Check that analyzer, shuffler and vaults agree on every round; return the shuffler's rounds.

    The analyzer stands still meanwhile; the others end what they have begun, so their books are read after its own.
    """
    analyzer = [psutil.Process(analyzer_pid(trial))] if runs(analyzer_pid(trial)) else []
    with standing_still(*analyzer):
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
    if runs(analyzer_pid(trial)):
        return None
    run = trial.submit()
    wait("the analyzer", lambda: runs(analyzer_pid(trial)))
    return run


def next_round(trial):
    """Wait until a round has just ended, so that the next one has just begun; return the metrics so far."""
    return wait_for_rounds(trial, len(trial.metrics()) + 1)


def wait_for_rounds(trial, count):
    """Wait until so many rounds are over and written down whole; return their metrics."""
    events = trial.layout.analyzer / "run" / "private/metrics.jsonl"
    wait(f"round {count}", lambda: events.exists() and len(events.read_text().splitlines()) >= count)
    return trial.metrics()[:count]


def wait(what, is_there):
    """Wait for something; only a hang reaches the end."""
    end = time.monotonic() + _PATIENCE
    while not is_there():
        assert time.monotonic() < end, f"waited {_PATIENCE:g} seconds for {what}"
        time.sleep(0.02)


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
    wait("the analyzer's end", lambda: not runs(pid))


def stop_analyzer(trial):
    if runs(analyzer_pid(trial)):
        kill_analyzer(trial)


def runs(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return pid is not None and is_running(psutil.Process(pid))
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
