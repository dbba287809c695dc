"""The parts of a reproduction: each is worked out once, kept as a file, and found there again after a kill."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from apes.accounting.account import published_figures
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certified_epsilon
from apes.accounting.lower import lower_epsilon
from apes.analyzer.calibrator import mean_report
from apes.analyzer.expected import continuous_response
from apes.budgets import make_budgets
from apes.client.clip import clip_updates
from apes.data import Dataset, load
from apes.errors import DataError
from apes.mathematics.randomness import SimulationSource
from apes.paper.frontier.runs import train_by_trusted_server, train_within_target
from apes.paper.task import task_of
from apes.storage.files import write_bytes
from apes.storage.version import __version__
from apes.training.keys import noise_key
from apes.training.round import run_round
from apes.training.train import train

Values = dict[str, Any]
_USERS_AT_ONCE = 128


@dataclass(frozen=True)
class Part:
    """Something to work out: its kind, one of `KINDS`, and what it is about, as plain values."""

    kind: str
    arguments: Values

    @property
    def name(self) -> str:
        """Name of its file; another version of the software makes it anew."""
        text = json.dumps([self.kind, self.arguments, __version__], sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def weight(self) -> float:
        """About how much work it is, in seconds at full size."""
        if self.kind in ("train", "within-target", "trusted-server"):
            size = float(self.arguments["users"] * self.arguments["rounds"]) / 400_000
            return 0.1 + 12 * size * (2 if self.arguments.get("framework", "apes").startswith("s-apes") else 1)
        return 0.3 + float(self.arguments.get("users", 0)) / 1e5


class Workshop:
    """Works parts out and keeps them in a folder; ``data_dir`` is where the data set's files are, or None."""

    def __init__(self, folder: Path, data_dir: Path | None) -> None:
        self._folder, self._data_dir = folder / "parts", data_dir

    def is_done(self, part: Part) -> bool:
        """Whether the part is kept already."""
        return self._path(part).exists()

    def work_out(self, part: Part, tell: Callable[[float], None] = lambda share: None) -> None:
        """Work a part out and keep it; ``tell`` is called with the share that is done, in [0, 1]."""
        began = time.perf_counter()
        values = KINDS[part.kind](self, part.arguments, tell)
        kept: Values = {"kind": part.kind, "arguments": part.arguments, "version": __version__, "values": values}
        kept["seconds"] = time.perf_counter() - began
        write_bytes(self._path(part), json.dumps(kept).encode())

    def result(self, part: Part) -> Values:
        """What was worked out."""
        return dict(self._kept(part)["values"])

    def seconds(self, part: Part) -> float:
        """How long it took."""
        return float(self._kept(part)["seconds"])

    def dataset(self, name: str, normalise: str) -> Dataset:
        """A data set, loaded once."""
        return _load(name, data_dir=self._data_dir, normalise=normalise)

    def _kept(self, part: Part) -> Values:
        path = self._path(part)
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error}); remove it and run the command again") from None

    def _path(self, part: Part) -> Path:
        return self._folder / f"{part.name}.json"


_load = lru_cache(maxsize=2)(load)


def _train(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    """Train a model; the certified guarantee of the run is that of its plan."""
    task = task_of(arguments, workshop.dataset)
    rounds = task.plan.terms.rounds
    # Continuous reports are added up, not permuted: the same means in half the time.
    how: Values = {"features": task.features, "only_sums": True}
    result = train(task.model, task.people, task.plan, after_round=lambda run: tell(run.rounds / rounds), **how)
    return {
        "accuracy": result.accuracy,
        "loss": result.metrics[-1].loss,
        "accuracy_by_round": [entry.accuracy for entry in result.metrics],
        "data": task.source,
    }


def _within_target(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    return train_within_target(task_of(arguments, workshop.dataset), tell, finds_cap=arguments["finds_cap"])


def _trusted_server(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    return train_by_trusted_server(task_of(arguments, workshop.dataset), tell)


def _bounds(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    """Every bound per coordinate for one law and number of users; published ones at delta_s, ours at delta_c."""
    budgets = make_budgets(arguments["budgets"], arguments["users"], arguments["seed"])
    delta = math.tanh(float(budgets.max()) / 2) * arguments["delta_s"]
    published = published_figures(budgets, arguments["delta_s"], 1)
    return {
        "certified": certified_epsilon(Exposure(budgets, 1), delta),
        "certified_continuous": certified_epsilon(Exposure(budgets, 1, None), delta),
        "lower": lower_epsilon(budgets, delta, 256),
        "published": {name: value for name, value in published.items() if not name.startswith("user_")},
        "largest": float(budgets.max()),
        "smallest": float(budgets.min()),
    }


def _user_level(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    """Certified user-level figures of a law, one round and all rounds."""
    budgets = make_budgets(arguments["budgets"], arguments["users"], arguments["seed"])
    exposure = Exposure(budgets, arguments["dimensions"], top_b_first=arguments.get("top_b_first"))
    figures = [certified_epsilon(exposure, arguments["delta"], rounds) for rounds in (1, arguments["rounds"])]
    return {"round": figures[0], "total": figures[1]}


def _calibration(workshop: Workshop, arguments: Values, tell: Callable[[float], None]) -> Values:
    """Mean report less the expected report of the mean update, coordinate by coordinate, in the first round."""
    task = task_of(arguments, workshop.dataset)
    plan, model, people = task.plan, task.model, task.people
    source = SimulationSource(noise_key(plan.seed), 1)
    batch = run_round(plan.terms, model, model.start(), people, source)
    mean, weights, users = np.zeros(model.dimensions), model.start().astype(np.float32), batch.budgets.size
    for start in range(0, users, _USERS_AT_ONCE):
        block = people.block(start, min(start + _USERS_AT_ONCE, users))
        mean += clip_updates(model.updates(weights, block), plan.terms.clip).sum(axis=0, dtype=np.float64) / users
    inputs, expected, _ = continuous_response(batch.budgets, plan.terms.clip)
    reported = mean_report(batch)
    error = reported - np.interp(mean, inputs, expected)
    counts, edges = np.histogram(error, 61)
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "mean": float(error.mean()),
        "deviation": float(error.std()),
        "largest_report": float(np.abs(reported).max()),
        "data": task.source,
    }


KINDS: dict[str, Callable[[Workshop, Values, Callable[[float], None]], Values]] = {
    "train": _train,
    "bounds": _bounds,
    "user-level": _user_level,
    "calibration": _calibration,
    "within-target": _within_target,
    "trusted-server": _trusted_server,
}
