"""Wide models: blocks shrink, memory stays bounded, and what does not fit is said or refused beforehand."""

import logging
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

from apes import LogisticRegression, ParameterError, People, Plan, PrivateMean, SimulationSource, Terms, Workers, train
from apes.client.clip import MOST_COORDINATES, clip_norm, norm_limit
from apes.training import free_memory, memory
from apes.training.crews import work
from apes.training.round import run_round

PEOPLE = People.from_arrays(
    np.random.default_rng(1).random((150, 40)), np.arange(150) % 3, budgets="uniform2", classes=3
)
MODEL = LogisticRegression.of(PEOPLE)
GB = 1 << 30


def test_users_at_once_shrink_with_the_model():
    workers = Workers()
    assert [workers.block_users(d) for d in (1, 7850, 65_536, 10**6, 10**8)] == [1024, 200, 64, 4, 1]
    assert Workers(users_at_once=2).block_users(10**6) == 2


@pytest.mark.parametrize("terms", [Terms(clip=0.1, norm=0.5), Terms(clip=0.1, levels=2), Terms(clip=0.1, levels=16)])
@pytest.mark.parametrize("threads", [1, 3])
def test_how_many_at_once_does_not_show(terms, threads, monkeypatch):
    def counts():
        weights, source = MODEL.start(), SimulationSource(5, 1)
        return run_round(terms, MODEL, weights, PEOPLE, source, workers=Workers(threads=threads)).counts

    expected = counts()
    assert (expected.sum(axis=1) == 150).all()
    for most in (1, MODEL.dimensions * 7):
        monkeypatch.setattr(work, "_NUMBERS_AT_ONCE", most)
        assert np.array_equal(counts(), expected)


WIDE = """
import numpy as np, apes
from pathlib import Path
from apes.training.round import run_round
people = apes.People.from_arrays(np.ones((24, 999), np.float32), np.arange(24) % 2, budgets="uniform2", classes=1000)
model, terms = apes.LogisticRegression.of(people), apes.Terms(clip=0.1, norm=1.0)
def go(weights, users):
    source, workers = apes.SimulationSource(1, 1), apes.Workers(threads=2)
    return run_round(terms, users[1], weights, users[0], source, workers=workers)
def peak():  # in MB; getrusage would count what the parent had
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
few = apes.People.from_arrays(np.ones((4, 9), np.float32), [0, 1, 0, 1], budgets="uniform2", classes=2)
go(np.zeros(20), (few, apes.LogisticRegression.of(few)))  # compiles
before = peak()
batch = go(model.start(), (people, model))
assert batch.counts.shape == (1_000_000, 2) and (batch.counts.sum(axis=1) == 24).all()
print(peak() - before)
"""


@pytest.mark.process
def test_a_million_coordinates_take_little_memory():
    """Blocks of 24 users at once would take 240 MB on two threads, beside all else."""
    done = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200


@pytest.mark.parametrize("size", [10**6, MOST_COORDINATES])
def test_norms_of_wide_updates_hold(size):
    """Every coordinate at its bound: squares add up to 2^62 at most, and scaling keeps within the limit."""
    steps, limit = np.empty(size, dtype=np.int32), norm_limit(1.0, 0.1)
    clip_norm(np.full(size, 5.0, dtype=np.float32), 0.1, limit, steps)
    total = int((steps.astype(np.int64) ** 2).sum())
    assert 0.98 * limit < total <= limit


def test_more_coordinates_than_a_norm_is_kept_for(monkeypatch):
    monkeypatch.setattr(memory, "MOST_COORDINATES", 100)
    with pytest.raises(ParameterError, match=r"dimensions must be in \[1, 100\] with a norm, got 123"):
        train(MODEL, PEOPLE, Plan(norm=1.0, clip=0.1, rounds=1, delta=1e-3, seed=1))


def test_what_does_not_fit_is_refused_before_it_is_charged(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 100_000)
    plan = Plan(clip=0.1, levels=256, rounds=1, delta=1e-3, seed=1)
    seen = []
    words = (
        r"levels must be fewer: counts of 256 levels on 123 coordinates take about .* GB of memory, .* GB are free; "
    )
    words += r"2 levels with a norm take .* GB; got 256"
    with pytest.raises(ParameterError, match=words):
        train(MODEL, PEOPLE, plan, after_round=seen.append)
    assert seen == []
    mean = PrivateMean(Terms(clip=0.1), dimensions=40)
    with pytest.raises(ParameterError, match="levels must be fewer"):
        mean(np.zeros((9, 40)), np.ones(9))
    with pytest.raises(ParameterError, match="after a call"):
        mean.guarantee  # noqa: B018 - raises: nothing was charged
    # One bit per coordinate fits.
    assert len(train(MODEL, PEOPLE, Plan(clip=0.1, norm=1.0, rounds=1, delta=1e-3, seed=1)).metrics) == 1


def test_continuous_reports_are_all_held():
    terms = Terms(framework="apes", clip=0.1, levels="continuous")
    with pytest.raises(
        ParameterError, match=r"reports of 1,000,000 users on 10,000,000 coordinates .* got 'continuous'"
    ):
        memory.check_memory(10**7, terms, 10**6)
    # Added up, they are not.
    assert memory.check_memory(10**7, terms, 10**6, None, True) == 10**7


def test_much_memory_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 100 * GB)
    memory._say.cache_clear()
    with caplog.at_level(logging.WARNING, logger="apes"):
        for _ in range(2):
            assert memory.check_memory(10**6, Terms(clip=0.1), 1000, Workers(threads=2)) == 10**6
        assert memory.check_memory(10**6, Terms(clip=0.1, norm=1.0), 1000, Workers(threads=2)) == 10**6
    (said,) = caplog.messages
    assert said == (
        "apes: counts of 256 levels on 1,000,000 coordinates take about 4.77 GB of memory; "
        "2 levels with a norm take 0.041 GB"
    )


def test_every_process_has_counts_of_its_own(monkeypatch):
    """Eight of them take four times what two take; of few users no more have work than there are shares."""
    threads, few, many = Workers(threads=2), Workers(processes=2), Workers(processes=8)
    take = [memory._needed(10**6, 256, 1000, memory._who(workers)) for workers in (threads, few, many)]
    assert take[0] < take[1] == take[2] / 4
    assert memory._needed(10**6, 256, 60, memory._who(many)) < take[0]
    monkeypatch.setattr(memory, "free_bytes", lambda: take[1])
    assert memory.check_memory(10**6, Terms(clip=0.1), 1000, few) == 10**6
    with pytest.raises(ParameterError, match=r"processes must be fewer: counts of 256 levels .* take about 22\.9 GB"):
        memory.check_memory(10**6, Terms(clip=0.1), 1000, many)


def test_more_processes_than_memory_are_not_started(monkeypatch):
    began = set(multiprocessing.active_children())
    monkeypatch.setattr("apes.training.crews.processes.free_bytes", lambda: 3 * GB)
    with pytest.raises(ParameterError, match=r"processes must be fewer: .* 62\.5 GB to start, 3 GB are free; got 1000"):
        Workers(processes=1000).open()
    assert set(multiprocessing.active_children()) <= began


def test_free_memory_is_that_of_the_container(tmp_path, monkeypatch):
    names = {"_MEMINFO": "meminfo", "_LIMIT": "max", "_IN_USE": "current"}
    for name, file in names.items():
        monkeypatch.setattr(free_memory, name, tmp_path / file)
    assert free_memory.free_bytes() > 0  # neither is known: what the machine has
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   5 kB\n")
    assert free_memory.free_bytes() == 5120
    (tmp_path / "max").write_text("4000\n")
    (tmp_path / "current").write_text("1000\n")
    assert free_memory.free_bytes() == 3000
    (tmp_path / "max").write_text("max\n")
    assert free_memory.free_bytes() == 5120
