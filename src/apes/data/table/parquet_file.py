"""Tables in Parquet files, with pyarrow (extra ``tables``), which is imported only where such a file is opened."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apes.data.table.cells import Place
from apes.data.table.chunk import ROWS_AT_ONCE, Cells, Chunk, Progress, check_names, make_chunk
from apes.errors import DataError


class ParquetTable:
    """A Parquet file of plain columns."""

    def __init__(self, path: Path) -> None:
        self._path, self.title = path, str(path)
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError:
            raise DataError(f"{path} needs pyarrow to be read; get it with: pip install 'apes-fl[tables]'") from None
        self._errors = OSError, ArrowException
        self._unreadable_cells = ArrowException, ValueError, OverflowError
        try:
            self._file: Any = ParquetFile(path)
        except self._errors as error:
            raise self._unreadable(error) from None
        self.names = check_names(self.title, self._file.schema_arrow.names)

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order; see `Table`."""
        row, total = 1, self._file.metadata.num_rows
        try:
            for batch in self._file.iter_batches(ROWS_AT_ONCE, columns=[*numbers, *texts]):
                # Texts one by one: an array of whole numbers with a gap would come as rounded ones.
                cells: dict[str, Cells] = {name: self._cells(_list, batch, name, row) for name in texts}
                cells |= {name: self._cells(_array, batch, name, row) for name in numbers}
                yield make_chunk(self.title, row, cells, numbers, texts)
                row += batch.num_rows
                if progress is not None:
                    progress(row - 1, total)
        except self._errors as error:
            raise self._unreadable(error) from None

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
