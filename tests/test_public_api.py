"""The public names: sorted, complete, importable, documented."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import apes
from apes import errors


def order(name):
    """Constants, then classes, then the rest, each by the alphabet (ruff's RUF022)."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def imported_names():
    """What __init__.py imports by name."""
    tree = ast.parse(Path(apes.__file__).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [alias.asname or alias.name for node in imports for alias in node.names]


def test_names_are_sorted_and_listed_once():
    assert apes.__all__ == sorted(set(apes.__all__), key=order)


def test_what_is_imported_is_what_is_listed():
    assert sorted(imported_names()) == sorted(apes.__all__)


def test_nothing_public_is_left_out():
    found = {name for name, value in vars(apes).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert found == {name for name in apes.__all__ if name[0] != "_"}


def test_star_import_gives_every_name():
    namespace = {}
    exec("from apes import *", namespace)  # the statement is what is tested
    assert {name: namespace[name] for name in apes.__all__} == {name: getattr(apes, name) for name in apes.__all__}


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
