"""Addresses of clusters where somebody else is, or nobody can be; workers whose code is another: one line each."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import apes
from apes.training.crews import any_executor
from apes.training.crews.files import Files
from apes.training.crews.kept import SHELF, Kept
from apes.training.crews.same_code import check_version, own_version
from apes.training.crews.same_code import refusal as refusal_of_versions

PEOPLE = apes.People.from_arrays([[0.0], [1.0]] * 100, [0, 1] * 100, budgets="uniform2")
MODEL, PLAN = apes.LogisticRegression.of(PEOPLE), apes.Plan(clip=0.1, rounds=2, delta=1e-3, seed=1)


GONE = """
import apes, distributed
if __name__ == "__main__":
    people = apes.People.from_arrays([[0.0], [1.0]] * 100, [0, 1] * 100, budgets="uniform2")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    plan, rounds = apes.Plan(clip=0.1, rounds=2, delta=1e-3), []
    def end(progress):
        rounds.append(progress.rounds)
        cluster.close()
    try:
        workers = apes.Workers(cluster=cluster.scheduler_address)
        apes.train(apes.LogisticRegression.of(people), people, plan, workers=workers, after_round=end)
    except Exception as error:
        print(f"after round {rounds[-1]}: {type(error).__name__}: {error}")
"""


@contextmanager
def listening(said):
    """The port of somebody who takes connections and says this, and nothing else."""
    stop, taken = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve():
            while not stop.is_set():
                with suppress(OSError):
                    taken.append(server.accept()[0])
                    taken[-1].sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()
    for connection in taken:
        connection.close()


def refusal(address):
    with pytest.raises(apes.WorkersError) as caught:
        apes.Workers(cluster=address).open()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.service
class TestDask:
    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("distributed", reason="Dask is not installed: make test EXTRAS=cluster")

    @pytest.mark.parametrize("name", ["a" * 70, "a..b"])
    def test_names_that_no_machine_can_have(self, name):
        assert f"got 'tcp://{name}:1'" in refusal(f"tcp://{name}:1")

    @pytest.mark.parametrize(
        "said",
        [
            b"SSH-2.0-OpenSSH_9.6\r\n",
            bytes(64),
            # Room for a million million bytes would be made.
            (1 << 40).to_bytes(8, "little") + bytes(16),
            b"x" * (1 << 17),
        ],
    )
    def test_somebody_else_speaks(self, said):
        with listening(said) as port:
            assert "whoever is there does not speak as Dask does" in refusal(f"tcp://127.0.0.1:{port}")

    def test_nobody_says_anything(self, monkeypatch):
        # However long it waits, nothing comes.
        monkeypatch.setattr("apes.training.crews.dask_connection.ANSWER", 0.2)
        with listening(b"") as port:
            assert "nothing was said" in refusal(f"tcp://127.0.0.1:{port}")

    @pytest.mark.process
    def test_a_scheduler_that_is_gone_between_rounds(self, tmp_path):
        """In a process of its own: what Dask leaves open then is its own affair."""
        (tmp_path / "script.py").write_text(GONE)
        done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("after round 1: WorkersError: ")
        assert "nothing of this round was released" in done.stdout

    def test_certificates_are_asked_for(self):
        with listening(b"") as port:
            assert "tls needs Dask's settings distributed.comm.tls.ca-file" in refusal(f"tls://127.0.0.1:{port}")


@pytest.mark.service
def test_a_ray_that_is_elsewhere_is_not_taken_for_the_one_that_was_named(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test EXTRAS=ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with listening(b"") as port:
        line = refusal(f"ray://127.0.0.1:{port}")
    assert "this process holds a connection to Ray already" in line


@pytest.mark.process
def test_the_same_version_with_other_code(tmp_path):
    """A copy of the package with one more file says another version, and does no work for this one."""
    shutil.copytree(Path(apes.__file__).parent, tmp_path / "apes", ignore=shutil.ignore_patterns("__pycache__"))
    asked = "from apes.training.crews.same_code import own_version; print(own_version())"
    there = os.environ | {"PYTHONPATH": str(tmp_path)}

    def told():
        done = subprocess.run([sys.executable, "-c", asked], env=there, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert told() == own_version()
    check_version(told())
    with (tmp_path / "apes" / "mathematics" / "randomness.py").open("a") as file:
        file.write("# another\n")
    other = told()
    assert other.split()[0] == own_version().split()[0] == apes.__version__
    with pytest.raises(apes.WorkersError, match=r"every worker must have apes .*as this process has; got one with"):
        check_version(other)


@pytest.mark.process
def test_the_same_code_on_another_processor():
    """Loops compiled for another vector unit sum in another order: refused, with what to do."""
    asked = "from apes.training.crews.same_code import own_version; print(own_version())"
    there = os.environ | {"NUMBA_CPU_NAME": "generic"}
    done = subprocess.run([sys.executable, "-c", asked], env=there, capture_output=True, text=True, check=True)
    other = done.stdout.strip()
    with pytest.raises(apes.WorkersError, match=r"must have apes .* generic \w+\), as this process has; got one with"):
        check_version(other)
    said = refusal_of_versions(own_version(), other)
    assert said.endswith("set NUMBA_CPU_NAME=generic on all of them, here too")
    assert "NUMBA_CPU_NAME" not in refusal_of_versions(own_version(), other.replace("(code ", "(code 0"))


def test_a_value_that_goes_while_another_is_fetched_is_asked_for_again():
    """A process keeps few runs' values: others may come between two values of a call."""

    def crowding_out():
        for run in ("b", "c"):
            SHELF.value(Kept(run, "order", 1, lambda: 0))
        return 0

    SHELF.value(Kept("a", "share 0", 1, lambda: 0))
    call = Kept("a", "order", 1, crowding_out), Kept("a", "share 0", 1, any_executor._nothing)
    try:
        assert any_executor._attempt(call) == any_executor._Missing(frozenset({"share 0"}))
    finally:
        for run in "abc":
            SHELF.forget(run)


class Inline:
    """Does calls at once; what comes back is as the test wants it."""

    def __init__(self, result):
        self.result_of = result

    def submit(self, function, *given):
        from concurrent.futures import Future

        future = Future()
        self.result_of(future, function, given)
        return future


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda future, function, given: future.cancel(), "executor must outlive the run: it was shut down, or let go"),
        (lambda future, function, given: future.set_result(None), "executor must bring back what its calls return"),
    ],
)
def test_executors_that_do_not_do_their_work(result, said):
    with pytest.raises(apes.WorkersError, match=said):
        apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(executor=Inline(result)))


def test_an_executor_that_was_shut_down():
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(apes.WorkersError, match="executor must outlive the run: it was shut down"):
        apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(executor=pool))


def test_no_room_for_what_processes_need():
    """A limit of this process stands for a disk that is full."""
    files = Files()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(apes.WorkersError, match=r"cannot be written to .*; TMPDIR names a folder with more room"):
            files.write("slot", np.zeros(1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert np.array_equal(files.write("slot", np.zeros(1 << 16))(), np.zeros(1 << 16))
    files.close()
