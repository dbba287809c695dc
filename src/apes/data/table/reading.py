"""How a table is to be read: which column is what, and what is public about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apes.checks import one_of, positive, whole, within
from apes.data.table.chunk import Table, check_columns
from apes.data.table.columns import Category, Columns, Number
from apes.data.table.schema import CLASSIFICATION, REGRESSION, TASKS, Schema
from apes.errors import ParameterError

MOST_ROWS = 64
TEST_SHARE = 0.2
# Bounds of every column that has none of its own.
ALL_OTHERS = "*"
UNIT = (0.0, 1.0)
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Reading:
    """Which column is what. All of it is chosen without looking at anybody's data.

    Attributes:
        user: Column of user ids, numbers or texts: whose row it is.
        label: Column that is learned.
        budget: Column of local budgets, per coordinate and round: numbers, or names of levels; None if there is none.
        levels: Budget of every level by name, if the column has names.
        bounds: LOW and HIGH of columns of numbers by name, of the label too where it is one; under ``*`` those of all
            others, (0, 1) by default. They scale numbers in place of statistics of the data, which would not be
            private; what lies outside is clipped.
        categories: All values of each column of texts.
        classes: Names of all classes, for classification; by default those that are found in the table, sorted: that
            there are such classes is taken as public then.
        task: ``classification``, or ``regression`` for real-valued labels (squared loss).
        ignore: Columns that are left out.
        max_rows: Of a person's rows the first so many are taken, at least 1.
        test_share: Share of people, in [0, 1), whose rows judge the model and train nothing, drawn by a keyed hash of
            the user id: no person's rows are split, and others' rows change nothing.
        seed: Key of that hash.
    """

    user: str
    label: str
    budget: str | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Sequence[str] | None = None
    task: str = CLASSIFICATION
    ignore: Sequence[str] = ()
    max_rows: int = MOST_ROWS
    test_share: float = TEST_SHARE
    seed: int = 1

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        whole("max_rows", self.max_rows, 1)
        whole("seed", self.seed, 0, 2**64 - 1)
        if not 0 <= within("test_share", self.test_share, 0, 1) < 1:
            raise ParameterError(f"test_share must be in [0, 1), got {self.test_share!r}")
        if self.task == REGRESSION and self.classes is not None:
            raise ParameterError(f"classes must be left out: task is {REGRESSION!r}; got {list(self.classes)!r}")
        if self.levels and self.budget is None:
            raise ParameterError("budget must name the column that the levels are in, got none")
        for name, budget in self.levels.items():
            positive(f"budget level {name!r}", budget)
        own = [name for name in (self.user, self.label, self.budget) if name is not None]
        for name in own:
            if not isinstance(name, str) or own.count(name) > 1 or name in self.ignore:
                raise ParameterError(f"user, label and budget must be columns of their own, got {name!r}")

    def _features(self, table: Table) -> tuple[list[str], list[str]]:
        """Names of the columns of numbers and of texts that are features, in the table's order."""
        own = {self.user, self.label, self.budget, *self.ignore}
        check_columns(table, [name for name in (self.user, self.label, self.budget) if name is not None])
        check_columns(table, [*self.ignore, *self.categories])
        features = [name for name in table.names if name not in own]
        texts = [name for name in features if name in self.categories]
        numbers = [name for name in features if name not in self.categories]
        bounded = {*numbers, ALL_OTHERS, *([self.label] if self.task == REGRESSION else [])}
        for option, names, allowed in (("bounds", self.bounds, bounded), ("categories", self.categories, texts)):
            for name in names:
                if name not in allowed:
                    raise ParameterError(f"{option} must be of columns to learn from, got {name!r}")
        return numbers, texts

    def columns(self, table: Table) -> Columns:
        """The columns that are learned from."""
        numbers, texts = self._features(table)
        categories = tuple(Category(name, tuple(map(str, self.categories[name]))) for name in texts)
        return Columns(tuple(self.number(name) for name in numbers), categories)

    def schema(self, columns: Columns, classes: Sequence[str]) -> Schema:
        """What is public about a table with these columns and classes."""
        is_regression = self.task == REGRESSION
        target = self.number(self.label) if is_regression else None
        levels = tuple((name, float(budget)) for name, budget in self.levels.items())
        return Schema(columns, self.label, self.task, () if is_regression else tuple(classes), target, levels)

    def number(self, name: str) -> Number:
        """A column of numbers with its bounds."""
        bounds = self.bounds.get(name, self.bounds.get(ALL_OTHERS, UNIT))
        try:
            low, high = map(float, bounds)
        except (TypeError, ValueError):
            raise ParameterError(f"bounds of column {name!r} must be LOW and HIGH, got {bounds!r}") from None
        return Number(name, low, high)


def bounds_by_name(bounds: Mapping[str, Bounds] | Bounds) -> Mapping[str, Bounds]:
    """Bounds of columns by name; one pair is that of all."""
    return bounds if isinstance(bounds, Mapping) else {ALL_OTHERS: bounds}
