"""People, and every way to make them: of arrays, a table, a torch data set, or made up from images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apes.budgets import make_budgets
from apes.checks import numbers
from apes.data import Dataset, partition
from apes.data.table.opening import Source
from apes.data.table.people_rows import PeopleRows, read_people, who_judges
from apes.data.table.reading import MOST_ROWS, TEST_SHARE, Bounds, Reading, bounds_by_name
from apes.data.table.schema import CLASSIFICATION
from apes.data.torch_rows import stacked
from apes.data.user_ids import given_ids, persons
from apes.errors import ParameterError
from apes.people.in_memory import InMemory
from apes.people.labels import as_labels, public_examples
from apes.people.own_numbers import budgets_beside, budgets_of, levels_beside, per_user
from apes.population import Examples


class People(InMemory):
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
        test_share: float = 0.0,
        seed: int = 1,
    ) -> "People":
        """People from arrays with one entry per row.

        Args:
            features: Rows of numbers.
            labels: Class of each row from 0, or its real-valued target.
            budgets: One per row, equal within a user; or a mapping from user id to budget; or a law by name
                (`apes.make_budgets`), drawn with ``seed`` for the users in order of their ids.
            users: User id of each row, in any order, none missing; by default every row is a user.
            test: Features and labels of public examples to judge a model by, as people's rows and labels are. Without
                them and without a share nothing judges, and there is no accuracy.
            classes: Number of classes; by default the largest label + 1, which is taken as public then: one person's
                label may decide how many classes there are, and so how many weights.
            targets: The largest central epsilon that users allow, given like budgets; by default there are none.
            test_share: Share of the people, in [0, 1), whose rows judge the model and train nothing, drawn by a keyed
                hash of the ids as for `from_table`. 0 by default: who brings arrays has split them.
            seed: Of the test part, and of the budgets' law, if one is named.

        Raises:
            ParameterError: If something does not fit the arrays, or there is both a ``test`` and a ``test_share``.
        """
        if test is not None and test_share != 0:
            raise ParameterError(f"test_share must be 0 beside test, which judges; got {test_share!r}")
        rows, marks = numbers("features", features, "biuf"), numbers("labels", labels)
        if rows.ndim < 2:
            raise ParameterError(f"features must be rows of numbers, got shape {rows.shape}")
        ids = np.arange(marks.size) if users is None else given_ids(users)
        if ids.shape != rows.shape[:1]:
            raise ParameterError(f"users must have one entry per row of features {rows.shape}, got {ids.shape}")
        names, number = persons(ids)
        judges = who_judges(names, test_share, seed)
        order = np.argsort(number, kind="stable")
        is_judging = judges[number[order]]
        train, judging = order[~is_judging], order[is_judging]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(number)[~judges])])
        if judging.size:
            test = rows[judging], marks[judging]
            if classes is None and np.issubdtype(marks.dtype, np.integer):
                # Of everybody's labels: a class that only judges have is one, too.
                classes = int(marks.max()) + 1
        own = budgets_of(budgets, names, number, seed, ~judges)
        limits = None if targets is None else per_user("targets", targets, names, number, ~judges)
        people = cls(rows[train], marks[train], offsets, own, classes=classes, targets=limits)
        if test is not None:
            is_real = people._labels.dtype.kind == "f"
            people.test = public_examples(test, people._features, None if is_real else people.classes)
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
        bounds: Mapping[str, Bounds] | Bounds | None = None,
        bounds_from_data: bool = False,
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
                these, never by statistics of the data. Every column of numbers needs some: what is not known of it by
                everybody must not be looked up in the data.
            bounds_from_data: Whether columns without bounds get the least and the largest value in the table. No
                guarantee covers what those tell; schema, guarantee and report say so.
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
            ParameterError: If a choice does not fit the table, or a column of numbers has no bounds.
        """
        by_name, texts = bounds_by_name(bounds), {} if categories is None else categories
        levels = levels_beside(budget, budgets)
        reading = Reading(
            user,
            label,
            budget,
            levels,
            by_name,
            texts,
            classes,
            task,
            ignore,
            max_rows,
            test_share,
            seed,
            bounds_from_data,
        )
        return cls.from_rows(read_people(source, reading), budgets=None if budget is not None else budgets, seed=seed)

    @classmethod
    def from_rows(
        cls, rows: PeopleRows, *, budgets: Mapping[Any, float] | str | None = None, seed: int = 1
    ) -> "People":
        """People of a table that was read; ``budgets`` by user id or by a law, where the table has none."""
        own = rows.budgets
        if own is None:
            own = budgets_of(budgets_beside(budgets), rows.names, np.arange(rows.names.size), seed)
        test = Examples(rows.test_features, as_labels(rows.test_labels)) if rows.test_labels.size else None
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
        test_share: float | None = None,
        seed: int = 1,
    ) -> "People":
        """People of a torch ``Dataset``, or of anything with ``len`` whose items are pairs of numbers and a label.

        Args:
            dataset: Item i is (x, y): x a tensor or array, all of one shape, y a class from 0 or a real-valued target.
            users: User id of every item, none missing.
            budgets: As for `from_arrays`.
            test: Another data set, of public examples to judge a model by; or None, where some of the people judge.
            classes: As for `from_arrays`: by default the largest label + 1, which is taken as public then.
            test_share: Share of the people, in [0, 1), whose items judge the model and train nothing, as for
                `from_table`: 0.2 by default, and 0 beside a ``test``.
            seed: Of the test part, and of the budgets' law, if one is named.
        """
        if test_share is None:
            test_share = TEST_SHARE if test is None else 0.0
        judges = None if test is None else stacked("test", test)
        rows, labels = stacked("dataset", dataset)
        return cls.from_arrays(
            rows, labels, budgets=budgets, users=users, test=judges, classes=classes, test_share=test_share, seed=seed
        )

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
