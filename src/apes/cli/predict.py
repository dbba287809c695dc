"""The command predict: what a trained model says about new rows."""

from pathlib import Path
from typing import Annotated

import typer

from apes.cli import shared
from apes.errors import ParameterError


def predict_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run that is over.")],
    table: Annotated[Path, typer.Argument(help="New rows: a table with the columns that were learned from.")],
    out: Annotated[Path, typer.Option(help="CSV file for the predictions: one row per row, column 'prediction'.")],
    as_json: shared.Json = False,
) -> None:
    """Predict: a class or number for every row of a table; what was released is used, and no privacy spent."""
    # A device or a pipe would be replaced, not written to.
    if out.resolve() == table.resolve() or (out.exists() and not out.is_file()):
        raise ParameterError(f"out must be a file of its own, got {str(out)!r}")
    shared.check_place("out", out)
    from apes.cli.predictions import write_predictions

    facts = write_predictions(run, table, out)
    shared.tell(facts, as_json, f"{facts['rows']:,} predictions in {out}")
