"""The package's version, as installed."""

from importlib.metadata import version

__version__ = version("apes-fl")
