"""A federation in one process, killed at every step: the same model, bit for bit, and books that agree.

Vaults draw the same whenever they answer a round (`local_federation.Seeded`), so whatever is lost, asked again or taken
again on the way must not be seen in the model. What real processes and Flower add to it is in test_faults.py.
"""

import json
from collections import Counter

import numpy as np
import pytest
from local_federation import (
    BEGINNING,
    END,
    POINTS,
    ROUND,
    Killed,
    LocalFederation,
    copied,
    few_people,
    small_federation,
)
from local_shuffler import POINTS as SHUFFLERS_POINTS
from local_vault import POINTS as VAULTS_POINTS
from parties import worst_of
from trials import is_simulated

from apes.errors import DataError, ProtocolError
from apes.federation import relay
from apes.federation.receipts import Receipts
from apes.storage import files
from apes.storage.database import read_database
from apes.training.run_folder import RunFolder
from apes.wire.release import Release

pytestmark = pytest.mark.service

USERS, ROUNDS = 3, 2
# One of each kind: answered, kept, not yet saved, saved.
AT_ONCE = (
    "after vault 1 answers",
    "after the receipt is kept",
    "before the checkpoint is saved",
    "after the checkpoint is saved",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of a federation that has not trained yet."""
    return small_federation(tmp_path_factory.mktemp("l") / "three", rounds=ROUNDS)


@pytest.fixture(scope="module")
def undisturbed(prepared, tmp_path_factory):
    """The same federation after all its rounds, with nobody killed."""
    with LocalFederation(copied(prepared, tmp_path_factory.mktemp("u") / "f")) as federation:
        federation.train()
        yield federation


@pytest.fixture
def federation(prepared, tmp_path):
    with LocalFederation(copied(prepared, tmp_path / "f")) as federation:
        yield federation


def facts(federation):
    """What a run came to, but for how long it took."""
    metrics = RunFolder.open(federation.layout.analyzer / "run").load().metrics
    return [(entry.round, entry.accuracy, entry.loss, entry.epsilon) for entry in metrics]


def check_the_same(federation, undisturbed):
    """The model of a federation is that of one where nobody was killed, and the books of all parties agree."""
    assert federation.model() == undisturbed.model()
    assert facts(federation) == facts(undisturbed)
    check_books(federation)


def check_books(federation):
    """Nobody's report counts twice, nobody is charged twice, no round is lost or kept twice."""
    run, ledger = federation.layout.analyzer / "run", federation.layout.shuffler / "ledger.sqlite"
    releases = [Release.decode(data) for (data,) in read_database(ledger, "select release from rounds order by round")]
    assert [release.receipt.round for release in releases] == list(range(1, ROUNDS + 1))
    counted = Counter(read_database(ledger, "select round, sender from participants"))
    assert set(counted.values()) == {1}
    assert Counter(number for number, _ in counted) == dict.fromkeys(range(1, ROUNDS + 1), USERS)
    kept = [line + "\n" for line in (release.receipt.line() for release in releases)]
    assert (run / "receipts.jsonl").read_text() == "".join(kept)
    for name in ("exposures.jsonl", "private/metrics.jsonl"):
        assert [json.loads(line)["round"] for line in (run / name).read_text().splitlines()] == [1, 2], name
    for vault in federation.vaults:
        assert vault.rows("select round from answers order by round") == [(1,), (2,)]
        assert vault.rows("select sum(rounds) from spent") == [(ROUNDS,)]
    summary = json.loads((run / "private/summary.json").read_text())
    assert summary["participants_by_round"] == [USERS] * ROUNDS
    assert f"{USERS} people in every round" in (run / "private/report.html").read_text()
    # Sealed reports were not to be kept, whichever attempt they are of.
    assert list((run / "rounds").iterdir()) == []


def test_a_run_takes_these_steps_and_no_others(undisturbed):
    """A step that is new to this list is one more where a kill must do no harm."""
    first, last = (*BEGINNING[:3], *ROUND), (*ROUND, *END)
    assert [step for number, step in undisturbed.steps if number == 2] == list(last)
    before = [step for number, step in undisturbed.steps if number < 2]
    assert [step for step in before if step != BEGINNING[3]] == list(first)
    check_books(undisturbed)
    assert np.frombuffer(undisturbed.model()).any()


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in AT_ONCE else pytest.mark.service) for point in POINTS]
)
def test_an_analyzer_killed_in_the_last_round_goes_on_to_the_same_model(federation, undisturbed, point):
    federation.kill_at(point)
    with pytest.raises(Killed):
        federation.train()
    federation.train()
    check_the_same(federation, undisturbed)


@pytest.mark.service
@pytest.mark.parametrize("point", [f"{when} {step}" for step in BEGINNING for when in ("before", "after")])
def test_an_analyzer_killed_as_it_begins(federation, undisturbed, point):
    federation.kill_at(point, round=1 if "budgets" in point else 0)
    with pytest.raises(Killed):
        federation.train()
    federation.train()
    check_the_same(federation, undisturbed)


@pytest.mark.exhaustive
def test_an_analyzer_killed_at_every_step_of_one_run(federation, undisturbed):
    """One kill after the other, in both rounds: every start gets as far as the next."""
    # Metrics of a round that is saved are written with those of the next, or at the end.
    saved = POINTS.index("before the metrics are written")
    for number, points in ((1, POINTS[:saved]), (2, POINTS[:saved]), (0, POINTS[saved:])):
        for point in points:
            federation.kill_at(point, round=number)
            with pytest.raises(Killed):
                federation.train()
    federation.train()
    check_the_same(federation, undisturbed)


@pytest.mark.service
@pytest.mark.parametrize("point", VAULTS_POINTS)
def test_a_vault_that_dies_answers_once_it_is_back(federation, undisturbed, point):
    federation.kill_at("before the round is announced")
    with pytest.raises(Killed):
        federation.train()
    federation.vaults[1].fail(point)
    federation.train()
    check_the_same(federation, undisturbed)


@pytest.mark.service
@pytest.mark.parametrize("point", SHUFFLERS_POINTS)
@pytest.mark.parametrize("number", [0, 1, 2, -2, -1])
def test_a_shuffler_that_dies_goes_on_from_its_ledger(federation, undisturbed, point, number):
    """At the first of its steps, as it fixes the roster, and at the last, as it closes a round."""
    times = Counter(undisturbed.shuffler.passed)[point]
    federation.shuffler.crash_at(point, skip=range(times)[number])
    federation.train()
    check_the_same(federation, undisturbed)
    assert [event["event"] for event in federation.shuffler.events()].count("serving") == 2


def test_a_full_disk_ends_the_run_and_keeps_the_last_round(federation, undisturbed, monkeypatch):
    """The round is released and does not count yet; with room again, the same release is taken."""
    sync = files.sync

    def full(file):
        if "checkpoint" in file.name and federation.round == 2:
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(DataError, match=r"run cannot be written, so round 2 does not count yet: .*No space left"):
        federation.train()
    run = federation.layout.analyzer / "run"
    assert RunFolder.open(run).load().rounds == 1
    assert not list(run.rglob(".checkpoint*"))
    monkeypatch.undo()
    federation.train()
    check_the_same(federation, undisturbed)


def test_a_vault_that_is_silent_costs_its_own_reports_and_is_asked_again(federation, undisturbed):
    """Here, too few are left to release; an attempt later it is there."""
    asked, answers = [], federation.grid.nodes[101]

    def silent_at_first(head, whole):
        asked.append(head.metadata.group_id)
        if len(asked) == 1:
            federation.vaults[0].fail("before the draw")
        return answers(head, whole)

    federation.grid.nodes[101] = silent_at_first
    federation.train()
    assert asked == ["1", "1", "2"]
    check_the_same(federation, undisturbed)


def test_five_attempts_are_enough(federation, monkeypatch):
    """Without one of those who are all needed, the run ends, and says so."""
    monkeypatch.setattr(relay, "_SECONDS_FOR_NODES", 0.0)
    del federation.grid.nodes[103]
    with pytest.raises(ProtocolError, match="round 1 found too few reports 5 times; see the shuffler's log"):
        federation.train()
    assert not (federation.layout.analyzer / "run" / "private/metrics.jsonl").exists()


def test_vaults_that_refuse_for_good_are_not_asked_again(federation):
    """Their owners agreed to another analyzer."""
    for vault in federation.vaults:
        vault.kill()
        settings = json.loads((vault.folder / "vault.json").read_text())
        (vault.folder / "vault.json").write_text(json.dumps(settings | {"analyzer_key": "ab" * 32}))
        vault.start()
    with pytest.raises(ProtocolError) as refused:
        federation.train()
    assert "round 1 found too few reports 1 times; vaults refused by 'announcement' 3 times" in str(refused.value)
    assert "their owners agreed to other terms, perhaps to another model or analyzer" in str(refused.value)


def test_a_summary_says_what_the_receipts_prove_and_not_what_was_charged(federation):
    """Whoever charges a round for others than its receipt says gets no summary."""
    analyzer = federation.analyzer
    charged = []

    def charging_less():
        run = analyzer()
        charge = run._run.charge

        def less(budgets, worst):
            charged.append(worst)
            charge(budgets, np.full_like(worst, worst.min()) / 2)

        run._run.charge = less
        return run

    federation.analyzer = charging_less
    with pytest.raises(DataError, match="round 1 was charged otherwise than its receipt says"):
        federation.train()
    assert len(charged) == ROUNDS
    assert not (federation.layout.analyzer / "run" / "private/summary.json").exists()


def test_two_receipts_of_a_round_are_refused(undisturbed):
    """The same one again is no other."""
    run = undisturbed.analyzer()
    kept = run._receipts.first(ROUNDS)
    run._receipts.keep(kept[0])
    signed = Receipts(run.folder, run.settings.run, run.terms.digest, run._receipts._shuffler).first(ROUNDS)
    assert signed == kept
    other = kept[1].__class__(**{**vars(kept[0]), "users": 2})
    with pytest.raises(ProtocolError, match="the shuffler signed two receipts of round 1"):
        run._receipts.keep(other)
    run._shuffler._http.close()


def test_a_device_that_dies_is_not_counted_and_the_certificate_says_so(tmp_path):
    """As many are charged as took part, those with the largest budgets; more than if nobody had been missing."""
    folder = small_federation(tmp_path / "f", rounds=3, smallest_cohort=2)
    with LocalFederation(folder) as federation:
        answers = federation.grid.nodes[101]

        def dies_in_the_second(head, whole):
            if head.metadata.group_id == "2":
                federation.vaults[0].fail("before the draw")
            return answers(head, whole)

        # The one with the smallest budget: without another, the others' largest budget might go.
        federation.grid.nodes[101] = dies_in_the_second
        federation.train()
    summary = json.loads((federation.layout.analyzer / "run" / "private/summary.json").read_text())
    assert summary["participants_by_round"] == [3, 2, 3]
    assert federation.vaults[0].rows("select round from answers order by round") == [(1,), (3,)]
    assert federation.vaults[0].rows("select sum(rounds) from spent") == [(2,)]
    terms = federation.finished().terms
    accountant = terms.terms.accountant(1, settled=False)
    exposures = [
        terms.terms.exposure(number, worst_of(few_people().budgets, users), 15)
        for number, users in enumerate((3, 2, 3), 1)
    ]
    charged = [accountant.charge(exposure) for exposure in exposures]
    assert summary["certified"]["epsilon_by_round"] == charged
    assert charged[1] - charged[0] > charged[2] - charged[1]


@pytest.mark.service
def test_the_model_is_the_simulations_bit_for_bit(tmp_path):
    """The same sealed reports, opened and put through the simulation's collector and run, give the same model."""
    with LocalFederation(small_federation(tmp_path / "f", rounds=3, keep_sealed=True)) as federation:
        federation.train()
        assert is_simulated(federation.finished())
