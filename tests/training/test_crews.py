"""Whoever does the work, the model is the same bits: threads, processes, Dask, Ray, anybody's executor; and whoever
dies meanwhile. Real processes and real clusters of two workers; of workers in this process see test_hands.py.
"""

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from travellers import Travellers, marks
from typer.testing import CliRunner

import apes
from apes.cli.main import app
from apes.training.crews.crew import in_tree
from apes.training.crews.files import Files
from apes.training.crews.hands import Hands
from apes.training.crews.ray_cluster import RayCluster
from apes.training.crews.spread import Spread

pytestmark = pytest.mark.process
USERS = 300
HERE = str(Path(__file__).parent)


def people_of(users=USERS, **options):
    rng = np.random.default_rng(1)
    ids = np.concatenate([np.arange(users), rng.integers(0, users, users)])
    labels = rng.integers(0, 3, ids.size)
    rows = rng.normal(0, 1, (ids.size, 6)) + labels[:, None]
    people = apes.People.from_arrays(rows, labels, users=ids, budgets="uniform2")
    return apes.People(people._features, people._labels, people._offsets, people._budgets, **options)


PEOPLE = people_of()
MODEL = apes.LogisticRegression.of(PEOPLE)
PLAN = apes.Plan(clip=0.1, rounds=3, seed=2)


def torch_model():
    torch = pytest.importorskip("torch", reason="torch is not installed: make test EXTRAS=torch")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return apes.TorchModel(layers, torch.nn.functional.cross_entropy)


CASES = {
    "apes": (lambda: MODEL, PLAN),
    "s-apes-first": (lambda: MODEL, apes.Plan(framework="s-apes-first", rounds=2, seed=1)),
    "one-bit with norm": (lambda: MODEL, apes.Plan(norm=0.5, clip=0.1, rounds=2, seed=1)),
    "continuous": (lambda: MODEL, apes.Plan(levels="continuous", clip=0.1, rounds=2, seed=1)),
    "sums": (lambda: MODEL, apes.Plan(framework="pldp", clip=0.1, rounds=2, seed=1)),
    "torch": (torch_model, apes.Plan(clip=0.1, rounds=2, seed=1)),
}


@pytest.fixture(scope="module")
def expected():
    """What one thread comes to, by case."""
    known = {}

    def digest(case):
        if case not in known:
            make, plan = CASES[case]
            known[case] = apes.train(make(), PEOPLE, plan, workers=apes.Workers(threads=1)).model_sha256
        return known[case]

    return digest


@pytest.fixture(scope="module")
def dask_address():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: make test EXTRAS=cluster")
    import dask

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    # A worker that is kept waiting by other work on this machine would be relieved of its own, with the data for it.
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        with distributed.LocalCluster(**options) as cluster:
            yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine takes longer to answer than a cluster may."""
    for name in ("dask_connection.ANSWER", "dask_cluster.ANSWER", "clusters._ANSWER"):
        monkeypatch.setattr(f"apes.training.crews.{name}", 60.0)


@pytest.fixture(scope="module")
def local_ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test EXTRAS=ray")
    with pytest.MonkeyPatch.context() as patch:
        # Its own switch for a warning about graphics cards, which there are none of.
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Its workers have to find the people of these tests.
        patch.setenv("PYTHONPATH", os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), HERE]))
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        # Its own: not one that somebody left behind on this machine.
        ray.init(address="local", num_cpus=4, include_dashboard=False, **quiet)
        yield "ray://local"
        ray.shutdown()


class _TwoOfRay:
    def __init__(self, address):
        self._address = address

    def open(self):
        return Spread(Hands(RayCluster(self._address), 2), 64, 2)


WAYS = ["processes", "dask", "ray"]


@pytest.fixture(scope="module")
def crew_of_processes():
    with apes.Workers(processes=2).open() as crew:
        yield crew


@pytest.fixture(scope="module")
def crew_of_dask(dask_address):
    with apes.Workers(cluster=dask_address).open() as crew:
        yield crew


@pytest.fixture(scope="module")
def crew_of_ray(local_ray):
    # Two of its processors; the others are for others.
    with _TwoOfRay(local_ray).open() as crew:
        yield crew


@pytest.fixture(scope="module")
def crew_of(request):
    """A crew by name, opened when it is first asked for, and closed before its cluster."""
    return lambda way: request.getfixturevalue(f"crew_of_{way}")


def everywhere():
    """Every way with every case; on clusters, which do the same as processes with what they are sent, few of them."""
    for way in WAYS:
        for case in CASES:
            is_quick = way == "processes" or case in ("apes", "torch")
            yield pytest.param(way, case, marks=[] if is_quick else [pytest.mark.exhaustive])


@pytest.mark.parametrize(("way", "case"), [*everywhere()])
def test_the_same_model_whoever_does_the_work(way, case, crew_of, expected):
    make, plan = CASES[case]
    assert apes.train(make(), PEOPLE, plan, workers=crew_of(way)).model_sha256 == expected(case)


@pytest.mark.parametrize("way", WAYS)
def test_data_are_sent_once(way, crew_of, expected, tmp_path):
    people = Travellers.of(PEOPLE, tmp_path)
    assert apes.train(MODEL, people, PLAN, workers=crew_of(way)).model_sha256 == expected("apes")
    packed = {path.name: marks(tmp_path, path.name) for path in tmp_path.glob("packed *")}
    assert len(packed) >= 2
    assert "packed all" not in packed
    for name, processes in packed.items():
        assert processes.count(os.getpid()) == 1, name
    # Each part is with one worker, and stays there.
    got = [marks(tmp_path, path.name) for path in tmp_path.glob("unpacked *")]
    assert [len(processes) for processes in got] == [1] * len(packed)
    assert len({process for (process,) in got}) == 2
    assert os.getpid() not in {process for (process,) in got}


@pytest.mark.parametrize("way", WAYS)
def test_people_without_parts_are_sent_whole_once(way, crew_of, expected, tmp_path):
    people = Travellers.of(PEOPLE, tmp_path, has_parts=False)
    assert apes.train(MODEL, people, PLAN, workers=crew_of(way)).model_sha256 == expected("apes")
    assert [path.name for path in tmp_path.glob("packed *")] == ["packed all"]
    assert marks(tmp_path, "packed all") == [os.getpid()]
    got = marks(tmp_path, "unpacked all")
    assert len(set(got)) == len(got) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_is_killed_in_a_round_changes_no_bit(way, crew_of, expected, tmp_path):
    crew, before = crew_of(way), crew_of(way).facts.lost

    def doom(progress):
        if progress.rounds == 1:
            (tmp_path / "die").touch()

    people = Travellers.of(PEOPLE, tmp_path)
    done = apes.train(MODEL, people, PLAN, workers=crew, after_round=doom)
    assert len(marks(tmp_path, "died")) == 1
    assert done.model_sha256 == expected("apes")
    assert crew.facts.lost == before + 1
    # And it goes on with as many as before, once a new one is there.
    assert apes.train(MODEL, people, PLAN, workers=crew).model_sha256 == expected("apes")
    # Whoever was sent the data was sent them by name once more at most, and not by us anew.
    for path in tmp_path.glob("packed *-*"):
        assert marks(tmp_path, path.name).count(os.getpid()) <= 2


@pytest.mark.parametrize("way", WAYS)
def test_a_crew_goes_on_after_a_round_that_failed(way, crew_of, expected, tmp_path):
    """Workers may have been ended in the middle of it, and what they kept with them: it is sent anew."""
    crew, people = crew_of(way), Travellers.of(PEOPLE, tmp_path)
    before = crew.facts.lost
    assert apes.train(MODEL, people, PLAN, workers=crew).model_sha256 == expected("apes")
    (tmp_path / "fail").touch()
    with pytest.raises(ZeroDivisionError, match="a bad day"):
        apes.train(MODEL, people, PLAN, workers=crew)
    (tmp_path / "fail").unlink()
    assert apes.train(MODEL, people, PLAN, workers=crew).model_sha256 == expected("apes")
    # Nobody died of it.
    assert crew.facts.lost == before


def test_workers_who_die_over_and_over_are_an_error(tmp_path):
    (tmp_path / "all die").touch()
    began = set(multiprocessing.active_children())
    with pytest.raises(apes.WorkersError, match=r"died 4 times over the same users \(4 in all\)"):
        apes.train(MODEL, Travellers.of(PEOPLE, tmp_path), PLAN, workers=apes.Workers(processes=1))
    # Dask has its own, which come and go.
    left = set(multiprocessing.active_children()) - began
    assert not [process for process in left if "Dask" not in process.name]


@pytest.mark.parametrize("way", WAYS[:2])
def test_those_who_leave_are_left_out_elsewhere_too(way, crew_of):
    targets = np.linspace(0.2, 2, USERS)
    people = people_of(targets=targets)
    plan = apes.Plan(clip=0.1, levels=2, rounds=4, seed=1)
    here = apes.train(MODEL, people, plan, workers=apes.Workers(threads=1, users_at_once=7))
    assert len(set(here.rounds_by_user)) > 2
    elsewhere = apes.train(MODEL, people, plan, workers=crew_of(way))
    assert elsewhere.model_sha256 == here.model_sha256


@pytest.mark.parametrize("way", WAYS[:2])
def test_features_are_computed_where_the_rows_are(way, crew_of, small_digits):
    simulation = apes.Simulation(users=200, features="oriented-gradients:2")
    how = {"features": simulation.feature_map()}
    model, people, plan = (
        simulation.model(small_digits),
        simulation.people(small_digits),
        apes.Plan(clip=0.1, rounds=2, seed=1),
    )
    here = apes.train(model, people, plan, **how)
    assert apes.train(model, people, plan, workers=crew_of(way), **how).model_sha256 == here.model_sha256


def test_going_on_with_other_workers(crew_of, expected):
    reached = []
    apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(threads=2), after_round=reached.append)
    for progress in reached[:2]:
        again = apes.train(MODEL, PEOPLE, PLAN, workers=crew_of("processes"), resume=progress)
        assert again.model_sha256 == expected("apes")


class TestAnybodysExecutor:
    def test_data_are_unpacked_by_a_process_once(self, expected, tmp_path):
        people = Travellers.of(PEOPLE, tmp_path)
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            done = apes.train(MODEL, people, apes.Plan(clip=0.1, rounds=6, seed=1), workers=apes.Workers(executor=pool))
        assert done.model_sha256 == apes.train(MODEL, PEOPLE, apes.Plan(clip=0.1, rounds=6, seed=1)).model_sha256
        for path in tmp_path.glob("unpacked *"):
            got = marks(tmp_path, path.name)
            assert 1 <= len(got) == len(set(got)) <= 2

    def test_threads_share_what_is_there(self, expected, tmp_path):
        people = Travellers.of(PEOPLE, tmp_path)
        with ThreadPoolExecutor(2) as pool:
            done = apes.train(MODEL, people, PLAN, workers=apes.Workers(executor=pool))
        assert done.model_sha256 == expected("apes")
        assert list(tmp_path.iterdir()) == []

    def test_one_whose_worker_dies_is_an_error(self, tmp_path):
        (tmp_path / "die").touch()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            with pytest.raises(apes.WorkersError, match="a worker of it died"):
                apes.train(MODEL, Travellers.of(PEOPLE, tmp_path), PLAN, workers=apes.Workers(executor=pool))

    def test_dask_as_an_executor_and_as_a_client(self, dask_address, expected):
        import distributed

        with distributed.Client(dask_address, set_as_default=False) as client:
            for executor in (client.get_executor(), client):
                done = apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(executor=executor))
                assert done.model_sha256 == expected("apes")
            assert client.status == "running"

    def test_another_version_is_refused(self, monkeypatch):
        monkeypatch.setattr("apes.training.crews.same_code.__version__", "9.9")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            with pytest.raises(apes.WorkersError, match=r"must have apes 9\.9.*got one with 0"):
                apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(executor=pool))


def test_what_cannot_travel_is_named():
    class Hidden(apes.LogisticRegression):
        pass

    with pytest.raises(apes.ParameterError, match=r"pickle takes them to other processes, Client is not: .*Hidden"):
        apes.train(Hidden(6, 3), PEOPLE, PLAN, workers=apes.Workers(processes=1))


def test_what_goes_wrong_in_a_worker_is_raised_here():
    model = apes.LogisticRegression(6, 3, apes.FedProx(epochs=3, learning_rate=1e30))
    plan = apes.Plan(clip=0.1, rounds=30, learning_rate=1e30, seed=1)
    with pytest.raises(apes.ParameterError, match="finite"):
        apes.train(model, PEOPLE, plan, workers=apes.Workers(processes=1))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"processes": 0}, r"processes must be in \[1, inf\), got 0"),
        ({"processes": 2, "threads": 2}, r"threads must be left out: processes do the work; got 2"),
        ({"processes": 2, "cluster": "tcp://a:1"}, r"cluster must be left out: processes do the work"),
        ({"cluster": "tcp://a:1", "threads": 2}, r"threads must be left out: the cluster does the work"),
        ({"cluster": "http://a:1"}, r"cluster must be tcp://HOST:PORT \(Dask\), ray://HOST:PORT or ray://local"),
        ({"cluster": "tcp://a"}, r"cluster must be .*; got 'tcp://a'"),
        ({"cluster": "tcp://a:x"}, r"cluster must be .*; got 'tcp://a:x'"),
        ({"cluster": 5}, r"cluster must be .*; got 5"),
    ],
)
def test_bad_workers(options, said):
    with pytest.raises(apes.ParameterError, match=said):
        apes.Workers(**options)


TRAIN = ["train", "--preset", "paper", "--users", "200", "--rounds", "2", "--seed", "3"]


def refused(tmp_path, *arguments):
    """What a command that is refused says, in one line, having left nothing behind."""
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(app, [*TRAIN, *arguments, "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert sorted(tmp_path.iterdir()) == before
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("apes: ")
    assert "Traceback" not in done.stderr
    return line


class TestCommandLine:
    @pytest.mark.parametrize(("address", "what"), [("tcp://127.0.0.1:1", "Dask"), ("ray://127.0.0.1:1", "Ray")])
    def test_nobody_answers(self, address, what, tmp_path):
        pytest.importorskip({"Dask": "distributed", "Ray": "ray"}[what], reason=f"{what} is not installed")
        line = refused(tmp_path, "--cluster", address)
        assert f"cluster must be the address of a {what}" in line
        assert f" s, got {address!r}" in line

    @pytest.mark.parametrize(("address", "module"), [("tcp://a:1", "distributed"), ("ray://local", "ray")])
    def test_the_extra_is_named(self, address, module, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, module, None)
        extra = {"distributed": "cluster", "ray": "ray"}[module]
        said = f"apes: cluster needs {module}, which is not installed: pip install 'apes-fl[{extra}]'"
        assert refused(tmp_path, "--cluster", address) == said

    @pytest.mark.parametrize("way", ["dask_address", "local_ray"])
    def test_workers_of_another_version(self, way, request, tmp_path, monkeypatch):
        address = request.getfixturevalue(way)
        monkeypatch.setattr("apes.training.crews.same_code.__version__", "9.9")
        line = refused(tmp_path, "--cluster", address)
        assert "every worker must have apes 9.9 (code " in line
        assert f"as this process has; got one with {apes.__version__} (code " in line

    def test_somebody_else_answers(self, tmp_path, monkeypatch):
        import socket

        # However long it waits, nothing comes.
        monkeypatch.setattr("apes.training.crews.dask_connection.ANSWER", 0.2)

        pytest.importorskip("distributed", reason="Dask is not installed")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            line = refused(tmp_path, "--cluster", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        assert "cluster must be the address of a Dask scheduler" in line

    def test_the_same_run_on_ray(self, local_ray):
        told = [CliRunner().invoke(app, [*TRAIN, *how, "--json"]) for how in (["--cluster", local_ray], [])]
        assert told[0].exit_code == 0, told[0].stderr
        assert "Ray worker" in told[0].stderr
        assert len({json.loads(done.stdout)["model_sha256"] for done in told}) == 1

    def test_the_same_run_on_processes_and_dask(self, dask_address, tmp_path):
        told = []
        for name, how in {"threads": ["--threads", "2"], "processes": ["--workers", "2"]}.items():
            out = ["--out", str(tmp_path / name), "--json"]
            done = CliRunner().invoke(app, [*TRAIN, *how, *out])
            assert done.exit_code == 0, done.stderr
            told.append(json.loads(done.stdout))
        done = CliRunner().invoke(app, [*TRAIN, "--cluster", dask_address, "--json"])
        told.append(json.loads(done.stdout))
        assert [each["workers"] for each in told[:2]] == [
            {"way": "threads", "count": 2, "lost": 0},
            {"way": "processes", "count": 2, "lost": 0},
        ]
        assert told[2]["workers"]["way"] == "dask"
        assert told[2]["workers"]["count"] == 2
        assert len({each["model_sha256"] for each in told}) == 1


def test_processes_end_with_who_started_them(tmp_path):
    command = [sys.executable, "-m", "apes", *TRAIN[:-4], "--rounds", "2000", "--workers", "2", "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 600
    while not list(tmp_path.glob("run/private/checkpoint*")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(children) >= 2
    assert psutil.wait_procs(children, timeout=120)[1] == []


def test_a_script_without_a_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(
        "import apes\n"
        "people = apes.People.from_arrays([[0.0], [1.0]] * 50, [0, 1] * 50, budgets='uniform2')\n"
        "model = apes.LogisticRegression.of(people)\n"
        "apes.train(model, people, apes.Plan(clip=0.1, rounds=1, seed=1), workers=apes.Workers(processes=1))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'must be under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


@pytest.mark.unit
def test_values_in_files_are_the_same_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for has_no_names in (True, False):
        files = Files()
        files._has_no_names = has_no_names
        value = {"rows": np.arange(1000.0), "none": np.zeros(0), "word": "x", "few": np.arange(3, dtype=np.uint8)}
        read = files.write("slot", value)()
        assert read["word"] == "x"
        for name in ("rows", "none", "few"):
            assert np.array_equal(read[name], value[name])
            assert read[name].flags.writeable
            assert read[name].size == 0 or read[name].ctypes.data % 64 == 0
        read["rows"][:] = 0
        assert np.array_equal(files.write("slot", value)()["rows"], value["rows"])
        files.close()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.unit
def test_a_tree_adds_neighbours():
    for count in range(1, 9):
        assert in_tree([str(number) for number in range(count)], lambda one, other: one + other) == "".join(
            map(str, range(count))
        )
