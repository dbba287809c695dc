"""A table of people with their rows, numbers, texts and levels of privacy, and how it is named to commands."""

import csv

import numpy as np

BOUNDS = {"age": (0.0, 100.0), "height": (100.0, 200.0)}
CITIES, CLASSES, BUDGET_LEVELS = ("Bonn", "Kyiv", "Lima"), ("ill", "unsure", "well"), {"low": 0.3, "high": 0.9}
HEADER = ["person", "age", "height", "city", "privacy", "diagnosis"]
OPTIONS = [
    *("--user-column", "person", "--label-column", "diagnosis", "--bounds", "age=0:100,height=100:200"),
    *("--categories", "city=Bonn|Kyiv|Lima", "--classes", "ill,unsure,well"),
]
WITH_LEVELS = ["--budget-column", "privacy", "--budget-levels", "low=0.3,high=0.9"]
SERVERS = ["--shuffler", "here:1", "--superlink", "there:2", "--nodes", 5, "--smallest-cohort", 5, "--largest-card", 3]
LIMITS = ["--smallest-budget", 0.3, "--largest-budget", 0.9, "--delta", 0.01, "--rounds", 2, "--levels", 16]
LIMITS += ["--allow-no-protection"]
WITHOUT_DELTA = [word for word in LIMITS if word not in ("--delta", 0.01)]


def rows_of(users, seed=0):
    """One to four rows of everybody, in a mixed order; some numbers lie outside their bounds."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in users:
        level = "high" if user % 2 else "low"
        for _ in range(rng.integers(1, 5)):
            city, label = (names[rng.integers(len(names))] for names in (CITIES, CLASSES))
            rows.append([f"p{user:02d}", f"{rng.normal(50, 30):.2f}", rng.integers(90, 210), city, level, label])
    return [rows[at] for at in rng.permutation(len(rows))]


def write_table(path, rows, header=HEADER):
    """A table with these columns, in this order."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([dict(zip(HEADER, row, strict=True)).get(name, "unknown") for name in header] for row in rows)
    return path
