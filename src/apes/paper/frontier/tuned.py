"""Settings that were searched for, for both sides of the frontier alike; kept beside this file, a file per data set.

``python -m benchmarks.frontier_settings`` makes them (`apes.paper.frontier.search`).
"""

import json
from pathlib import Path
from typing import Any

from apes.paper.frontier.search import Choices

FOLDER = Path(__file__).parent


def path_of(data: str) -> Path:
    """Where the settings for a data set are kept, if there are any."""
    return FOLDER / f"tuned-{data}.json"


def tuned(data: str) -> dict[str, Any] | None:
    """What was searched for on a data set, how and with what result; None where nothing was."""
    path = path_of(data)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def choices_at(points: list[dict[str, Any]], target: float) -> Choices:
    """What was found at the largest target that is no larger than this one; at the smallest of all, if none is."""
    ordered = sorted(points, key=lambda point: float(point["target"]))
    below = [point for point in ordered if point["target"] <= target]
    return dict((below[-1] if below else ordered[0])["choices"])
