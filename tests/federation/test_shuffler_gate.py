"""The shuffler's gate: whatever is asked in whatever order, what it releases of a run stays within the target."""

import asyncio
import threading
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest
from parties import ANALYZER, BUDGETS, OTHER_RUN, RUN, TOKEN, honest, is_of, path, rounds_of, worst_of

import apes
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.shuffler.service.server import create_app
from apes.shuffler.service.store import LedgerError
from apes.wire.announcement import FIRST
from apes.wire.frames import framed
from apes.wire.release import Release, receipt_of

ALL, FEW = range(8), range(5)


def cost(users, rounds=1, charged=15, b=None, planned=3):
    """Epsilon of rounds with these users, by the Gaussians that the gate counts in."""
    thin = "random-b" if charged < 15 and b is None else None
    exposure = apes.Exposure(worst_of(BUDGETS, len(users)), charged, 16, b, dimensions=15, sparsifier=thin)
    # A thousandth of delta is set aside for a thousand times the rounds that were planned.
    return exposure.cost(1e-3 * 1e-3 / (1e3 * planned * max(exposure.uses))).times(rounds).epsilon(1e-3)


def between(low, high):
    """A target that is far enough from both."""
    assert low < 0.99 * high
    return (low + high) / 2


@pytest.fixture(scope="module")
def figures():
    """What one, two and three rounds with everybody cost."""
    return [cost(ALL, rounds) for rounds in (1, 2, 3)]


@pytest.fixture
def ledger(tmp_path):
    ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def shuffler(small, ledger, target, **changes):
    return Rounds(replace(small.policy, target_epsilon=target, **changes), small.services_keys, ledger)


async def pieces(data):
    for piece in data:
        yield piece


async def send(rounds, small, number, users=ALL, run=RUN):
    """Announce a round after the last one released, and send it: who was in its release, or why there is none."""
    last = rounds._ledger.last(run)
    previous = FIRST if last is None else bytes.fromhex(receipt_of(last).digest)
    reports = framed(honest(small, users, number=number, run=run, previous=previous))
    signed = small.announced(number, run=run, previous=previous).signed(ANALYZER)
    try:
        await rounds.announce(run, number, pieces([signed]))
        release = Release.decode(await rounds.close_round(run, number, pieces(reports)))
    except RequestRefused as refused:
        return refused.status, refused.reason
    assert is_of(release, users)
    return "released"


def sent(*arguments, **bound):
    return asyncio.run(send(*arguments, **bound))


TARGET, ANNOUNCEMENT = (403, "target"), (403, "announcement")


def test_rounds_do_not_pass_the_target_together(small, ledger, figures, tmp_path):
    rounds = shuffler(small, ledger, between(*figures[1:]), rounds=9)
    # A round that was left out is over; and none of it is counted.
    assert [sent(rounds, small, number) for number in (1, 3, 2)] == ["released", "released", ANNOUNCEMENT]
    assert sent(rounds, small, 4) == TARGET
    assert [ledger.find(RUN, number) is None for number in (1, 2, 3, 4)] == [False, True, False, True]
    assert rounds_of(tmp_path / "ledger.sqlite", bytes.fromhex(small.policy.senders[0])) == 2
    # Nor does it help to ask again, and what is out can still be had.
    assert [sent(rounds, small, number) for number in (4, 5)] == [TARGET, TARGET]
    with pytest.raises(RequestRefused, match="round 4 is still open"):
        asyncio.run(rounds.release(RUN, 4))
    assert is_of(Release.decode(asyncio.run(rounds.release(RUN, 3))), ALL)


@pytest.mark.service
def test_two_rounds_at_once_do_not_pass_the_target_together(small, ledger, figures, monkeypatch):
    after = apes.Accountant.after

    def slow(*arguments):
        """Long enough for both to be allowed, if nothing kept them apart."""
        epsilon = after(*arguments)
        time.sleep(0.2)
        return epsilon

    monkeypatch.setattr(apes.Accountant, "after", slow)
    rounds = shuffler(small, ledger, between(*figures[:2]))

    async def both(*asked):
        return await asyncio.gather(*(send(rounds, small, number, run=run) for run, number in asked))

    # Both follow on nothing, so the one that comes second is also late: it is refused for one or the other.
    answers = asyncio.run(both((RUN, 1), (RUN, 2)))
    assert sorted(answers, key=str)[1] == "released"
    assert sorted(answers, key=str)[0] in (TARGET, ANNOUNCEMENT)
    assert len(ledger.releases(RUN)) == 1
    # Another run is another account.
    assert sent(rounds, small, 1, run=OTHER_RUN) == "released"


def test_a_target_below_one_round(small, ledger, figures):
    rounds = shuffler(small, ledger, 0.9 * figures[0])
    assert [sent(rounds, small, number) for number in (1, 2, 1)] == 3 * [TARGET]
    assert ledger.releases(RUN) == []
    assert b"apes_rounds_released_total 0.0\n" in rounds.metrics.text()
    assert b"apes_reports_accepted_total 0.0\n" in rounds.metrics.text()


def test_after_a_restart_it_counts_what_the_ledger_holds(small, figures, tmp_path):
    target, answers = between(*figures[1:]), []
    for number in (1, 2, 3):
        ledger = ShufflerLedger(tmp_path / "ledger.sqlite")
        answers.append(sent(shuffler(small, ledger, target), small, number))
        ledger.close()
    assert answers == ["released", "released", TARGET]


def test_a_target_that_was_lowered_below_what_is_out(small, ledger, figures):
    assert sent(shuffler(small, ledger, None), small, 1) == "released"
    assert sent(shuffler(small, ledger, figures[0] / 2), small, 2) == TARGET
    assert sent(shuffler(small, ledger, 1.01 * figures[1]), small, 2) == "released"


def test_a_smaller_cohort_costs_more_than_the_former(small, ledger, figures):
    mixed = apes.Accountant(1e-3, expected_rounds=3, settled=False)
    # Whoever they are, they are charged as those with the largest budgets.
    for users in (ALL, FEW):
        mixed.charge(apes.Exposure(worst_of(BUDGETS, len(users)), 15, 16))
    rounds = shuffler(small, ledger, between(figures[1], mixed.epsilon))
    assert sent(rounds, small, 1) == "released"
    # Fewer hide one another less; with everybody there, the same round would do.
    assert sent(rounds, small, 2, FEW) == TARGET
    assert sent(rounds, small, 2) == "released"


@pytest.mark.parametrize(("charged", "b"), [(15, None), (6, None), pytest.param(6, 3, marks=pytest.mark.service)])
def test_it_charges_what_the_certificate_says(small, tmp_path, charged, b):
    """One round of one: the figure of the certificate, but for what is set aside, allowed from there on."""
    exactly = cost(ALL, 1, charged, b, planned=1)
    for target, said in ((1.001 * exactly, "released"), (np.nextafter(exactly, 0), TARGET)):
        ledger = ShufflerLedger(tmp_path / f"{said}.sqlite")
        rounds = shuffler(small, ledger, float(target), rounds=1, charged=charged, top_b_first=b)
        assert sent(rounds, small, 1) == said
        ledger.close()


def test_a_round_that_could_not_be_written_is_not_charged(small, ledger, figures, monkeypatch):
    rounds = shuffler(small, ledger, between(*figures[:2]))
    with monkeypatch.context() as failing:
        failing.setattr(ledger, "close_round", lambda *_: (_ for _ in ()).throw(LedgerError("full")))
        assert sent(rounds, small, 1) == (503, "ledger")
    assert sent(rounds, small, 1) == "released"
    assert sent(rounds, small, 2) == TARGET


def test_a_caller_who_goes_away_while_it_is_written_is_charged(small, ledger, figures, monkeypatch):
    rounds, write = shuffler(small, ledger, between(*figures[:2])), ledger.close_round
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        go_on.wait()
        write(*arguments)

    async def leave():
        asking = asyncio.create_task(send(rounds, small, 1))
        await asyncio.to_thread(begun.wait)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert ledger.releases(RUN) == []
        go_on.set()

    with monkeypatch.context() as slowly:
        slowly.setattr(ledger, "close_round", slow)
        asyncio.run(leave())
    assert len(ledger.releases(RUN)) == 1
    assert sent(rounds, small, 2) == TARGET


def test_what_the_caller_hears(small, ledger, figures):
    """Over HTTP: the status, the reason and the target; not what it would have come to."""
    target = between(*figures[:2])
    app = create_app(shuffler(small, ledger, target), TOKEN)

    async def ask():
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://shuffler")
        async with http:
            http.headers["authorization"] = f"Bearer {TOKEN}"
            answers, previous = [], FIRST
            for number in (1, 2):
                signed = small.announced(number, previous=previous).signed(ANALYZER)
                assert (await http.put(f"{path(number)}/announcement", content=signed)).status_code == 204
                body = b"".join(framed(honest(small, number=number, previous=previous)))
                answers.append(await http.post(path(number), content=body))
                if number == 1:
                    previous = bytes.fromhex(receipt_of(answers[0].content).digest)
            return answers, await http.get(path(2)), (await http.get("/metrics")).text

    (first, second), again, metrics = asyncio.run(ask())
    assert is_of(Release.decode(first.content), ALL)
    said = f"round 2 would bring epsilon beyond the target {target:g}; nothing was released"
    assert (second.status_code, second.json()) == (403, {"refused": "target", "message": said})
    assert (again.status_code, again.json()["refused"]) == (404, "open")
    assert 'apes_requests_refused_total{reason="target"} 1.0\n' in metrics
