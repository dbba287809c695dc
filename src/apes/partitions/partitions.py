"""All people of a partitioned table: opened file by file, without anybody's rows."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from apes.budgets import make_budgets
from apes.checks import whole
from apes.data.partitions.cache import PIECES
from apes.data.partitions.files import Files
from apes.data.partitions.opened import Opened, open_partitions
from apes.data.partitions.piece_rows import read_piece
from apes.data.table.chunk import Progress
from apes.data.table.people_rows import TableFacts, clipped_shares
from apes.data.table.reading import MOST_ROWS, TEST_SHARE, Bounds, Reading, bounds_by_name
from apes.data.table.schema import CLASSIFICATION, Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.partitions.part import CACHE_MB, Part
from apes.people.own_numbers import budgets_beside, budgets_by_name, levels_beside
from apes.population import Examples, UserBlock


class Partitions:
    """People of a table in many Parquet files, each of whole people; made by `Partitions.open`.

    They are numbered file after file, files by their first id, and within a file in order of their ids. Where ids rise
    from file to file, that is the order of `People.from_table` of one table with all rows, and so is the model, to the
    last bit.

    Memory: about 8 bytes per person; a process keeps at most ``cache_mb`` of encoded rows, beside the last two pieces
    of each thread and what reading a piece takes, one at a time (`apes.data.partitions.piece_rows.read_piece`). A piece
    is about a row group where a file's rows come in the order of ids, else a file.

    Attributes:
        digest: SHA-256 of all files, of how they are read, and of the budgets.
        schema: What is public about the table.
        targets: None: a table has no targets.
    """

    targets: F64 | None = None

    def __init__(self, opened: Opened, budgets: F64, cache_mb: int = CACHE_MB) -> None:
        whole("cache_mb", cache_mb, 0, 1 << 30)
        self.schema: Schema = opened.encoding.schema
        self.digest = hashlib.sha256(f"{opened.digest} {_sha256(budgets)}".encode()).hexdigest()
        first = np.array([0, *accumulate(piece.users for piece in opened.pieces)][:-1], dtype=np.int64)
        everybody = (0, budgets.size, budgets, self.digest, opened.pieces, first, opened.encoding)
        self._all, self._facts = Part(*everybody, cache_mb), opened.facts
        self._test: Examples | None = None

    @classmethod
    def open(
        cls,
        source: Files,
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
        cache_mb: int = CACHE_MB,
    ) -> "Partitions":
        """Open a folder of Parquet files, a pattern of their names, or a list of them.

        Users, budgets and, unless ``classes`` are given, labels are read, file by file; nobody's rows.

        Args:
            source: Folder, pattern (``folder/*.parquet``) or files. All that a person has is in one of them.
            user: Column of user ids; this and all that follows as for `People.from_table`.
            label: Column that is learned.
            budget: Column of local budgets, or of the names of levels, if there is one.
            budgets: With such a column, the budget of every level by name; else by user id, or a law by name.
            bounds: LOW and HIGH of columns by name, others under ``*``; or one pair for all. Every column of numbers
                needs some.
            bounds_from_data: Whether columns without bounds get the least and the largest value in the files, which
                takes reading all of these columns, and which no guarantee covers.
            categories: All values of each column of texts.
            classes: Names of all classes; by default those that are found, which are taken as public then.
            task: ``classification`` or ``regression``.
            ignore: Columns that are left out.
            max_rows: Of a person's rows the first so many are taken.
            test_share: Share of people, in [0, 1), whose rows judge the model and train nothing. Of many as many are
                asked as 256 MB of encoded rows hold.
            seed: Of the test part and of the budgets' law.
            cache_mb: Encoded rows that a process keeps, in MB; what does not fit is read again every round.

        Raises:
            DataError: If a file is missing, damaged, empty or of other columns than the first, a cell is missing or
                cannot be read, or somebody is in two files; in one line that names the file.
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
        return cls.of(source, reading, None if budget is not None else budgets, cache_mb=cache_mb)

    @classmethod
    def of(
        cls,
        source: Files,
        reading: Reading,
        budgets: Mapping[Any, float] | str | None = None,
        *,
        cache_mb: int = CACHE_MB,
        progress: Progress | None = None,
    ) -> "Partitions":
        """Open files by how they are to be read; ``budgets`` by user id or by a law, where they have none."""
        beside = "" if reading.budget is not None else budgets_beside(budgets)
        by_name = None if isinstance(beside, str) else partial(budgets_by_name, beside)
        opened = open_partitions(source, reading, by_name, progress)
        own = make_budgets(str(beside), opened.facts.users, reading.seed) if opened.budgets is None else opened.budgets
        return cls(opened, own, cache_mb)

    @property
    def budgets(self) -> F64:
        """Local budgets of all who train."""
        return self._all.budgets

    @property
    def features(self) -> int:
        """Numbers of a row."""
        return self.schema.columns.features

    @property
    def classes(self) -> int:
        """Number of classes."""
        if not self.schema.classes:
            raise ParameterError("labels must be classes, got real-valued targets (float32)")
        return len(self.schema.classes)

    @property
    def facts(self) -> TableFacts:
        """What was read; how much was clipped is known once the test part was read."""
        return self._facts

    @property
    def test(self) -> Examples | None:
        """Rows of those who judge, or None if nobody does: read when first asked for, from all files once."""
        if self._test is None and self._facts.test_users:
            self.read_test()
        return self._test

    def read_test(self, progress: Progress | None = None) -> None:
        """Read the test part; that reads and checks everybody's rows, and keeps those for which there is room."""
        if not self._facts.test_users:
            return
        own, found, total = self._all, [], sum(piece.stop - piece.start for piece in self._all.pieces)
        clipped: dict[str, int] = {}
        done = 0
        for piece in own.pieces:
            rows, judging = read_piece(piece, own.encoding)
            PIECES.keep(own.encoding.key(piece), own.cache_mb << 20, rows)
            found.append(judging)
            clipped = {name: clipped.get(name, 0) + count for name, count in judging.clipped.items()}
            done += piece.stop - piece.start
            if progress is not None:
                progress(done, total)
        features, labels = (np.concatenate([getattr(part, name) for part in found]) for name in ("features", "labels"))
        self._test = Examples(features, labels) if labels.size else None
        self._facts = replace(self._facts, clipped=clipped_shares(clipped, total))

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1; their rows are read if this process does not have them."""
        return self._all.block(start, stop)

    def part(self, start: int, stop: int) -> Part:
        """Users start .. stop - 1 under their own numbers: small, and can be sent to a worker, who reads the rows."""
        return self._all.part(start, stop)

    def __getstate__(self) -> dict[str, Any]:
        """Without the test part: whoever judges has it."""
        return {**vars(self), "_test": None}


def _sha256(budgets: F64) -> str:
    return hashlib.sha256(budgets.astype("<f8").tobytes()).hexdigest()
