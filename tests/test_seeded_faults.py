"""The catalogue of seeded faults is of the sources as they are; `python -m tests.faults` runs it."""

import re
from pathlib import Path

import pytest

from tests.faults.catalogue import all_faults, areas
from tests.faults.fault import LEVELS, ROOT, Fault, StaleFaultError

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
