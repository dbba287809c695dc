"""Shared fixtures: small data sets that train in a moment, and MNIST where it is at hand."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import apes
from apes.data import Dataset, load
from apes.data.digits import make_digits

# A machine that is busy with other tests is no fault of Hypothesis' strategies.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: the tests of the federation wait for other processes most of the time."""
    return (os.cpu_count() or 1) + 2


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the inner loops once, before several workers would each do it; their cache is on the disk."""
    if not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", None):
        rows, labels = np.random.default_rng(1).random((40, 3)), np.arange(40) % 2
        people = apes.People.from_arrays(rows, labels, budgets="uniform2")
        for framework in ("apes", "s-apes", "s-apes-first", "s-apes-threshold", "unis", "non-private"):
            for local in (None, apes.FedProx(epochs=1)):
                for choices in ({}, {"clip": 0.1}):
                    plan = apes.Plan(framework=framework, rounds=1, **choices)
                    apes.train(apes.LogisticRegression(3, 2, local), people, plan)


@pytest.hookimpl(trylast=True)
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what a file's tests left behind: what was not closed is told of them, not of whoever runs later.

    Last, after the file's own fixtures have ended.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


# Files most of whose tests train, certify at length, start processes or compare many draws.
SLOW = """accounting advice/test_advise analyzer/test_calibrator audit cli client data doors examples federation
mathematics/test_laws
mathematics/test_thresholds models/test_torch page paper run shuffler/test_shuffle terms/test_level_choice
test_readme test_site training""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files and begin with them, those that wait longest first: none is left for last."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        name = str(item.path.relative_to(here)) if item.path.is_relative_to(here) else ""
        if name.startswith(("federation", "paper")):
            return 0 if name.startswith("federation/test_faults") else 1
        return 2 if name.startswith(tuple(SLOW)) else 3

    for item in items:
        if rank(item) < 3:
            item.add_marker(pytest.mark.slow)
    items.sort(key=rank)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all workers and what they start; two that make the digits at once write the same file, whole."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APES_CACHE", str(folder))
        yield folder


def mnist_folder() -> Path | None:
    named = os.environ.get("APES_MNIST_DIR")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data" / "mnist"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    folder = mnist_folder()
    if folder is None:
        pytest.skip("MNIST is not here: set APES_MNIST_DIR to a folder with its four files")
    return load("mnist", data_dir=folder)


@pytest.fixture
def mnist_copy(tmp_path: Path) -> Path:
    """A copy of the MNIST files that a test may damage."""
    folder = mnist_folder()
    if folder is None:
        pytest.skip("MNIST is not here: set APES_MNIST_DIR to a folder with its four files")
    copy = tmp_path / "mnist"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


@pytest.fixture(scope="session")
def small_digits() -> Dataset:
    """3,000 + 1,000 digits, made as the embedded set is, only fewer."""
    train_images, train_labels, test_images, test_labels = make_digits(3_000, 1_000)
    flat = [
        images.reshape(len(images), -1).astype(np.float32) / np.float32(255) for images in (train_images, test_images)
    ]
    return Dataset("digits", flat[0], train_labels, flat[1], test_labels, "made for the tests")
