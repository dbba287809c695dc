"""Docstrings and signatures as people read them: arrays by their numbers, properties by their sentences."""

import re

from sphinx.application import Sphinx

# What numpy calls an array of any shape.
_ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[~?numpy\.(\w+)\]\]")


def readable(signature: str | None) -> str | None:
    """A signature, or what it returns, with short names of arrays."""
    return None if signature is None else _ARRAY.sub(r"NDArray[\1]", signature)


def _signature(
    app: Sphinx, what: str, name: str, found: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Shorter arrays; and none for protocols, which nobody calls."""
    return "" if signature == "(*args, **kwargs)" else readable(signature), readable(returned)


def _docstring(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Keep what stands before a colon in a property's first line from being taken for its type."""
    if what in ("property", "attribute", "data"):
        lines[:0] = ["..", ""]  # a comment: the first line that is looked at


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx; docstrings before napoleon, which comes at 500."""
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
