"""Tables in memory: arrays by name, or a data frame; and NumPy archives, which are arrays by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from apes.data.table.cells import as_they_are
from apes.data.table.chunk import ROWS_AT_ONCE, Cells, Chunk, Progress, check_names, make_chunk
from apes.errors import DataError


class ArrayTable:
    """Columns by name, all of the same length; an array of rows ``x`` stands for columns ``x.0``, ``x.1``, ..."""

    def __init__(self, title: str, columns: Mapping[str, Any]) -> None:
        self.title = title
        flat = [column for name, values in columns.items() for column in _flat(title, str(name), values)]
        self.names = check_names(title, [name for name, _ in flat])
        self._columns = dict(flat)
        self._rows = len(flat[0][1])
        for name, values in flat:
            if len(values) != self._rows:
                raise DataError(f"{title}, column {name!r}: has {len(values)} rows, {flat[0][0]!r} has {self._rows}")

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order; see `Table`."""
        for start in range(0, self._rows, ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, self._rows)
            cells: dict[str, Cells] = {name: self._columns[name][start:stop] for name in (*numbers, *texts)}
            yield make_chunk(self.title, start + 1, cells, numbers, texts)
            if progress is not None:
                progress(stop, self._rows)


def frame_columns(frame: Any) -> dict[str, Any]:
    """Columns of a data frame of any library whose frames have ``columns`` and whose columns have ``to_numpy``."""
    names = check_names("the data frame", [str(name) for name in frame.columns])
    return {name: frame[own].to_numpy() for name, own in zip(names, frame.columns, strict=True)}


def _flat(title: str, name: str, values: Any) -> list[tuple[str, NDArray[Any]]]:
    try:
        array = as_they_are(values)
    except ValueError:
        message = "must have one number per row, or rows of them, got lists of different lengths"
        raise DataError(f"{title}, column {name!r}: {message}") from None
    if array.ndim == 1:
        return [(name, array)]
    if array.ndim == 2:
        return [(f"{name}.{at}", array[:, at]) for at in range(array.shape[1])]
    raise DataError(f"{title}, column {name!r}: must have one number per row, or rows of them, got {array.shape}")
