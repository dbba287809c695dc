"""Checks of parameters: the valid condition is written out, so that NaN fails it."""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.errors import ParameterError

T = TypeVar("T")
# What moves a terminal's cursor, breaks a line or turns the direction of writing: a name with it could show as another.
_HIDDEN_KINDS = ("Cc", "Cs", "Zl", "Zp")
_TURNS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_OF_HOSTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]")


def positive(name: str, value: float, upper: float = math.inf) -> float:
    """Return ``value`` as a float if it lies in (0, upper] and is finite, else raise."""
    number = _number(name, value)
    if not (0 < number <= upper and math.isfinite(number)):
        end = "inf)" if math.isinf(upper) else f"{upper:g}]"
        raise ParameterError(f"{name} must be in (0, {end}, got {value!r}")
    return number


def within(name: str, value: float, lower: float, upper: float) -> float:
    """Return ``value`` as a float if it lies in [lower, upper], else raise."""
    number = _number(name, value)
    if not lower <= number <= upper:
        raise ParameterError(f"{name} must be in [{lower:g}, {upper:g}], got {value!r}")
    return number


def between(name: str, value: float, lower: float, upper: float) -> float:
    """Return ``value`` as a float if it lies in (lower, upper), both ends excluded, else raise."""
    number = _number(name, value)
    if not lower < number < upper:
        raise ParameterError(f"{name} must be in ({lower:g}, {upper:g}), got {value!r}")
    return number


def half_open(name: str, value: float, lower: float, upper: float) -> float:
    """Return ``value`` as a float if it lies in [lower, upper), without the upper end, else raise."""
    number = _number(name, value)
    if not lower <= number < upper:
        raise ParameterError(f"{name} must be in [{lower:g}, {upper:g}), got {value!r}")
    return number


def whole(name: str, value: int, lower: int, upper: int | None = None) -> int:
    """Return ``value`` if it is a whole number in [lower, upper], else raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(f"{name} must be a whole number, got {value!r}")
    if value < lower or (upper is not None and value > upper):
        end = "inf)" if upper is None else f"{upper}]"
        got = repr(value) if abs(value) < 10**30 else f"a number of {int(value).bit_length()} bits"
        raise ParameterError(f"{name} must be in [{lower}, {end}, got {got}")
    return int(value)


def truth(name: str, value: bool) -> bool:
    """Return ``value`` if it is True or False, else raise: a text that says no would be taken for a yes."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of those allowed, else raise."""
    if value not in allowed:
        raise ParameterError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def plain_text(name: str, value: str) -> str:
    """Return ``value`` if it is a text that shows as what it is, else raise."""
    is_text = isinstance(value, str) and value != ""
    if not is_text or any(unicodedata.category(sign) in _HIDDEN_KINDS or sign in _TURNS for sign in value):
        raise ParameterError(f"{name} must be a text without line breaks and control characters, got {value!r}")
    return value


def address(name: str, value: str) -> tuple[str, int]:
    """Return host and port if ``value`` is HOST:PORT and holds nothing else that an address on the network may."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not is_port or not host or not set(host) <= _OF_HOSTS:
        raise ParameterError(f"{name} must be HOST:PORT with a port in [1, 65535], got {value!r}")
    return host, int(port)


def positive_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a one-dimensional float64 copy of ``values``, all in (0, inf) and at least one."""
    array = numbers(name, values).astype(np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{name} must be a non-empty list of numbers, got shape {array.shape}")
    bad = ~((array > 0) & np.isfinite(array))
    if bad.any():
        where = int(np.argmax(bad))
        raise ParameterError(f"{name}[{where}] must be in (0, inf), got {float(array[where])!r}")
    return array


def numbers(name: str, values: ArrayLike, kinds: str = "iuf") -> NDArray[Any]:
    """Return ``values`` as a plain array if they are whole or real numbers, none masked, else raise."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name} must be a list of numbers, got lists of different lengths") from None
    if array.dtype.kind not in kinds or isinstance(values, np.ma.MaskedArray):
        got = shown(values) if array.size < 2 else type(values).__name__ if array.dtype.kind in kinds else array.dtype
        raise ParameterError(f"{name} must be a list of numbers, got {got}")
    return array


def finite_float32(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """Return ``values`` as contiguous float32 numbers, all of them finite, else raise."""
    array = numbers(name, values, "biuf")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    finite(name, array)
    return array


def finite(name: str, values: NDArray[Any]) -> None:
    """Raise if any entry of ``values`` is NaN or infinite."""
    bad = ~np.isfinite(values)
    if bad.any():
        where = tuple(int(axis[0]) for axis in np.nonzero(bad))
        raise ParameterError(f"{name}{list(where)} must be finite, got {float(values[where])!r}")


def hex_names(name: str, values: tuple[str, ...], size: int) -> None:
    """Check that every value is ``size`` bytes in lower-case hexadecimal, and none comes twice."""
    if not isinstance(values, tuple) or not values:
        raise ParameterError(f"{name} must be a list with at least one entry, got {values!r}")
    for value in values:
        if not isinstance(value, str) or len(value) != 2 * size or not set(value) <= set("0123456789abcdef"):
            raise ParameterError(f"{name} must be {2 * size} hexadecimal digits in lower case, got {value!r}")
    if len(set(values)) < len(values):
        # Counted in one go: whoever wants to be admitted may hand in as many as they like.
        raise ParameterError(f"{name} must differ, got {Counter(values).most_common(1)[0][0]!r} more than once")


def shown(value: object) -> str:
    """A value for a message; of what Python would not spell out (whole numbers of thousands of digits), its size."""
    try:
        return repr(value)
    except ValueError:
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def unused(options: dict[str, Any], why: str) -> None:
    """Raise if an option was given that would do nothing."""
    for name, value in options.items():
        if value is not None:
            got = str(value) if isinstance(value, Path) else value
            raise ParameterError(f"{name} must be left out: {why}; got {got!r}")


def exactly(name: str, value: T, kind: type[T]) -> T:
    """Return ``value`` if its type is ``kind`` itself, whose methods are trusted; a subclass may have others."""
    if type(value) is not kind:
        raise ParameterError(f"{name} must be of apes's own class {kind.__name__}, got {type(value).__name__}")
    return value


def offering(name: str, value: object, *needed: str) -> None:
    """Raise unless ``value`` has all attributes that are needed."""
    if not all(hasattr(value, attribute) for attribute in needed):
        raise ParameterError(f"{name} must have {', '.join(needed)}, got {type(value).__name__}")


def _number(name: str, value: float) -> float:
    if isinstance(value, bool | str):
        raise ParameterError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name} must be a number, got {shown(value)}") from None
