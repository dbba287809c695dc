"""Data sets and how they are spread over users."""

from apes.data.datasets import NAMES, Dataset, load
from apes.data.partition import partition
from apes.data.sources import download

__all__ = ["NAMES", "Dataset", "download", "load", "partition"]
