"""Pieces of files: rows of whole people that are read together, as few as the file's order of rows allows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apes.data.partitions.files import PartFile
from apes.mathematics.arrays import I64, Bools

FEWEST_ROWS = 1 << 16
"""Of a piece: smaller ones cost more to open than to read."""


@dataclass(frozen=True)
class Piece:
    """Rows of a file that hold all that some people have, and nothing of others.

    Attributes:
        file: The file.
        start, stop: Its rows, from 0.
        users: How many of the people train.
        held: Rows that these have, of each the first so many that count.
    """

    file: PartFile
    start: int
    stop: int
    users: int
    held: int


@dataclass(frozen=True, eq=False)
class Spans:
    """Where the people of a file are in it, in order of their ids.

    Attributes:
        first, last: First and last row of each person, from 0.
        trains: Who trains.
        held: How many rows count, of each person.
    """

    first: I64
    last: I64
    trains: Bools
    held: I64


def cut(file: PartFile, spans: Spans, group_ends: Sequence[int], fewest: int) -> list[Piece]:
    """Cut a file into pieces, in order of their people's ids.

    Where rows come in the order of ids, a piece is little more than a row group, which is what a file is read by; else
    the whole file is one. No piece but the last has fewer rows than ``fewest``.
    """
    # Between two persons there may be a cut if nobody of those before has a row after one of those behind.
    reach, begin = np.maximum.accumulate(spans.last), np.minimum.accumulate(spans.first[::-1])[::-1]
    cuts = np.flatnonzero(reach[:-1] < begin[1:]) + 1
    chosen, rows = [0], int(group_ends[-1])
    starts = begin[cuts]
    while chosen[-1] < spans.first.size:
        start = 0 if chosen[-1] == 0 else int(begin[chosen[-1]])
        end_of_group = next(end for end in group_ends if end > start)
        at = int(np.searchsorted(starts, max(end_of_group, start + fewest)))
        chosen.append(int(cuts[at]) if at < cuts.size else spans.first.size)
    edges = [0 if user == 0 else rows if user == spans.first.size else int(begin[user]) for user in chosen]
    pieces = []
    for at in range(len(chosen) - 1):
        own = slice(chosen[at], chosen[at + 1])
        trains = spans.trains[own]
        pieces.append(Piece(file, edges[at], edges[at + 1], int(trains.sum()), int(spans.held[own][trains].sum())))
    return pieces
