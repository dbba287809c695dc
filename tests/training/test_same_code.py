"""Workers whose code is another, or is compiled for another processor, do no work for this one."""

import pytest

import apes
from apes.training.crews import same_code
from apes.training.crews.same_code import check_version, own_version, refusal


def told(monkeypatch, name, value):
    """What a worker would say of itself where this is another."""
    with monkeypatch.context() as patch:
        patch.setattr(same_code, name, lambda: value)
        return own_version()


@pytest.mark.parametrize(("name", "value"), [("_own_code", "0" * 12), ("_run_by", "numpy 1.0, numba 0.1, generic 1")])
def test_another_code_or_processor_is_refused(name, value, monkeypatch):
    check_version(own_version())
    other = told(monkeypatch, name, value)
    assert other.split()[0] == own_version().split()[0] == apes.__version__
    with pytest.raises(apes.WorkersError, match=r"every worker must have apes .*as this process has; got one with"):
        check_version(other)
    with pytest.raises(apes.WorkersError, match="every worker must have apes"):
        check_version("")


def test_what_helps_on_machines_of_different_kinds_is_said(monkeypatch):
    own = own_version()
    other = told(monkeypatch, "_run_by", own.split(", ", 1)[1].rpartition(", ")[0] + ", generic 123456")
    assert refusal(own, other).endswith("set NUMBA_CPU_NAME=generic on all of them, here too")
    assert "NUMBA_CPU_NAME" not in refusal(own, other.replace("(code ", "(code 0"))
