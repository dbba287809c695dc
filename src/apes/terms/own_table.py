"""An own table to train on: which column is what, in words that a command line and a file can hold."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apes.budgets import PUBLIC_SEED, check_budgets
from apes.checks import one_of, unused
from apes.data.partitions.files import is_partitioned
from apes.data.table.chunk import Progress
from apes.data.table.people_rows import read_people
from apes.data.table.reading import MOST_ROWS, TEST_SHARE, Reading
from apes.data.table.schema import CLASSIFICATION, REGRESSION
from apes.data.table.spelling import bounds_of, categories_of, levels_of, names_of
from apes.errors import ParameterError
from apes.models.linear import LinearRegression
from apes.models.logistic import FedProx, LogisticRegression
from apes.partitions.part import CACHE_MB
from apes.partitions.partitions import Partitions
from apes.people.people import People
from apes.population import KnownRows


@dataclass(frozen=True)
class OwnTable:
    """People of a table and what they train.

    Attributes:
        data: Path of a CSV, Parquet or NPZ file; or a folder of Parquet files, or a pattern of their names.
        user_column, label_column, budget_column: Whose row it is, what is learned, which budget the person chose.
        budget_levels: ``low=0.1,high=1``: the budget of every level, where the column has names.
        budgets: A law (`apes.make_budgets`), where there is no such column.
        bounds: ``0:1,age=0:120``: public bounds of columns, those without a name of all others; or ``file:PATH``, a
            table with columns column, low, high. Numbers are scaled by them, never by statistics of the data. Every
            column of numbers needs some.
        bounds_from_data: Whether columns without bounds get the least and the largest value in the table, which no
            guarantee covers.
        categories: ``city=A|B|C``: all values of columns of texts.
        classes: ``a,b,c``: names of all classes; by default those in the table.
        task: ``classification`` or ``regression``.
        ignore: ``a,b``: columns that are left out.
        max_rows, test_share: See `apes.data.table.reading.Reading`.
        update, local_epochs, local_learning_rate, mu: See `apes.Simulation`.
        seed: Of the test part and of a law of budgets, in [0, 2^64): who is in the test part is no secret.
    """

    data: str
    user_column: str
    label_column: str
    budget_column: str | None = None
    budget_levels: str | None = None
    budgets: str | None = None
    bounds: str | None = None
    bounds_from_data: bool = False
    categories: str | None = None
    classes: str | None = None
    task: str = CLASSIFICATION
    ignore: str | None = None
    max_rows: int = MOST_ROWS
    test_share: float = TEST_SHARE
    update: str = "gradient"
    local_epochs: int | None = None
    local_learning_rate: float | None = None
    mu: float | None = None
    seed: int = PUBLIC_SEED

    def __post_init__(self) -> None:
        if (self.budgets is None) == (self.budget_column is None):
            got = "none" if self.budgets is None else f"{self.budget_column!r} and {self.budgets!r}"
            raise ParameterError(f"budget_column or budgets must be given, one of them; got {got}")
        if self.budgets is not None:
            check_budgets(self.budgets)
        one_of("update", self.update, ("gradient", "fedprox") if self.task == CLASSIFICATION else ("gradient",))
        self._local()
        self.reading  # noqa: B018 - checks it

    @cached_property
    def reading(self) -> Reading:
        """Which column is what."""
        return Reading(
            self.user_column,
            self.label_column,
            self.budget_column,
            levels_of(self.budget_levels),
            bounds_of(self.bounds),
            categories_of(self.categories),
            None if self.classes is None else names_of(self.classes),
            self.task,
            names_of(self.ignore),
            self.max_rows,
            self.test_share,
            self.seed,
            self.bounds_from_data,
        )

    @property
    def is_partitioned(self) -> bool:
        """Whether the table is in many files."""
        return is_partitioned(self.data)

    def partitions(self, cache_mb: int | None = None, progress: Progress | None = None) -> Partitions:
        """The people in a table of many files, of which nothing is read yet but who they are."""
        room = CACHE_MB if cache_mb is None else cache_mb
        return Partitions.of(self.data, self.reading, self.budgets, cache_mb=room, progress=progress)

    def people(self, progress: Progress | None = None) -> People:
        """The people in the table."""
        return People.from_rows(read_people(self.data, self.reading, progress), budgets=self.budgets, seed=self.seed)

    def model(self, people: KnownRows) -> LogisticRegression | LinearRegression:
        """What is trained on them."""
        if self.task == REGRESSION:
            return LinearRegression.of(people)
        return LogisticRegression.of(people, self._local())

    def _local(self) -> FedProx | None:
        names = ("local_epochs", "local_learning_rate", "mu")
        local: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.update == "gradient":
            unused(local, "update is 'gradient'")
            return None
        return FedProx(**{name.removeprefix("local_"): value for name, value in local.items() if value is not None})
