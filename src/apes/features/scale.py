"""Rows of features at the public scale of all rows."""

import numpy as np

from apes.data.scale import ROW_NORM
from apes.mathematics.arrays import F32

# Rows shorter than this, against ROW_NORM, are blank.
_BLANK = 1e-6


def scaled_rows(rows: F32, norm: float = ROW_NORM) -> F32:
    """Every row at the same L2 norm; blank rows stay blank."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    factors = np.where(lengths > _BLANK, norm / np.maximum(lengths, _BLANK), 0.0)
    return np.asarray(rows * factors[:, None].astype(np.float32), dtype=np.float32)
