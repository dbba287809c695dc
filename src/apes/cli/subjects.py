"""Who trains what: made-up people on a named set, or those of an own table; and what is to be said of a table."""

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from apes.accounting.words import HELD_OUT, counted
from apes.checks import unused
from apes.cli import display
from apes.cli.shared import spelt_out
from apes.data.table.people_rows import TableFacts
from apes.data.table.reading import MissingBounds, listed
from apes.data.table.spelling import bounds_to_add, is_bounds_file
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.models.model import Model
from apes.partitions.partitions import Partitions
from apes.people.people import People
from apes.terms.own_table import OwnTable
from apes.terms.simulation import Simulation
from apes.training.train import TrainingResult


def subjects(
    chosen: Simulation | OwnTable, data_dir: Path | None, cache_mb: int | None = None
) -> tuple[People | Partitions, Model, str]:
    """People, model, and where the data came from; of a table in many files ``cache_mb`` of rows are kept."""
    if not (isinstance(chosen, OwnTable) and chosen.is_partitioned):
        unused({"cache_mb": cache_mb}, "data is not a folder of files")
    if isinstance(chosen, Simulation):
        dataset = display.dataset(chosen, data_dir)
        return chosen.people(dataset), chosen.model(dataset), dataset.provenance
    unused({"data_dir": None if data_dir is None else str(data_dir)}, "data is a file")
    if chosen.is_partitioned:
        return _in_files(chosen, cache_mb)
    people = people_of_table(chosen)
    return people, chosen.model(people), f"own table: {chosen.data}"


# Of the rows: what is clipped in more of them is said.
MOST_CLIPPED = 0.1


@contextmanager
def bounds_as_option(chosen: Simulation | OwnTable) -> Iterator[None]:
    """Say which columns have no bounds in words of the command line, with the option to add."""
    try:
        yield
    except MissingBounds as error:
        given = chosen.bounds if isinstance(chosen, OwnTable) else None
        raise ParameterError(_bounds_to_add(error.columns, given)) from None


def _bounds_to_add(columns: tuple[str, ...], given: str | None) -> str:
    add = f"Add --bounds {shlex.quote(bounds_to_add(given, columns))}"
    if is_bounds_file(given):
        add = f"Add a row of column, low, high for each of them to --bounds {shlex.quote(str(given))}"
    return (
        f"no bounds for {counted(len(columns), 'column')} of numbers: {listed(columns)}. {add}, with numbers that "
        "everybody knows (LOW:HIGH without a name is for all other columns). A column of texts needs --categories "
        "NAME=VALUE|VALUE, one that is not learned from --ignore NAME. --bounds-from-data makes bounds from the data, "
        "which no guarantee covers"
    )


def people_of_table(chosen: OwnTable) -> People:
    """People of a table in one file, all of them in memory."""
    with bounds_as_option(chosen), display.steps(f"reading {escape(Path(chosen.data).name)}", "read") as progress:
        return chosen.people(progress)


def _in_files(chosen: OwnTable, cache_mb: int | None) -> tuple[Partitions, Model, str]:
    """People of a table in many files, their model, and where they are."""
    name = escape(Path(chosen.data).name)
    with bounds_as_option(chosen), display.steps(f"who is in {name}", "bytes") as progress:
        people = chosen.partitions(cache_mb, progress)
    # Now, and not within the run: what cannot be read is said before there is a folder.
    with display.steps(f"test part of {name}", "rows") as progress:
        people.read_test(progress)
    return people, chosen.model(people), f"own table in files: {chosen.data}"


def of_table(people: People | Partitions, result: TrainingResult) -> dict[str, Any]:
    """What is to be said of a table; nothing where there is none."""
    if people.schema is None or people.facts is None:
        return {}
    said: dict[str, Any] = {"schema_sha256": people.schema.digest, **asdict(people.facts)}
    loss, target = result.metrics[-1].loss, people.schema.target
    if target is not None and loss is not None:
        said["root_mean_square_error"] = target.half * math.sqrt(loss)
        baseline = result.baseline
        said["baseline_root_mean_square_error"] = None if baseline is None else target.half * math.sqrt(baseline)
    return {"table": said}


def tell_clipped(facts: TableFacts | None) -> None:
    """Say on the terminal which columns lie outside their bounds in more than a tenth of the rows.

    It is a figure of people's data as it is: it goes to whoever holds the table, and into no file.
    """
    for line in clipped_lines(facts):
        display.console.print(escape(line), highlight=False, soft_wrap=True)


def clipped_lines(facts: TableFacts | None) -> list[str]:
    """A line for every column that is clipped in more than a tenth of the rows, the most first."""
    shares = {} if facts is None or facts.clipped is None else facts.clipped
    most = sorted(shares.items(), key=lambda share: -share[1])
    return [
        f"column {spelt_out(name)} is clipped: it lies outside its bounds in {100 * share:.0f} % of the rows"
        for name, share in most
        if share > MOST_CLIPPED
    ]


def levels_chosen(people: People | Partitions, applied: F64) -> dict[str, float]:
    """The levels that somebody who trains chose, with their budgets as they were applied; none without levels.

    A level that nobody chose is not among them: nothing is proved for it.
    """
    chosen: dict[str, float] = {}
    for name, budget in () if people.schema is None else people.schema.budget_levels:
        theirs = applied[people.budgets == budget]
        if theirs.size:
            chosen[name] = float(theirs[0])
    return chosen


def accuracy_note(people: People | Partitions, loss: float | None) -> str | None:
    """What is said beside accuracy and loss where people of a table judge; a named set has a public test part."""
    return None if people.schema is None or loss is None else HELD_OUT


def budgets_said(chosen: Simulation | OwnTable) -> str | None:
    """Where budgets came from: a law, or a column."""
    column = getattr(chosen, "budget_column", None)
    return chosen.budgets if column is None else f"column {column}"
