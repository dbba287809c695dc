"""Small tables for tests, in every form that one can bring."""

import csv

import numpy as np

HEADER = ["user", "age", "city", "privacy", "outcome"]
ROWS = [
    ["u2", "30", "Ulm", "low", "ill"],
    ["u1", "60", "Bonn", "high", "well"],
    ["u2", "45", "Bonn", "low", "well"],
    ["u3", "0", "Ulm", "high", "ill"],
    ["u2", "120", "Ulm", "low", "ill"],
    ["u4", "90", "Bonn", "low", "well"],
]
CHOICES = {
    "user": "user",
    "label": "outcome",
    "budget": "privacy",
    "budgets": {"low": 0.1, "high": 1.0},
    "bounds": {"age": (0, 120)},
    "categories": {"city": ["Bonn", "Ulm"]},
    "test_share": 0.0,
}


def write_csv(path, rows=ROWS, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def columns(rows=ROWS, header=HEADER):
    """The same as arrays by name, ages as numbers."""
    table = {name: np.array([row[at] for row in rows]) for at, name in enumerate(header)}
    return table | {"age": table["age"].astype(np.float64)}
