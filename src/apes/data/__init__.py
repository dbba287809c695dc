"""Data sets and how they are spread over users."""

from apes.data.datasets import NAMES, Dataset, load
from apes.data.sources import download
from apes.data.split import partition

__all__ = ["NAMES", "Dataset", "download", "load", "partition"]
