"""Opening a table, wherever it comes from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apes.data.partitions.files import is_partitioned, part_paths
from apes.data.table.arrays import ArrayTable, frame_columns
from apes.data.table.chunk import Table
from apes.data.table.csv_file import CsvTable
from apes.data.table.parquet_file import ParquetTable
from apes.errors import DataError, ParameterError
from apes.storage.arrays import read_all_arrays

# By how a file's name ends.
_FORMATS: dict[str, Callable[[Path], Table]] = {
    ".csv": CsvTable,
    ".parquet": ParquetTable,
    ".npz": lambda path: ArrayTable(str(path), read_all_arrays(path)),
}
# A path, arrays by name, or a data frame: no library of these need be installed.
Source = str | Path | Mapping[str, Any] | Any


def is_table(data: str) -> bool:
    """Whether a text names a table rather than a known data set.

    That is a file or folder that is there, a pattern of names, or a name that ends like one.
    """
    return data.lower().endswith(tuple(_FORMATS)) or Path(data).is_file() or is_partitioned(data)


def check_is_there(data: str) -> None:
    """Raise unless the table that a text names, a file, or files in a folder or of a pattern, is there."""
    if is_partitioned(data):
        part_paths(data)
    elif not Path(data).is_file():
        raise DataError(f"there is no file {data}")


def open_table(source: Source) -> Table:
    """Open a CSV, Parquet or NPZ file, a mapping from names to arrays, or a data frame.

    Raises:
        DataError: If a file is missing or damaged, or columns have no names or the same.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if is_partitioned(str(path)):
            raise DataError(f"{path} is no file; tables of many files are opened by apes.Partitions, or trained on")
        if not path.is_file():
            raise DataError(f"there is no file {path}")
        if path.suffix.lower() not in _FORMATS:
            raise DataError(f"{path} must end in {', '.join(_FORMATS)}: the end of the name says how to read it")
        return _FORMATS[path.suffix.lower()](path)
    if isinstance(source, Mapping):
        return ArrayTable("the table", source)
    if hasattr(source, "columns"):
        return ArrayTable("the data frame", frame_columns(source))
    raise ParameterError(f"source must be a file, arrays by name or a data frame, got {type(source).__name__}")
