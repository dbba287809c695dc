"""Own tables from end to end: ``python -m benchmarks.own_tables [breast-cancer] [synthetic]``, one JSON object each.

Writes a table, trains on it by the command line, predicts, hands the coefficients to scikit-learn, and trains
scikit-learn's own logistic regression on the same people without privacy. What follows ``--`` goes to ``apes train``.
"""

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression as Sklearn
from sklearn.preprocessing import StandardScaler

from apes.cli.choices import Choices
from apes.data.table.people_rows import read_people
from apes.models.logistic import LogisticRegression
from apes.models.trained import Trained
from apes.terms.own_table import OwnTable
from apes.training.run_folder import RunFolder

_LEVELS = {"low": 0.1, "medium": 0.5, "high": 1.0}
_SHARES = (0.3, 0.5, 0.2)
console = Console(stderr=True)

# Upper ends of breast cancer's columns, each from 0: what such a measurement can be, in round numbers, and not the
# largest in the table. In threes: mean, standard error, worst.
_UPPER = {
    "radius": (40, 4, 50),
    "texture": (50, 5, 60),
    "perimeter": (250, 25, 300),
    "area": (3000, 500, 5000),
    "smoothness": (0.2, 0.04, 0.3),
    "compactness": (0.4, 0.2, 1.5),
    "concavity": (0.5, 0.4, 1.5),
    "concave points": (0.25, 0.06, 0.4),
    "symmetry": (0.4, 0.1, 0.8),
    "fractal dimension": (0.1, 0.03, 0.25),
}


@dataclass(frozen=True)
class Case:
    """A table to train on, and the options that say what is in it."""

    data: str
    options: dict[str, str]


def breast_cancer(folder: Path) -> Case:
    """569 people of one row and 30 numbers, two classes; privacy levels at random."""
    found = load_breast_cancer()
    names = [str(name) for name in found.feature_names]
    levels = np.random.default_rng(1).choice(list(_LEVELS), len(found.target), p=_SHARES)
    diagnoses = np.array(["malignant", "benign"])[found.target]
    with (folder / "patients.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", *names, "wish", "diagnosis"])
        for at, row in enumerate(found.data.tolist()):
            writer.writerow([f"p{at}", *row, levels[at], diagnoses[at]])
    uppers = (
        (f"{kind} {name}" if kind != "error" else f"{name} error", high)
        for name, ends in _UPPER.items()
        for kind, high in zip(("mean", "error", "worst"), ends, strict=True)
    )
    (folder / "bounds.csv").write_text("column,low,high\n" + "".join(f"{name},0,{high}\n" for name, high in uppers))
    options = {"user_column": "patient", "label_column": "diagnosis", "budget_column": "wish"}
    return Case(str(folder / "patients.csv"), {**options, "bounds": f"file:{folder / 'bounds.csv'}"})


def synthetic(folder: Path) -> Case:
    """5,000 people of 1 to 40 rows: 300 numbers around the centre of one of 12 classes, and a shift of their own."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 41, 5000)
    person = np.repeat(np.arange(5000), sizes)
    label = rng.integers(0, 12, person.size)
    centres, shifts = 0.5 + 0.045 * rng.normal(size=(12, 300)), 0.05 * rng.normal(size=(5000, 300))
    rows = centres[label] + shifts[person] + 0.25 * rng.normal(size=(person.size, 300))
    levels = rng.choice(list(_LEVELS), 5000, p=_SHARES)[person]
    np.savez(
        folder / "crowd.npz",
        features=rows.astype(np.float32),
        person=person,
        kind=np.array([f"kind {name}" for name in "abcdefghijkl"])[label],
        privacy=levels,
    )
    return Case(
        str(folder / "crowd.npz"), {"user_column": "person", "label_column": "kind", "budget_column": "privacy"}
    )


CASES: dict[str, Callable[[Path], Case]] = {"breast-cancer": breast_cancer, "synthetic": synthetic}


def apes(*arguments: str) -> dict[str, Any]:
    """Run a command and return what it says."""
    done = subprocess.run([sys.executable, "-m", "apes", *arguments, "--json"], stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def without_privacy(table: OwnTable) -> float:
    """Accuracy of scikit-learn's logistic regression, with a fitted scaler, on the same people's columns."""
    rows = read_people(table.data, table.reading)
    scaler = StandardScaler().fit(rows.features)
    model = Sklearn(max_iter=300).fit(scaler.transform(rows.features), rows.labels)
    return float(model.score(scaler.transform(rows.test_features), rows.test_labels))


def in_sklearn(folder: RunFolder, data: str) -> NDArray[Any]:
    """What the run's coefficients predict in scikit-learn."""
    schema = folder.schema
    if schema is None:
        raise ValueError(f"{folder.path} is not on a table")
    model = LogisticRegression(schema.columns.features, len(schema.classes))
    trained = Trained(model, folder.weights(), schema)
    predicted: NDArray[Any] = trained.to_sklearn().predict(trained.in_units(data))
    return predicted


def measure(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Train, predict, compare."""
    with tempfile.TemporaryDirectory() as place:
        case = CASES[name](Path(place))
        run, out = Path(place) / "run", Path(place) / "predictions.csv"
        levels = ",".join(f"{level}={budget}" for level, budget in _LEVELS.items())
        choices = [f"--{key.replace('_', '-')}={value}" for key, value in case.options.items()]
        result = apes("train", "--data", case.data, *choices, "--budget-levels", levels, *options, "--out", str(run))
        apes("predict", str(run), case.data, "--out", str(out))
        with out.open(newline="", encoding="utf-8") as file:
            found = [row["prediction"] for row in csv.DictReader(file)]
        folder = RunFolder.open(run)
        table = Choices.of(dict(folder.config["choices"])).people
        if not isinstance(table, OwnTable):
            raise ValueError(f"{case.data} was not taken for a table")
        return {
            "table": name,
            **{key: result[key] for key in ("users", "dimensions", "rounds", "accuracy", "seconds", "peak_memory_mb")},
            "scikit_learn_without_privacy": without_privacy(table),
            "epsilon": result["certified"]["epsilon"],
            "delta": result["certified"]["delta"],
            "by_level": {group["levels"][0]: group["epsilon"] for group in result["certified"]["by_budget"]},
            "rows": result["table"]["rows"],
            "largest_share_clipped": max(result["table"]["clipped"].values(), default=0.0),
            "scikit_learn_predicts_the_same": in_sklearn(folder, case.data).tolist() == found,
        }


def main() -> None:
    """Measure what was named, or everything."""
    given = sys.argv[1:]
    names, options = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    for name in names or CASES:
        console.print(f"{name} ...")
        print(json.dumps(measure(name, options)))


if __name__ == "__main__":
    main()
