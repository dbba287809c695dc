"""Tables in Parquet files, with pyarrow (extra ``tables``), which is imported only where such a file is opened."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from apes.data.table.cells import Place
from apes.data.table.chunk import ROWS_AT_ONCE, Cells, Chunk, Progress, check_names, make_chunk
from apes.errors import DataError


class ParquetTable:
    """A Parquet file of plain columns, or some of its rows, counted from 0."""

    def __init__(self, path: Path, rows: range | None = None) -> None:
        self._path, self.title = path, str(path)
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError:
            raise DataError(f"{path} needs pyarrow to be read; get it with: pip install 'apes-fl[tables]'") from None
        self._errors = OSError, ArrowException
        self._unreadable_cells = ArrowException, ValueError, OverflowError
        try:
            # Where pages have a checksum, it is looked at: damage would else become numbers.
            self._file: Any = ParquetFile(path, page_checksum_verification=True)
        except self._errors as error:
            raise self._unreadable(error) from None
        self.names = check_names(self.title, self._file.schema_arrow.names)
        self._rows = range(self._file.metadata.num_rows) if rows is None else rows

    @property
    def kinds(self) -> dict[str, str]:
        """What the cells of each column are, in Parquet's words."""
        return {field.name: str(field.type) for field in self._file.schema_arrow}

    @property
    def group_ends(self) -> list[int]:
        """Where each row group ends, in rows: what a file is read by."""
        metadata = self._file.metadata
        return list(accumulate(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)))

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order; see `Table`."""
        try:
            for row, batch in self._batches([*numbers, *texts]):
                # Texts one by one: an array of whole numbers with a gap would come as rounded ones.
                cells: dict[str, Cells] = {name: self._cells(_list, batch, name, row) for name in texts}
                cells |= {name: self._cells(_array, batch, name, row) for name in numbers}
                yield make_chunk(self.title, row, cells, numbers, texts)
                if progress is not None:
                    progress(row - 1 + batch.num_rows - self._rows.start, len(self._rows))
        except self._errors as error:
            raise self._unreadable(error) from None

    def _batches(self, columns: list[str]) -> Iterator[tuple[int, Any]]:
        """Some rows at a time, with the number of the first; of no more row groups than they are in."""
        first, last, ends = self._rows.start, self._rows.stop, self.group_ends
        groups = [at for at, end in enumerate(ends) if end > first and (ends[at - 1] if at else 0) < last]
        start = ends[groups[0] - 1] if groups and groups[0] else 0
        for batch in self._file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns):
            low, high = max(first - start, 0), min(last - start, batch.num_rows)
            if low < high:
                yield start + low + 1, batch.slice(low, high - low)
            start += batch.num_rows
            if start >= last:
                return

    def _cells(self, read: Callable[[Any], Cells], batch: Any, name: str, row: int) -> Cells:
        """Cells of a column; a text that is not UTF-8, or a time that Python does not know, is named by its row."""
        column = batch.column(name)
        try:
            return read(column)
        except self._unreadable_cells as error:
            raise self._bad_cell(column, Place(self.title, name, row), error) from None

    def _bad_cell(self, column: Any, place: Place, error: BaseException) -> DataError:
        """The error of the first cell that cannot be read; of the column, if each can alone."""
        for at, cell in enumerate(column):
            try:
                cell.as_py()
            except self._unreadable_cells as own:
                return place.error(at, f"cannot be read: {' '.join(str(own).split())}")
        return self._unreadable(error)

    def _unreadable(self, error: BaseException) -> DataError:
        return DataError(f"{self._path} cannot be read as Parquet: {' '.join(str(error).split())}")


def _list(column: Any) -> Cells:
    """Cells as Python has them."""
    cells: Cells = column.to_pylist()
    return cells


def _array(column: Any) -> Cells:
    """Cells as an array where that is exact; gaps are NaN or None in it."""
    plain = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    cells: Cells = plain.to_numpy(zero_copy_only=False)
    return cells
