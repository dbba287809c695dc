"""The examples in docstrings give what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import apes

pytestmark = pytest.mark.service
SOURCE = Path(apes.__file__).parent
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


def module_name(path):
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", [module_name(path) for path in WITH_EXAMPLES])
def test_examples_give_what_they_show(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_most_of_what_people_call_has_an_example():
    assert len(WITH_EXAMPLES) >= 25
