"""Partitioned tables for tests: people spread over Parquet files."""

import numpy as np
import pytest

CHOICES = {"user": "user", "label": "y", "budget": "e", "bounds": (0, 1)}


def crowd(users=300, most=4, seed=1):
    """A table of people with 1 to ``most`` rows each, in order of their ids, as arrays by name."""
    rng = np.random.default_rng(seed)
    number = np.repeat(np.arange(users), rng.integers(1, most + 1, users))
    own = 0.1 + rng.random(users)
    return {
        "user": np.array([f"p{user:05d}" for user in number]),
        "x": rng.uniform(-0.1, 1.1, number.size),
        "city": np.array(["Bonn", "Ulm"])[rng.integers(0, 2, number.size)],
        "e": own[number],
        "y": rng.integers(0, 3, number.size),
    }


def rows_of(table, chosen):
    return {name: values[chosen] for name, values in table.items()}


def write_parquet(path, table, **options):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(dict(table)), path, **options)
    return path


def write_parts(folder, table, files=4, *, by="range", shuffled=False, **options):
    """Spread people over files: by ranges of their ids, or dealt out; rows in the table's order, or in any."""
    folder.mkdir(exist_ok=True)
    names, person = np.unique(table["user"], return_inverse=True)
    home = person * files // names.size if by == "range" else person % files
    rng = np.random.default_rng(7)
    for at in range(files):
        chosen = np.flatnonzero(home == at)
        chosen = rng.permutation(chosen) if shuffled else chosen
        # Names of files in another order than that of the people in them.
        write_parquet(folder / f"part-{files - 1 - at}.parquet", rows_of(table, chosen), **options)
    return folder
