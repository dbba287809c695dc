"""Tables in CSV files: UTF-8, separated by commas, the first row names the columns."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from apes.data.table.chunk import ROWS_AT_ONCE, Cells, Chunk, Progress, check_names, make_chunk
from apes.errors import DataError


class CsvTable:
    """A CSV file; blank lines are no rows, but where there is one column: there they are rows with an empty cell."""

    def __init__(self, path: Path) -> None:
        self._path, self.title = path, str(path)
        _, header = next(self._lines(None, 1), (0, []))
        if not header:
            raise DataError(f"{path} is empty; the first row must name the columns")
        self.names = check_names(self.title, [name.strip() for name in header[0]])

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order; see `Table`."""
        for first, rows in self._lines(progress, ROWS_AT_ONCE):
            # The header is row 0.
            rows, first = (rows[1:], 1) if first == 0 else (rows, first)
            for at, row in enumerate(rows):
                if len(row) != len(self.names):
                    message = f"has {len(row)} cells where the header has {len(self.names)}"
                    raise DataError(f"{self.title}, row {first + at}: {message}")
            if rows:
                cells: dict[str, Cells] = dict(zip(self.names, zip(*rows, strict=True), strict=True))
                yield make_chunk(self.title, first, cells, numbers, texts)

    def _lines(self, progress: Progress | None, at_once: int) -> Iterator[tuple[int, list[list[str]]]]:
        """Lines as lists of cells, some at a time, with the number of the first; the header has 0."""
        number = 0
        try:
            with self._path.open("rb") as file:
                total = self._path.stat().st_size
                # Strict: a quote that is never closed would else swallow the rest of the file.
                text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
                for rows in _some(csv.reader(text, strict=True), at_once):
                    yield number, rows
                    number += len(rows)
                    if progress is not None:
                        progress(file.tell(), total)
        except UnicodeDecodeError:
            raise DataError(f"{self._path}, after row {max(number - 1, 0)}: is not UTF-8 text") from None
        except _NotCsv as error:
            # The header is row 0.
            where = f"row {number + error.rows}" if number + error.rows else "header"
            raise DataError(f"{self._path}, {where}: is not CSV: {error}") from None
        except OSError as error:
            raise DataError(f"{self._path} cannot be read: {error.strerror}") from None


class _NotCsv(Exception):  # noqa: N818 - it never leaves this file
    """What is wrong with a line, and how many rows were read since the last ones that were handed on."""

    def __init__(self, rows: int, what: str) -> None:
        super().__init__(what)
        self.rows = rows


def _some(lines: Iterable[list[str]], at_once: int) -> Iterator[list[list[str]]]:
    """Rows, so many at a time."""
    rows: list[list[str]] = []
    width = 0
    try:
        for line in lines:
            width = width or len(line)
            if line or width == 1:
                rows.append(line or [""])
            if len(rows) == at_once:
                yield rows
                rows = []
    except csv.Error as error:
        # With a quote that is never closed, the row in which it opens is the one that does not end.
        raise _NotCsv(len(rows), str(error)) from None
    if rows:
        yield rows
