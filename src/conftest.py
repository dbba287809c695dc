"""Doctests of what needs torch are collected where it is installed."""

from importlib.util import find_spec

_NEED_TORCH = ["apes/models/torch_*.py", "apes/features/frozen.py", "apes/torch_modules/*.py"]
collect_ignore_glob = [] if find_spec("torch") else _NEED_TORCH
