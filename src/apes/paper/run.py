"""Work out what chosen experiments need, and write their results."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apes.paper.experiment import Experiment
from apes.paper.parts import Part, Workshop
from apes.paper.setting import Setting
from apes.storage.files import write_bytes
from apes.storage.pictures import save
from apes.storage.version import __version__

# Called with the work done so far, all of it, and what is being done.
WorkProgress = Callable[[float, float, str], None]


def work(experiments: Iterable[Experiment], setting: Setting, workshop: Workshop, progress: WorkProgress) -> None:
    """Work out every part that is not kept yet, each once."""
    todo = [part for part in _parts(experiments, setting) if not workshop.is_done(part)]
    total, done = sum(part.weight for part in todo), 0.0
    # Runs on the same images follow one another; only two sets are kept in memory.
    for part in sorted(todo, key=lambda part: (part.kind, part.arguments.get("normalise", "pixels"), part.name)):
        named = [part.arguments[name] for name in ("framework", "budgets", "users") if name in part.arguments]
        words = " ".join([part.kind, *map(str, named)])

        def tell(share: float, before: float = done, part: Part = part, words: str = words) -> None:
            progress(before + share * part.weight, total, words)

        tell(0.0)
        workshop.work_out(part, tell)
        done += part.weight
    progress(total, total, "done")


def seconds(experiments: Iterable[Experiment], setting: Setting, workshop: Workshop) -> float:
    """How long all parts took, those that are shared counted once."""
    return sum(workshop.seconds(part) for part in _parts(experiments, setting))


def _parts(experiments: Iterable[Experiment], setting: Setting) -> list[Part]:
    """What the experiments need, each part once."""
    return list({part.name: part for experiment in experiments for part in experiment.parts(setting)}.values())


def write(experiment: Experiment, setting: Setting, workshop: Workshop, folder: Path, command: str) -> dict[str, Any]:
    """Write an experiment's result and, from that file alone, its picture; return the result.

    They go to ``NAME.json`` and ``NAME.png`` in the folder; the command is what a reader has to type.
    """
    sources = {workshop.result(part).get("data") for part in experiment.parts(setting)} - {None}
    result = {
        "name": experiment.name,
        "title": experiment.title,
        "command": command,
        "version": __version__,
        "setting": asdict(setting),
        "data": sorted(str(source) for source in sources),
        "seconds": seconds([experiment], setting, workshop),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "figures": experiment.figures(setting, workshop.result),
    }
    path = folder / f"{experiment.name}.json"
    write_bytes(path, (json.dumps(result, indent=1) + "\n").encode())
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if experiment.draw is not None:
        save(experiment.draw(kept["figures"]), folder / f"{experiment.name}.png")
    return kept
