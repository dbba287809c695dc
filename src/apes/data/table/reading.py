"""How a table is to be read: which column is what, and what is public about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from apes.checks import one_of, positive, truth, whole, within
from apes.data.table.chunk import Table, check_columns
from apes.data.table.columns import Category, Columns, Number
from apes.data.table.schema import CLASSIFICATION, REGRESSION, TASKS, Schema
from apes.errors import ParameterError

MOST_ROWS = 64
TEST_SHARE = 0.2
# Bounds of every column that has none of its own.
ALL_OTHERS = "*"
Bounds = tuple[float, float]
_NAMES_SHOWN = 20


class MissingBounds(ParameterError):  # noqa: N818 - the name says what is wrong
    """Columns of numbers have no bounds, which follows from the choices and the table's header alone.

    Attributes:
        columns: Their names.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        pairs = ", ".join(f"{name!r}: (LOW, HIGH)" for name in self.columns[:_NAMES_SHOWN])
        more = ", ..." if len(self.columns) > _NAMES_SHOWN else ""
        super().__init__(
            f"bounds must be given for every column of numbers, got none for {listed(self.columns)}: add "
            f"bounds={{{pairs}{more}}}, or (LOW, HIGH) for all, from what everybody knows. A column of texts needs "
            "categories, one that is not learned from ignore. bounds_from_data=True makes bounds from the data, which "
            "no guarantee covers"
        )


def listed(names: Sequence[str]) -> str:
    """Names of columns for a sentence, the first of them if they are many."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


@dataclass(frozen=True)
class Reading:
    """Which column is what. All of it is chosen without looking at anybody's data.

    Attributes:
        user: Column of user ids, numbers or texts: whose row it is.
        label: Column that is learned.
        budget: Column of local budgets, per coordinate and round: numbers, or names of levels; None if there is none.
        levels: Budget of every level by name, if the column has names.
        bounds: LOW and HIGH of columns of numbers by name, of the label too where it is one; under ``*`` those of all
            others. They scale numbers in place of statistics of the data, which would not be private; what lies outside
            is clipped. There is no default: a column that has none is an error, whatever is in it.
        categories: All values of each column of texts.
        classes: Names of all classes, for classification; by default those that are found in the table, sorted: that
            there are such classes is taken as public then.
        task: ``classification``, or ``regression`` for real-valued labels (squared loss).
        ignore: Columns that are left out.
        max_rows: Of a person's rows the first so many are taken, at least 1.
        test_share: Share of people, in [0, 1), whose rows judge the model and train nothing, drawn by a keyed hash of
            the user id: no person's rows are split, and others' rows change nothing.
        seed: Key of that hash.
        bounds_from_data: Whether columns without bounds get the least and the largest value in the table. No guarantee
            covers what those tell, and the schema says so.
        made_bounds: Those values, by column, once they are known (`with_made_bounds`).
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
    bounds_from_data: bool = False
    made_bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        if truth("bounds_from_data", self.bounds_from_data) and ALL_OTHERS in self.bounds:
            got = self.bounds[ALL_OTHERS]
            raise ParameterError(
                f"bounds must be of columns by name beside bounds_from_data, got {got!r} for all others"
            )
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

    def unbounded(self, table: Table) -> tuple[str, ...]:
        """Columns of numbers that have no bounds, the label among them where it is a number."""
        numbers, _ = self._features(table)
        if ALL_OTHERS in self.bounds:
            return ()
        label = [self.label] if self.task == REGRESSION else []
        return tuple(name for name in [*numbers, *label] if name not in self.bounds and name not in self.made_bounds)

    def with_made_bounds(self, made: Mapping[str, Bounds]) -> "Reading":
        """The same, with bounds that were made from the data."""
        for name, (low, high) in made.items():
            if not low < high:
                raise ParameterError(f"bounds of column {name!r} must be given: all of its values are {low:g}")
        return replace(self, made_bounds=dict(made))

    def columns(self, table: Table) -> Columns:
        """The columns that are learned from.

        Raises:
            MissingBounds: If a column of numbers has none.
        """
        numbers, texts = self._features(table)
        missing = self.unbounded(table)
        if missing:
            raise MissingBounds(missing)
        categories = tuple(Category(name, tuple(map(str, self.categories[name]))) for name in texts)
        return Columns(tuple(self.number(name) for name in numbers), categories)

    def schema(self, columns: Columns, classes: Sequence[str]) -> Schema:
        """What is public about a table with these columns and classes."""
        is_regression = self.task == REGRESSION
        target = self.number(self.label) if is_regression else None
        levels = tuple((name, float(budget)) for name, budget in self.levels.items())
        known = () if is_regression else tuple(classes)
        return Schema(columns, self.label, self.task, known, target, levels, tuple(self.made_bounds))

    def number(self, name: str) -> Number:
        """A column of numbers with its bounds."""
        bounds = {**self.made_bounds, **self.bounds}.get(name, self.bounds.get(ALL_OTHERS))
        if bounds is None:
            raise MissingBounds([name])
        try:
            low, high = map(float, bounds)
        except (TypeError, ValueError):
            raise ParameterError(f"bounds of column {name!r} must be LOW and HIGH, got {bounds!r}") from None
        return Number(name, low, high)


def bounds_by_name(bounds: Mapping[str, Bounds] | Bounds | None) -> Mapping[str, Bounds]:
    """Bounds of columns by name; one pair is that of all."""
    if bounds is None:
        return {}
    return bounds if isinstance(bounds, Mapping) else {ALL_OTHERS: bounds}
