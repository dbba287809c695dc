"""Who holds what: users with their data and their budgets, handed out in blocks."""

# long: one class, beside it every way to make it.

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.budgets import make_budgets
from apes.checks import finite, finite_float32, numbers, positive_array, whole
from apes.data import Dataset, partition
from apes.data.table.cells import as_they_are, by_text
from apes.data.table.opening import Source
from apes.data.table.people_rows import PeopleRows, TableFacts, read_people
from apes.data.table.reading import ALL_OTHERS, MOST_ROWS, TEST_SHARE, UNIT, Bounds, Reading
from apes.data.table.schema import CLASSIFICATION, Schema
from apes.data.torch_rows import stacked
from apes.data.user_ids import persons
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64

_MOST_CLASSES = 65536


@dataclass(frozen=True, eq=False)
class UserBlock:
    """Raw data of consecutive users; stays on the client's side.

    Attributes:
        first_user: Number of the first user of the block.
        budgets: Local budget epsilon of each user, per coordinate and round, in nats.
        features: Rows of all users' examples, user after user (float32).
        labels: Class of each row (unsigned integers), or its real-valued target (float32).
        offsets: User u of the block holds rows offsets[u] to offsets[u + 1].
    """

    first_user: int
    budgets: F64
    features: F32
    labels: NDArray[Any]
    offsets: I64


@dataclass(frozen=True, eq=False)
class Examples:
    """Public examples that a model is judged by.

    Attributes:
        features: Rows, as users have them.
        labels: The class or target of each.
    """

    features: F32
    labels: NDArray[Any]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: a model judged by others would have another accuracy."""
        return _digest(np.asarray(self.features), np.asarray(self.labels))


class Population(Protocol):
    """Anything that can hand out its users block by block.

    Contract:
        `block` gives the same users the same data whenever and on whichever thread it is asked; a user's budget does
        not depend on the user's data. It may have ``targets``, the largest central epsilon that each user allows over
        all rounds, which must not depend on data either: whoever would pass the own one is left out.

    It may also have ``part(start, stop)``, for workers elsewhere: a population that can be pickled, small if possible
    (where the data are, rather than the data), and answers ``block(s, t)`` for start <= s < t <= stop under the same
    numbers as this one does. A worker keeps its part for a whole run. Without it the population is sent whole.
    """

    @property
    def budgets(self) -> F64:
        """Local budgets of all users, per coordinate and round, each in (0, inf)."""

    @property
    def digest(self) -> str:
        """Text that tells these users with their data and budgets from any others; a resumed run compares it."""

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""


def part_of(population: Population, start: int, stop: int) -> Population:
    """Users start .. stop - 1 for a worker elsewhere, under the same numbers; everybody if there are no parts."""
    part = getattr(population, "part", None)
    return population if part is None else part(start, stop)


class KnownRows(Protocol):
    """People of whom is known what a model that fits them looks like: those of `People`, or of `apes.Partitions`."""

    @property
    def features(self) -> int:
        """Numbers of a row."""

    @property
    def classes(self) -> int:
        """Number of classes; raises where labels are real-valued."""

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""


class People:
    """Users whose rows lie in one array, user after user.

    Args:
        features: Rows; becomes float32.
        labels: Class of each row in [0, 65535], or real-valued target.
        offsets: User u holds rows offsets[u] to offsets[u + 1].
        budgets: Local budget of each user, in (0, inf).
        test: Public examples to judge a model by, or None.
        classes: Number of classes, more than any label; by default the largest label + 1, then taken as public.
        schema: What is public about the table that the rows come from, if they come from one: part of the terms.
        targets: The largest central epsilon that each user allows over all rounds, in (0, inf); or None.

    Attributes:
        facts: What was read of that table, or None.
    """

    facts: TableFacts | None = None

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        offsets: ArrayLike,
        budgets: ArrayLike,
        *,
        test: Examples | None = None,
        classes: int | None = None,
        schema: Schema | None = None,
        targets: ArrayLike | None = None,
    ) -> None:
        self._budgets = positive_array("budgets", budgets)
        users = self._budgets.size
        self.targets = None if targets is None else positive_array("targets", targets)
        if self.targets is not None and self.targets.size != users:
            raise ParameterError(f"targets must have one entry per user, {users}, got {self.targets.size}")
        # What is neither class nor target is refused below, in words about labels.
        starts, marks = numbers("offsets", offsets, "iu"), numbers("labels", labels, "iufUSO")
        rows = numbers("features", features, "biuf")
        if starts.shape != (users + 1,):
            raise ParameterError(f"offsets must have one entry more than the {users} budgets, got {starts.size}")
        if rows.ndim < 2 or marks.shape != rows.shape[:1]:
            raise ParameterError(f"labels must have one entry per row of features {rows.shape}, got {marks.shape}")
        if starts[0] != 0 or starts[-1] != marks.size or (np.diff(starts.astype(np.int64)) < 1).any():
            raise ParameterError("offsets must rise from 0 to the number of rows, by at least 1 per user")
        self._features = finite_float32("features", rows)
        self._labels, self._offsets = _as_labels(marks), starts.astype(np.int64)
        self.test, self.schema = test, schema
        self._classes = None if classes is None else _check_classes("labels", self._labels, classes)

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        budgets: ArrayLike | Mapping[Any, float] | str,
        users: ArrayLike | None = None,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        classes: int | None = None,
        targets: ArrayLike | Mapping[Any, float] | None = None,
        seed: int = 1,
    ) -> "People":
        """People from arrays with one entry per row.

        Args:
            features: Rows of numbers.
            labels: Class of each row from 0, or its real-valued target.
            budgets: One per row, equal within a user; or a mapping from user id to budget; or a law by name
                (`apes.make_budgets`), drawn with ``seed`` for the users in order of their ids.
            users: User id of each row, in any order, none missing; by default every row is a user.
            test: Features and labels of public examples to judge a model by, as people's rows and labels are.
            classes: Number of classes; by default the largest label + 1, which is taken as public then: one person's
                label may decide how many classes there are, and so how many weights.
            targets: The largest central epsilon that users allow, given like budgets; by default there are none.
            seed: Of the budgets' law, if one is named.
        """
        rows, marks = numbers("features", features, "biuf"), numbers("labels", labels)
        if rows.ndim < 2:
            raise ParameterError(f"features must be rows of numbers, got shape {rows.shape}")
        ids = np.arange(marks.size) if users is None else _ids(users)
        if ids.shape != rows.shape[:1]:
            raise ParameterError(f"users must have one entry per row of features {rows.shape}, got {ids.shape}")
        names, number = persons(ids)
        order = np.argsort(number, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(number))])
        own = _budgets_of(budgets, names, number, seed)
        limits = None if targets is None else _per_user("targets", targets, names, number)
        people = cls(rows[order], marks[order], offsets, own, classes=classes, targets=limits)
        people.test = None if test is None else people._examples(test)
        return people

    @classmethod
    def from_table(
        cls,
        source: Source,
        *,
        user: str,
        label: str,
        budget: str | None = None,
        budgets: Mapping[str, float] | str | None = None,
        bounds: Mapping[str, Bounds] | Bounds = UNIT,
        categories: Mapping[str, Sequence[str]] | None = None,
        classes: Sequence[str] | None = None,
        task: str = CLASSIFICATION,
        ignore: Sequence[str] = (),
        max_rows: int = MOST_ROWS,
        test_share: float = TEST_SHARE,
        seed: int = 1,
    ) -> "People":
        """People of a table: a CSV, Parquet or NPZ file, arrays by name, or a data frame.

        Args:
            source: The table; a file is read by how its name ends.
            user: Column of user ids: whose row it is.
            label: Column that is learned.
            budget: Column of local budgets, or of the names of levels, if there is one.
            budgets: With such a column, the budget of every level by name; else a mapping from user id to budget, or a
                law by name (`apes.make_budgets`), drawn with ``seed`` for the users in order of their ids.
            bounds: LOW and HIGH of columns by name, others under ``*``; or one pair for all. Numbers are scaled by
                these, never by statistics of the data.
            categories: All values of each column of texts.
            classes: Names of all classes; by default those that are found, which are taken as public then.
            task: ``classification``, or ``regression`` for real-valued labels (squared loss).
            ignore: Columns that are left out.
            max_rows: Of a person's rows the first so many are taken.
            test_share: Share of people, in [0, 1), whose rows judge the model and train nothing; how well it does on
                them is for the experimenter, and not private.
            seed: Of the test part and of the budgets' law.

        Raises:
            DataError: Where a cell is missing or cannot be read, in one line that names row and column.
        """
        by_name, texts = bounds_by_name(bounds), {} if categories is None else categories
        levels = levels_by_name(budget, budgets)
        reading = Reading(
            user, label, budget, levels, by_name, texts, classes, task, ignore, max_rows, test_share, seed
        )
        return cls.from_rows(read_people(source, reading), budgets=None if budget is not None else budgets, seed=seed)

    @classmethod
    def from_rows(
        cls, rows: PeopleRows, *, budgets: Mapping[Any, float] | str | None = None, seed: int = 1
    ) -> "People":
        """People of a table that was read; ``budgets`` by user id or by a law, where the table has none."""
        own = rows.budgets
        if own is None:
            if budgets is None:
                raise ParameterError("budget must name a column, or budgets a law or everybody's own; got neither")
            if isinstance(budgets, str) and budgets.startswith("file:"):
                raise ParameterError(f"budgets of a table must be in a column of it, or by a law, got {budgets!r}")
            by_name = budgets if isinstance(budgets, str) else by_text("budgets", budgets)
            own = _budgets_of(by_name, rows.names, np.arange(rows.names.size), seed)
        test = Examples(rows.test_features, _as_labels(rows.test_labels)) if rows.test_labels.size else None
        classes, parts = len(rows.schema.classes) or None, (rows.features, rows.labels, rows.offsets)
        people = cls(*parts, own, test=test, classes=classes, schema=rows.schema)
        people.facts = rows.facts
        return people

    @classmethod
    def from_torch(
        cls,
        dataset: Any,
        *,
        users: ArrayLike,
        budgets: ArrayLike | Mapping[Any, float] | str,
        test: Any = None,
        classes: int | None = None,
        seed: int = 1,
    ) -> "People":
        """People of a torch ``Dataset``, or of anything with ``len`` whose items are pairs of numbers and a label.

        Args:
            dataset: Item i is (x, y): x a tensor or array, all of one shape, y a class from 0 or a real-valued target.
            users: User id of every item, none missing.
            budgets: As for `from_arrays`.
            test: Another data set, of public examples to judge a model by, or None.
            classes: As for `from_arrays`: by default the largest label + 1, which is taken as public then.
            seed: Of the budgets' law, if one is named.
        """
        judges = None if test is None else stacked("test", test)
        rows, labels = stacked("dataset", dataset)
        return cls.from_arrays(rows, labels, budgets=budgets, users=users, test=judges, classes=classes, seed=seed)

    @classmethod
    def from_dataset(
        cls, dataset: Dataset, *, users: int, budgets: ArrayLike | str, split: str = "iid", seed: int = 1
    ) -> "People":
        """Made-up people: a data set's training images spread over users, each with a budget.

        Args:
            dataset: The images; its test part judges the model.
            users: How many people, at most one per image.
            budgets: One per user, or a law by name (`apes.make_budgets`).
            split: How images are spread: ``iid``, ``label``, ``dirichlet:ALPHA`` (`apes.partition`).
            seed: Of split and budgets.
        """
        order, offsets = partition(dataset.train_labels, users, split, seed, dataset.classes)
        own = make_budgets(budgets, users, seed) if isinstance(budgets, str) else budgets
        test = Examples(dataset.test_images, dataset.test_labels)
        images, labels = dataset.train_images[order], dataset.train_labels[order]
        return cls(images, labels, offsets, own, test=test, classes=dataset.classes)

    @property
    def budgets(self) -> F64:
        """Local budgets of all users."""
        return self._budgets

    @property
    def features(self) -> int:
        """Numbers of a row."""
        return int(np.prod(self._features.shape[1:]))

    @property
    def classes(self) -> int:
        """Number of classes."""
        if not np.issubdtype(self._labels.dtype, np.integer):
            raise ParameterError(f"labels must be classes, got real-valued targets ({self._labels.dtype})")
        return int(self._labels.max()) + 1 if self._classes is None else self._classes

    @property
    def digest(self) -> str:
        """SHA-256 of everything the users hold, budgets and targets included."""
        targets = () if self.targets is None else (self.targets,)
        return _digest(self._features, self._labels, self._offsets, self._budgets, *targets)

    def _examples(self, test: tuple[ArrayLike, ArrayLike]) -> Examples:
        """Public examples, if they are as people's own."""
        if not isinstance(test, tuple | list) or len(test) != 2:
            raise ParameterError(f"test must be a pair of features and labels, got {type(test).__name__}")
        rows, labels = finite_float32("test", test[0]), numbers("test", test[1])
        if rows.shape[1:] != self._features.shape[1:]:
            raise ParameterError(f"test must have rows of shape {self._features.shape[1:]}, got {rows.shape[1:]}")
        if not rows.size or labels.shape != rows.shape[:1]:
            raise ParameterError(f"test must have one label per row, and a row, got {rows.shape} and {labels.shape}")
        if np.issubdtype(self._labels.dtype, np.floating):
            return Examples(rows, _as_labels(labels.astype(np.float64)))
        if not np.issubdtype(labels.dtype, np.integer):
            raise ParameterError(f"test must have classes as labels, as people have, got {labels.dtype}")
        _check_classes("test labels", labels, self.classes)
        return Examples(rows, _as_labels(labels))

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1, without copying their data."""
        users = self._budgets.size
        if not 0 <= start < stop <= users:
            raise ParameterError(f"start and stop must be in order within [0, {users}], got {start}, {stop}")
        offsets = self._offsets[start : stop + 1]
        rows = slice(offsets[0], offsets[-1])
        budgets, features, labels = self._budgets[start:stop], self._features[rows], self._labels[rows]
        return UserBlock(start, budgets, features, labels, offsets - offsets[0])

    def part(self, start: int, stop: int) -> "PeoplePart":
        """Users start .. stop - 1 for a worker elsewhere, under the same numbers: their rows and no others."""
        return PeoplePart(self.block(start, stop))


@dataclass(frozen=True, eq=False)
class PeoplePart:
    """Some of the users of `People`, under the numbers that they have there."""

    users: UserBlock

    @property
    def budgets(self) -> F64:
        """Local budgets of these users."""
        return self.users.budgets

    @property
    def digest(self) -> str:
        """SHA-256 of what these users hold, and of their numbers."""
        own = self.users
        return _digest(np.array([own.first_user]), own.features, own.labels, own.offsets, own.budgets)

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1, without copying their data."""
        own, first = self.users, self.users.first_user
        if not first <= start < stop <= first + own.budgets.size:
            within = f"[{first}, {first + own.budgets.size}]"
            raise ParameterError(f"start and stop must be in order within {within}, got {start}, {stop}")
        offsets = own.offsets[start - first : stop - first + 1]
        rows = slice(offsets[0], offsets[-1])
        budgets = own.budgets[start - first : stop - first]
        return UserBlock(start, budgets, own.features[rows], own.labels[rows], offsets - offsets[0])


def schema_of(people: Population) -> Schema | None:
    """What is public about the table that people are of, where they are of one."""
    schema = getattr(people, "schema", None)
    return schema if isinstance(schema, Schema) else None


def bounds_by_name(bounds: Mapping[str, Bounds] | Bounds) -> Mapping[str, Bounds]:
    """Bounds of columns by name; one pair is that of all."""
    return bounds if isinstance(bounds, Mapping) else {ALL_OTHERS: bounds}


def levels_by_name(budget: str | None, budgets: Mapping[str, float] | str | None) -> dict[str, float]:
    """The budget of every level, where a column ``budget`` has levels; none where it has numbers, or there is none."""
    if budget is not None and not isinstance(budgets, Mapping | None):
        raise ParameterError(f"budgets must be levels by name, or left out, beside a column; got {budgets!r}")
    return {} if budget is None or budgets is None else by_text("budgets", budgets)


def budgets_by_name(budgets: Mapping[Any, float], names: NDArray[Any]) -> F64:
    """Budgets of users in order of their names."""
    return _per_user("budgets", budgets, names, np.arange(names.size))


def _digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of arrays: kind, shape and content."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _ids(users: ArrayLike) -> NDArray[Any]:
    """User ids as they are; one per row is checked later."""
    try:
        return as_they_are(users)
    except ValueError:
        raise ParameterError("users must be ids, one per row, got lists of different lengths") from None


def _check_classes(name: str, labels: NDArray[Any], classes: int) -> int:
    """Return the number of classes if all labels are less."""
    whole("classes", classes, 1, _MOST_CLASSES)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(f"classes must be left out: {name} are real-valued; got {classes!r}")
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        must = f"{name} must be in [0, {classes - 1}], there being {classes} classes"
        raise ParameterError(f"{must}, got {labels.min()} to {labels.max()}")
    return int(classes)


def _as_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Classes as the smallest unsigned integers that hold them, real-valued targets as float32."""
    if np.issubdtype(labels.dtype, np.floating):
        finite("labels", labels)
        return np.ascontiguousarray(labels, dtype=np.float32)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ParameterError(f"labels must be classes or real-valued targets, got {labels.dtype}")
    if labels.size and (labels.min() < 0 or labels.max() >= _MOST_CLASSES):
        raise ParameterError(f"labels must be in [0, {_MOST_CLASSES - 1}], got {labels.min()} to {labels.max()}")
    kind = np.uint8 if not labels.size or labels.max() < 256 else np.uint16
    return np.ascontiguousarray(labels, dtype=kind)


def _budgets_of(
    budgets: ArrayLike | Mapping[Any, float] | str, names: NDArray[Any], number: NDArray[np.intp], seed: int
) -> F64:
    """Budgets of users in order of their names."""
    if isinstance(budgets, str):
        return make_budgets(budgets, names.size, seed)
    return _per_user("budgets", budgets, names, number)


def _per_user(what: str, values: ArrayLike | Mapping[Any, float], names: NDArray[Any], number: NDArray[np.intp]) -> F64:
    """One positive number per user, in order of their names: from one per row, or from a mapping."""
    if isinstance(values, Mapping):
        missing = [name for name in names.tolist() if name not in values]
        if missing:
            raise ParameterError(f"{what} must name every user, got none for {missing[0]!r}")
        return positive_array(what, [values[name] for name in names.tolist()])
    by_row = positive_array(what, values)
    if by_row.shape != number.shape:
        raise ParameterError(f"{what} must have one entry per row, {number.size}, got {by_row.size}")
    own = np.empty(names.size)
    own[number] = by_row
    differs = own[number] != by_row
    if differs.any():
        row = int(np.argmax(differs))
        name, (first, second) = names[number[row]], sorted({float(own[number[row]]), float(by_row[row])})
        raise ParameterError(f"{what} must be equal within a user, got {first!r} and {second!r} for {name!r}")
    return own
