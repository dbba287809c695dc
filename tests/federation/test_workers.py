"""Workers that each count a part of the senders: the same release to the byte, and a worker that dies loses nothing."""

import asyncio
import contextlib
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import psutil
import pytest
from levels import sampled
from parties import ANALYZER, RUN, RUNS, Shuffler, honest, is_of, long_beginning, path, until
from test_intake import ATTACKS

from apes.shuffler.service.crew import Crew
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.rounds import Rounds
from apes.wire.frames import framed
from apes.wire.release import Release

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shuffler(small, tmp_path_factory):
    party = Shuffler(tmp_path_factory.mktemp("w"), replace(small.policy, runs=RUNS), small.shuffler, workers=2)
    party.start()
    yield party
    party.kill()
    party.http.close()


def workers_of(shuffler):
    """The processes that count; not the one that only keeps their semaphores in order."""
    children = psutil.Process(shuffler._process.pid).children(recursive=True)
    return [child for child in children if is_worker(child)]


def is_worker(child):
    try:
        return "spawn_main" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        # It was killed, and nobody has heard of it yet.
        return False


@pytest.fixture(scope="module")
def crew(small):
    """Two workers of no service."""
    counters = Crew(small.shuffler, 2)
    yield counters
    counters.close()


async def in_pieces(data, step=1000):
    for start in range(0, len(data), step):
        yield data[start : start + step]


@pytest.fixture(scope="module")
def mixed(small):
    """Honest reports between all attacks, in everybody's name, and copies of them, in a random order that is kept."""
    reports = honest(small) + [make(small, user) for make, _ in ATTACKS.values() for user in range(8)] + honest(small)
    return [reports[place] for place in np.random.default_rng(3).permutation(len(reports))]


async def released(rounds, small, body):
    """What comes of a batch for an announced round."""
    await rounds.announce(RUN, 1, in_pieces(small.announced().signed(ANALYZER)))
    return await rounds.close_round(RUN, 1, in_pieces(body))


@pytest.mark.parametrize("workers", sampled([2, 1, 3], 1))
def test_the_release_is_the_same_whatever_the_number_of_workers(small, mixed, tmp_path, workers):
    alone, crew = ShufflerLedger(tmp_path / "alone"), ShufflerLedger(tmp_path / "crew")
    counters, body = Crew(small.shuffler, workers), b"".join(framed(mixed))
    try:
        expected = asyncio.run(released(Rounds(small.policy, small.services_keys, alone), small, body))
        rounds = Rounds(small.policy, small.services_keys, crew, counters)
        assert asyncio.run(released(rounds, small, body)) == expected
        assert alone.find(RUN, 1) == crew.find(RUN, 1)
    finally:
        counters.close()
        alone.close()
        crew.close()
    receipt = Release.decode(expected).receipt
    assert receipt.users == 8
    assert receipt.refused["duplicate"] >= 8


@pytest.mark.parametrize("step", ["_begin", "_take", "_end"])
def test_a_worker_that_dies_at_a_step_loses_the_batch_and_nothing_else(crew, small, tmp_path, monkeypatch, step):
    """Killed as it is asked to begin, to count, or for what it counted: a refusal; sent again, it is taken, once."""
    ledger, body = ShufflerLedger(tmp_path / "ledger"), b"".join(framed(honest(small)))
    rounds, killed, submit = Rounds(small.policy, small.services_keys, ledger, crew), [], ProcessPoolExecutor.submit

    def killing(worker, act, *arguments):
        if act.__name__ == step and not killed:
            killed.extend(worker._processes.values())
            killed[0].kill()
        return submit(worker, act, *arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", killing)
    with pytest.raises(RequestRefused) as refused:
        asyncio.run(released(rounds, small, body))
    assert (refused.value.status, refused.value.reason, len(killed)) == (503, "worker", 1)
    assert ledger.find(RUN, 1) is None
    release = asyncio.run(released(rounds, small, body))
    assert is_of(Release.decode(release), range(8))
    assert asyncio.run(released(rounds, small, body)) == release
    assert ledger._store.rows("select count(*) from participants") == [(8,)]
    ledger.close()


def test_a_worker_killed_in_the_middle_of_a_batch(shuffler, small):
    """The batch is refused and nothing released; sent again it is, once."""
    run = shuffler.next_run()
    connection = shuffler.begin_upload(run, long_beginning(honest(small, run=run)))
    victims = until(lambda: len(workers_of(shuffler)) == 2 and workers_of(shuffler))
    victims[0].kill()
    victims[0].wait()
    with connection:
        connection.sendall(bytes(1000))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 503")
    assert shuffler.get(run=run).json()["refused"] == "open"
    assert shuffler.rows("select count(*) from participants where run = ?", run) == [(0,)]
    assert shuffler.refused("requests", "worker") >= 1
    answer = shuffler.post(honest(small, run=run), run=run)
    assert is_of(Release.decode(answer.content), range(8))
    assert until(lambda: len(workers_of(shuffler)) == 2)


def taken(shuffler, run, body):
    """The answer to a batch, unless a worker was lost."""
    answer = shuffler.http.post(path(run=run), content=body)
    if answer.status_code == 503:
        assert answer.json()["refused"] == "worker"
        return None
    assert answer.status_code == 200
    return answer


@pytest.mark.exhaustive
def test_workers_killed_at_any_moment_lose_nothing_and_release_nothing_twice(shuffler, small):
    """Twenty rounds, a kill in each, from before the batch is there to while its parts are joined."""
    seen, delays = set(), np.linspace(0, 0.06, 20)
    for delay in delays:
        run = shuffler.next_run()
        body = b"".join(framed(honest(small, run=run) + [b""] * 5000))
        shuffler.announce(run=run)
        # One that died after its part was done is replaced when the next batch comes.
        (victim, *_) = until(lambda: workers_of(shuffler))
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(shuffler.http.post, path(run=run), content=body)
            time.sleep(delay)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
            first = asking.result()
        assert first.status_code == 200 or (first.status_code, first.json()["refused"]) == (503, "worker")
        seen.add(first.status_code)
        # Another may have died unseen after the round before: the analyzer asks again as long as a worker was lost.
        again = until(lambda body=body, run=run: taken(shuffler, run, body))
        assert first.status_code != 200 or first.content == again.content
        release = Release.decode(again.content)
        assert is_of(release, range(8))
        assert release.receipt.refused == {"malformed": 5000}
        assert shuffler.rows("select count(*) from rounds where run = ?", run) == [(1,)]
        assert shuffler.rows("select count(*) from participants where run = ?", run) == [(8,)]
    assert 503 in seen


def test_workers_end_with_a_service_that_is_killed(shuffler, small):
    run = shuffler.next_run()
    connection = shuffler.begin_upload(run, b"".join(framed(honest(small, run=run))))
    workers = until(lambda: workers_of(shuffler))
    shuffler.kill()
    connection.close()
    assert psutil.wait_procs(workers, timeout=300)[1] == []
    shuffler.start()
    assert shuffler.get(run=run).json()["refused"] == "open"
    assert is_of(Release.decode(shuffler.post(honest(small, run=run), run=run).content), range(8))
