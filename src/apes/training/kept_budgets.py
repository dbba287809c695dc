"""Budgets of those who took part in a run, in files under their digest: rounds with the same people name the same."""

from pathlib import Path

import numpy as np

from apes.accounting.exposure import Exposure
from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.storage.arrays import read_array
from apes.storage.files import write_whole
from apes.training.run_files import BUDGETS


def keep_budgets(run: Path, exposure: Exposure) -> None:
    """Keep the budgets of a round, without an order, unless they are kept."""
    path = _file(run, exposure.budgets_sha256)
    if not path.exists():
        write_whole(path, lambda file: np.save(file, np.sort(exposure.budgets)))


def read_budgets(run: Path, name: str) -> F64:
    """Read the budgets of this name."""
    path = _file(run, name)
    try:
        return read_array(path)
    except (OSError, ValueError, TypeError, EOFError, OverflowError) as error:
        raise DataError(f"{path} cannot be read, so what was spent is not known: {error}") from None


def _file(run: Path, name: str) -> Path:
    return run / BUDGETS / f"{name}.npy"
