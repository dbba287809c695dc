"""Shared fixtures: small data sets that train in a moment, and MNIST where it is at hand."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from levels import DEFAULT, LEVELS, begin_test, can_be_left_out, end_test, level_of, parse

from apes.data import Dataset, load
from apes.data.digits import make_digits

# On a busy machine Hypothesis takes long to make examples, whatever its strategies are: that is not an error here.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker per core for ``-n logical``. Two more for ``-n auto``: tests of level *process* mostly wait."""
    cores = os.cpu_count() or 1
    return cores if config.getoption("numprocesses") == "logical" else cores + 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--levels", default=DEFAULT, help=f"levels to run, of {','.join(LEVELS)} (default: {DEFAULT})")


def pytest_configure(config: pytest.Config) -> None:
    parse(config.getoption("--levels"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file that has no test of a level that is asked for. A file that is named is always imported."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if any(str(collection_path).endswith(argument.partition("::")[0]) for argument in config.args):
        return None
    return True if can_be_left_out(collection_path, parse(config.getoption("--levels"))) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the levels that are asked for, the costly levels first.

    A worker that began a long file last would keep all others waiting.
    """
    asked = parse(config.getoption("--levels"))
    left_out = [item for item in items if level_of(item) not in asked]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if level_of(item) in asked]
    items.sort(key=lambda item: -LEVELS.index(level_of(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the garbage collector to leave alone what was imported, so that a collection per file is quick."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Guard the fixtures of a unit test as the test itself is guarded."""
    begin_test(item)
    try:
        return (yield)
    finally:
        end_test()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Guard a unit test, but not what ends after it: that may be a server which other tests of the file shared."""
    begin_test(item)
    try:
        return (yield)
    finally:
        end_test()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a file, collect garbage: then a socket left open is reported as an error of this file.

    This comes after the fixtures of the file have ended (``trylast``).
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for all workers and the processes that they start.

    Two workers may make the same file at once: each writes it whole, with the same content.
    """
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
