"""Everything that a module's or a loss's results may depend on: attributes, hooks, closures, classes, globals in use.

A walk names each thing by where it was found and says in a word what it is; what words are used for numbers and for
code is the caller's choice: their content, to tell one module from another (`digest`), or which object they are, to see
whether anything changes as it runs (`watch`).
"""

import enum
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from apes.errors import ParameterError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice)
_NAMED = (enum.Enum, np.generic, np.dtype, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_RANDOM = (torch.Generator, np.random.Generator, np.random.RandomState, Random)
# Code of these is known by its name and version; all else is looked into.
_LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "apes"}
_WITHOUT_MEANING = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__slots__"}
_WITHOUT_MEANING |= {"__firstlineno__", "__static_attributes__", "__parameters__", "__orig_bases__"}
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc)
_MOST = 100_000


Found: TypeAlias = tuple[str, list[tuple[str, Any]]]
"""A word for an object, and what is inside it, by the step that leads there."""


class Words(NamedTuple):
    """What a walk says of an array or tensor, and of a class or function with code of its own."""

    numbers: Callable[[Any], str]
    code: Callable[[Any], str]


Look: TypeAlias = Callable[[Any, str, Words], Found]
# Classes that were met, for speed: a watch looks after every group of users.
_known: dict[type, Look] = {}


def walk(root: Any, name: str, words: Words) -> Iterator[tuple[str, str, Any]]:
    """Place, word and object of everything that can be reached from ``root``, in a fixed order, each object once.

    Raises:
        ParameterError: For what cannot be told from anything else, and for sources of random numbers; names the place.
    """
    seen: dict[int, str] = {}
    waiting: deque[tuple[str, Any]] = deque([(name, root)])
    while waiting:
        place, value = waiting.popleft()
        if not isinstance(value, _PLAIN) and id(value) in seen:
            yield place, f"as {seen[id(value)]}", value
            continue
        seen[id(value)] = place
        if len(seen) > _MOST:
            raise ParameterError(f"{name} must not reach more than {_MOST} objects, got more: it holds a whole program")
        kind = type(value)
        if kind not in _known:
            _known[kind] = _look(kind)
        word, inside = _known[kind](value, place, words)
        yield place, word, value
        waiting.extend((f"{place}{step}", part) for step, part in inside)


def _look(kind: type) -> Look:
    """How to look at objects of a class."""
    if kind in _PLAIN or issubclass(kind, _NAMED):
        return lambda value, place, words: (f"{kind.__qualname__} {value!r}", [])
    if issubclass(kind, _RANDOM):
        return _refuse_chance
    if issubclass(kind, torch.Tensor | np.ndarray):
        return lambda value, place, words: (words.numbers(value), [])
    for kinds, look in _LOOKS:
        if issubclass(kind, kinds):
            return look
    if _is_library(kind) and not kind.__module__.startswith("torch"):
        # A logger, a lock: not what results are made of.
        return lambda value, place, words: (f"{kind.__module__}.{kind.__qualname__}", [])
    return _look_into


def _refuse_chance(value: Any, place: str, words: Words) -> Found:
    raise ParameterError(f"{place} draws random numbers ({type(value).__name__}): remove it")


def _look_into(value: Any, place: str, words: Words) -> Found:
    """An object of somebody's class, a torch module among them: its class and its attributes."""
    kind = type(value)
    inside: list[tuple[str, Any]] = [(" class", kind)]
    slots = [name for each in kind.__mro__ for name in np.atleast_1d(vars(each).get("__slots__", ())).tolist()]
    own = {name: getattr(value, name) for name in slots if hasattr(value, name) and name[:2] != "__"}
    own |= getattr(value, "__dict__", {})
    if not own and not hasattr(value, "__dict__") and not slots and not _is_library(kind):
        raise ParameterError(f"{place} must be of a kind that can be told from others, got {kind.__qualname__}")
    for name, part in own.items():
        # What torch keeps apart belongs to the layer all the same; hooks are numbered anew in every process.
        if isinstance(value, torch.nn.Module) and name in ("_modules", "_parameters", "_buffers"):
            inside += [(f".{key}", entry) for key, entry in part.items()]
        elif isinstance(value, torch.nn.Module) and name.endswith("_hooks"):
            inside += [(f".{name}[{at}]", entry) for at, entry in enumerate(part.values())]
        elif not (isinstance(value, torch.nn.Module) and "_hooks_" in name):
            inside.append((f".{name}", part))
    return f"object of {len(inside)}", inside


def _look_at_function(function: Any, place: str, words: Words) -> Found:
    if _is_library(function):
        return f"{function.__module__}.{function.__qualname__}", []
    inside = [("(...)", function.__defaults__), ("(*)", function.__kwdefaults__)]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            inside.append((f"<{name}>", cell.cell_contents))
        except ValueError:
            # A function that names itself before it is there.
            inside.append((f"<{name}>", None))
    used = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    inside += [(f" global {name}", value) for name, value in used.items()]
    return words.code(function), inside + [(f".{name}", value) for name, value in vars(function).items()]


def _names(code: types.CodeType) -> list[str]:
    """Names that a function uses, those of functions inside it too."""
    inner = (each for each in code.co_consts if inspect.iscode(each))
    return sorted({*code.co_names, *(name for each in inner for name in _names(each))})


def _look_at_class(kind: Any, place: str, words: Words) -> Found:
    if _is_library(kind):
        return f"{kind.__module__}.{kind.__qualname__}", []
    inside = [(f".{name}", value) for name, value in sorted(vars(kind).items()) if name not in _WITHOUT_MEANING]
    inside = [(step, value) for step, value in inside if step[:5] != "._abc" and not isinstance(value, _DESCRIPTORS)]
    return words.code(kind), inside + [(f" base {base.__name__}", base) for base in kind.__bases__]


def _is_library(code: Any) -> bool:
    return str(getattr(code, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def _entries(value: Any, place: str, words: Words) -> Found:
    return f"{type(value).__name__} of {len(value)}", [(f"[{at}]", entry) for at, entry in enumerate(value)]


def _pairs(value: Any, place: str, words: Words) -> Found:
    inside: list[tuple[str, Any]] = []
    for at, (key, entry) in enumerate(value.items()):
        inside += [(f" key {at}", key), (f"[{key!r:.60}]", entry)]
    return f"{type(value).__name__} of {len(value)}", inside


def _members(value: Any, place: str, words: Words) -> Found:
    return f"{type(value).__name__} of {sorted(map(repr, value))}", []


def _parts(*names: str) -> Look:
    return lambda value, place, words: (type(value).__name__, [(f".{name}", getattr(value, name)) for name in names])


_LOOKS: tuple[tuple[Any, Look], ...] = (
    (types.ModuleType, lambda value, place, words: (f"module {value.__name__}", [])),
    (tuple | list | deque, _entries),
    (dict | types.MappingProxyType, _pairs),
    (set | frozenset, _members),
    (partial, _parts("func", "args", "keywords")),
    (types.MethodType, _parts("__func__", "__self__")),
    (types.FunctionType, _look_at_function),
    (type, _look_at_class),
    (staticmethod | classmethod, _parts("__func__")),
    (property, _parts("fget", "fset")),
    (_BUILT_IN, lambda value, place, words: (f"{getattr(value, '__module__', '')}.{value.__name__}", [])),
)
