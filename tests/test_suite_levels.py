"""Which tests run at which level, and that a unit test stays in its process."""

import socket
import subprocess

import pytest
from levels import NotAUnitTest, can_be_left_out, level_of, parse, sampled


def test_a_unit_test_starts_no_process():
    with pytest.raises(NotAUnitTest, match="mark it service or process"):
        subprocess.run(["true"])


def test_a_unit_test_binds_no_socket():
    with socket.socket() as one, pytest.raises(NotAUnitTest):
        one.bind(("127.0.0.1", 0))


@pytest.mark.process
def test_a_process_test_may():
    assert subprocess.run(["true"]).returncode == 0


def test_a_test_without_a_mark_is_a_unit_test(request):
    assert level_of(request.node) == "unit"


@pytest.mark.service
def test_a_mark_says_the_level(request):
    assert level_of(request.node) == "service"


@pytest.mark.service
@pytest.mark.parametrize("level", ["service", pytest.param("process", marks=pytest.mark.process)])
def test_a_cases_own_mark_goes_first(request, level):
    assert level_of(request.node) == level


def test_levels_are_named():
    assert parse("unit,exhaustive") == ("unit", "exhaustive")
    with pytest.raises(pytest.UsageError, match="--levels takes unit, service, process, exhaustive"):
        parse("quick")


def test_a_sample_has_the_first_and_the_last_case():
    cases = sampled(range(10), 3)
    assert [case for case in cases if isinstance(case, int)] == [0, 4, 9]
    assert [case.values for case in cases if not isinstance(case, int)] == [(n,) for n in (1, 2, 3, 5, 6, 7, 8)]
    assert {mark.name for case in cases if not isinstance(case, int) for mark in case.marks} == {"exhaustive"}


@pytest.mark.parametrize(
    ("text", "asked", "is_left_out"),
    [
        ("pytestmark = pytest.mark.process\n", ("unit",), True),
        ("pytestmark = pytest.mark.process\n", ("unit", "process"), False),
        ("pytestmark = [pytest.mark.skipif(True), pytest.mark.process]\n", ("unit",), True),
        ("pytestmark = pytest.mark.process\n@pytest.mark.unit\n", ("unit",), False),
        ("pytestmark = pytest.mark.service\n sampled([1], 1)\n", ("exhaustive",), False),
        ("@pytest.mark.process\ndef test(): pass\n", ("unit",), False),
        ("def test(): pass\n", ("process",), False),
    ],
)
def test_a_file_is_left_out_where_its_text_names_no_such_level(tmp_path, text, asked, is_left_out):
    (tmp_path / "test_it.py").write_text(text)
    assert can_be_left_out(tmp_path / "test_it.py", asked) is is_left_out
