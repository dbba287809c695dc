"""Predictions: the model of a run, new rows as it takes them, and a file of what it says about each."""

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from apes.checks import finite_float32
from apes.cli import display
from apes.cli.choices import Choices
from apes.data.datasets import CLASSES, scaled_images
from apes.data.table.rows import encode_table
from apes.errors import DataError, ParameterError
from apes.mathematics.arrays import F32, F64, U8
from apes.models.linear import LinearRegression
from apes.models.logistic import LogisticRegression
from apes.models.model import Model
from apes.models.trained import Trained
from apes.storage.arrays import read_arrays
from apes.storage.files import write_bytes
from apes.training.run_files import is_of_run
from apes.training.run_folder import RunFolder


def write_predictions(run: Path, table: Path, out: Path) -> dict[str, Any]:
    """Predict for every row of a table, write that to a CSV file, and return what was done, as plain values."""
    folder = RunFolder.open(run)
    if is_of_run(run, out):
        raise ParameterError(f"out must not be a file of the run, got {str(out)!r}")
    trained, rows = _opened(folder, table)
    found = trained.predict_encoded(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["prediction"])
    writer.writerows([value] for value in found.tolist())
    write_bytes(out, text.getvalue().encode())
    facts: dict[str, Any] = {"run": str(run), "table": str(table), "rows": len(found), "out": str(out)}
    return facts | _told(found)


def _opened(folder: RunFolder, table: Path) -> tuple[Trained, F32]:
    """The model of a run, and the rows of a table as it takes them."""
    weights, schema = folder.weights(), folder.schema
    if schema is None:
        simulation = Choices.of(dict(folder.config["choices"])).simulation
        rows, map_ = scaled_images(_images(table), simulation.normalise), simulation.feature_map()
        try:
            size = (rows if map_ is None else map_(rows[:1])).shape[1]
        except ParameterError as error:
            raise DataError(f"{table} does not fit the run: {error}") from None
        return Trained(_fitting(LogisticRegression(size, CLASSES), weights, table), weights, features=map_), rows
    with display.steps(f"reading {escape(table.name)}", "read") as progress:
        rows = encode_table(table, schema, progress)
    classes, features = len(schema.classes), rows.shape[1]
    linear: Model = LinearRegression(features) if schema.target else LogisticRegression(features, classes)
    return Trained(_fitting(linear, weights, folder.path), weights, schema), rows


def _images(path: Path) -> U8 | F32:
    """Images in a NumPy archive, for runs on a named set: bytes, or numbers in [0, 1] as `apes.load` has them."""
    if path.suffix.lower() != ".npz":
        raise ParameterError(f"table must be an .npz file with an array 'features' for a run on images, got {path}")
    found = read_arrays(path, ("features",))["features"]
    if found.ndim < 2 or not len(found):
        raise DataError(f"{path}, column 'features': must be rows of numbers, got shape {found.shape}")
    return found if found.dtype == np.uint8 else finite_float32(f"{path}, column 'features'", found)


def _fitting(model: Model, weights: F64, source: Path) -> Model:
    """The model, if it has as many weights as were trained."""
    if model.dimensions != weights.size:
        raise DataError(f"{source} does not fit the run: {model.dimensions} weights are needed, it has {weights.size}")
    return model


def _told(found: NDArray[Any]) -> dict[str, Any]:
    """What was predicted, in short: how many of each class, or from where to where."""
    if found.dtype.kind == "f":
        return {"lowest": float(found.min()), "highest": float(found.max())}
    return {"predicted": {str(name): count for name, count in Counter(found.tolist()).most_common()}}
