"""The catalogue of seeded faults is of the sources as they are; `python -m tests.faults` runs it."""

import os
import re
from pathlib import Path

import pytest

from tests.faults.catalogue import all_faults, areas
from tests.faults.fault import LEVELS, ROOT, Fault, StaleFaultError
from tests.faults.runner import faulty

FAULTS = all_faults()


def test_names_are_their_own():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("area", areas())
def test_every_fault_changes_a_text_that_is_there_once(area):
    for fault in all_faults(area):
        text = (ROOT / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.before) == 1, fault.name
        assert fault.after != fault.before, fault.name


@pytest.mark.parametrize("area", areas())
def test_every_fault_names_tests_that_there_are(area):
    for fault in all_faults(area):
        assert fault.level in LEVELS, fault.name
        assert fault.caught_by, fault.name
        for node in fault.caught_by:
            file, *names = node.split("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            for name in names:
                assert re.search(rf"^ *(def|class) {name.partition('[')[0]}\b", text, re.MULTILINE), node


def test_a_fault_whose_text_is_gone_is_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for before in ("x = 1", "y = 1"):
        fault = Fault("twice", "nothing", "a.py", before, "x = 2", ("tests/test_checks.py",))
        with pytest.raises(StaleFaultError, match="not once"):
            fault.apply(tmp_path)
    assert Path(tmp_path / "a.py").read_text() == "x = 1\nx = 1\n"


def small_checkout(folder):
    """A checkout of three modules with their compiled files: loops, one that calls them, and one that does not."""
    cache = folder / "src/apes/__pycache__"
    cache.mkdir(parents=True)
    texts = {"loops": "@compiled\nx = 1\n", "caller": "from apes.loops import x\n@compiled\n", "other": "@compiled\n"}
    for name, text in texts.items():
        (cache.parent / f"{name}.py").write_text(text)
        (cache / f"{name}.x-1.nbi").write_bytes(name.encode())
        (cache / f"{name}.cpython.pyc").write_bytes(name.encode())
    return folder


def contents(folder):
    """Content and time of change of every file."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_fault_takes_the_compiled_loops_of_its_callers_along_and_all_is_put_back(tmp_path):
    copy = small_checkout(tmp_path)
    before = contents(copy)
    fault = Fault("two", "nothing", "src/apes/loops.py", "x = 1", "x = 2", ("tests/test_checks.py",))
    with faulty(copy, fault):
        assert (copy / fault.file).read_text() == "@compiled\nx = 2\n"
        left = {path.name for path in (copy / "src/apes/__pycache__").iterdir()}
        assert left == {"other.x-1.nbi", "other.cpython.pyc"}
        (copy / "src/apes/__pycache__/caller.y-2.nbi").write_bytes(b"compiled with the fault")
    assert contents(copy) == before


def test_a_fault_is_taken_back_where_the_tests_end_with_an_error(tmp_path):
    copy = small_checkout(tmp_path)
    os.utime(copy / "src/apes/other.py", ns=(10**18, 10**18 + 1))
    before = contents(copy)
    fault = Fault("two", "nothing", "src/apes/other.py", "@compiled", "@inlined", ("tests/test_checks.py",))
    with pytest.raises(KeyboardInterrupt), faulty(copy, fault):
        raise KeyboardInterrupt
    assert contents(copy) == before
