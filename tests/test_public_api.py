"""The public names: sorted, complete, importable, documented."""

import ast
import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import apes
from apes import errors


def order(name):
    """Constants, then classes, then the rest, each by the alphabet (ruff's RUF022)."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def imported_names():
    """What __init__.py imports for those who read types: every name with its module."""
    tree = ast.parse(Path(apes.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module for node in imports for alias in node.names}


def test_names_are_sorted_and_listed_once():
    assert apes.__all__ == sorted(set(apes.__all__), key=order)


def test_what_types_say_is_what_is_loaded():
    assert imported_names() == apes._HOME
    assert set(apes._HOME) == {*apes.__all__, *apes._WITH_TORCH}


def test_nothing_public_is_left_out():
    found = {name for name in dir(apes) if name[0] != "_" and not isinstance(getattr(apes, name), ModuleType)}
    assert found - set(apes._WITH_TORCH) == {name for name in apes.__all__ if name[0] != "_"}


def test_a_name_is_the_same_whoever_asks_for_it():
    for name in apes.__all__:
        assert getattr(apes, name) is getattr(apes, name)
        assert getattr(apes, name) is getattr(importlib.import_module(apes._HOME[name]), name)


@pytest.mark.process
def test_rooms_can_be_entered_without_an_import_of_their_own():
    code = "import apes; assert 'digits' in apes.data.NAMES; assert apes.errors.DataError is apes.DataError"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.process
def test_an_object_is_unpickled_where_nothing_was_asked_for():
    sent = pickle.dumps(apes.Plan(rounds=3)).hex()
    code = f"import pickle, apes; assert pickle.loads(bytes.fromhex({sent!r})) == apes.Plan(rounds=3)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_star_import_gives_every_name():
    namespace = {}
    exec("from apes import *", namespace)  # the statement is what is tested
    assert {name: namespace[name] for name in apes.__all__} == {name: getattr(apes, name) for name in apes.__all__}


@pytest.mark.service
def test_what_needs_torch_is_no_part_of_a_star_import():
    pytest.importorskip("torch", reason="torch is not installed: make test EXTRAS=torch")
    for name in ("Frozen", "TorchModel"):
        assert name not in apes.__all__
        assert getattr(apes, name).__doc__


def test_every_error_is_public():
    of_the_package = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert of_the_package <= set(apes.__all__)
    for name in of_the_package:
        assert issubclass(getattr(apes, name), apes.ApesError)


@pytest.mark.parametrize("name", [name for name in apes.__all__ if callable(getattr(apes, name, None))])
def test_every_public_name_says_what_it_is(name):
    public = getattr(apes, name)
    assert public.__doc__
    # A dataclass without a docstring of its own is given its signature.
    assert not public.__doc__.startswith(f"{name}(")
