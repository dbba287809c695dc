"""Training by the options of `apes train`: users, shuffler and analyzer simulated in one process."""

import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from apes.checks import one_of
from apes.cli import display, run_words, shared
from apes.cli.choices import make_choices
from apes.cli.training_result import finish, summary_of
from apes.cli.training_task import Task, new_folder, task_of
from apes.cli.watching import training_rounds
from apes.errors import DataError, ParameterError
from apes.report.event_files import LOGS, EventFiles, check_installed
from apes.training.crews.crew import Crew
from apes.training.memory import check_memory
from apes.training.run import Progress
from apes.training.run_files import EVENTS, check_new
from apes.training.run_folder import RunFolder
from apes.training.train import TrainingResult, train
from apes.training.workers import Workers


def run_training(
    choices: dict[str, Any],
    *,
    data_dir: Path | None,
    out: Path | None,
    resume: Path | None,
    preset: str,
    plan_file: Path | None,
    threads: int | None,
    workers: int | None,
    cluster: str | None,
    cache_mb: int | None,
    log: str | None,
    as_json: bool,
) -> None:
    """Train as the options of `apes train` say (`apes.cli.train_options`)."""
    _check_places(out, resume, log)
    earlier = None if resume is None else _opened(resume)
    with ExitStack() as ends:
        if earlier is not None:
            # Whoever comes second is told before it reads a table.
            ends.enter_context(earlier.locked())
        rounds = None if earlier is None else _more_rounds(choices, earlier)
        before = None if earlier is None else earlier.config["choices"]
        chosen = make_choices(choices, before, preset, plan_file, tables=True)
        who = Workers(threads=threads, processes=workers, cluster=cluster)
        # Everything that can be refused is refused before a folder is made: workers who are not there, too.
        data_dir = data_dir_of(data_dir, earlier)
        task = task_of(chosen, data_dir, cache_mb)
        check_memory(task.model.dimensions, task.plan.terms, task.people.budgets.size, who)
        with who.open() as crew:
            folder = earlier if out is None else new_folder(out, chosen, task, data_dir)
            if out is not None and folder is not None:
                ends.enter_context(folder.locked())
            began = time.perf_counter()
            with _going_on_later(folder, rounds):
                result = _train(task, folder, crew, rounds, log)
            summary = summary_of(chosen, task, result, time.perf_counter() - began, rounds)
            summary |= {"workers": asdict(crew.facts), "out": None if folder is None else str(folder.path)}
        if folder is not None:
            finish(folder, chosen, task, result, summary)
    shared.tell(summary, as_json, lambda: run_words.summary(summary))


def _check_places(out: Path | None, resume: Path | None, log: str | None) -> None:
    """Refuse places that cannot be."""
    if resume is not None and out is not None:
        raise ParameterError(f"out must be left out: --resume goes on in its own folder; got {str(out)!r}")
    if log is not None:
        one_of("log", log, LOGS)
        if resume is None and out is None:
            raise ParameterError(f"log must be left out: event files lie in the folder of a run (--out); got {log!r}")
        check_installed()
    if out is not None:
        check_new(out)


def _opened(resume: Path) -> RunFolder:
    """The folder of a run that this command can go on with."""
    folder = RunFolder.open(resume)
    if "receipts_key" in folder.config["choices"]:
        raise DataError(f"{resume} is a federation's run: whoever started it goes on with it (`apes federation up`)")
    folder.check_goes_on()
    return folder


def _more_rounds(choices: dict[str, Any], earlier: RunFolder) -> int | None:
    """Rounds in all that are asked for, where the run was not begun with as many; taken out of the choices."""
    asked = choices.get("rounds")
    if asked is None or asked == earlier.config["choices"].get("rounds"):
        return None
    return int(choices.pop("rounds"))


def data_dir_of(given: Path | None, earlier: RunFolder | None) -> Path | None:
    """Where a named set's files are: as was said, or as the run was begun with."""
    stored = None if earlier is None else earlier.config["data_dir"]
    return Path(stored) if given is None and stored is not None else given


def _train(task: Task, folder: RunFolder | None, crew: Crew, rounds: int | None, log: str | None) -> TrainingResult:
    """Train, from where the folder's run is, and let a person watch."""
    reached = None if folder is None else folder.load()
    done, planned = reached.rounds if reached else 0, task.plan.terms.rounds
    with ExitStack() as ends:
        show = ends.enter_context(
            training_rounds(task.plan.framework, max(planned, rounds or 0), done, lambda: f" on {crew.facts}")
        )
        events = None
        if log is not None and folder is not None:
            events = ends.enter_context(EventFiles(folder.place(EVENTS), () if reached is None else reached.metrics))

        def after_round(progress: Progress) -> None:
            if folder is not None:
                folder.save(progress)
            if events is not None:
                events.add(progress.metrics[-1])
            show(progress.metrics[-1])

        keys = None if folder is None else folder.keys()
        how: dict[str, Any] = {
            "workers": crew,
            "resume": reached,
            "keys": keys,
            "rounds": rounds,
            "after_round": after_round,
        }
        return train(task.model, task.people, task.plan, features=task.features, **how)


@contextmanager
def _going_on_later(folder: RunFolder | None, rounds: int | None) -> Iterator[None]:
    """Say, if somebody stops it, how the run is gone on with."""
    try:
        with shared.interrupts():
            yield
    except KeyboardInterrupt:
        said = "stopped; nothing was kept: with --out FOLDER a run can be gone on with"
        if folder is not None:
            more = [] if rounds is None else ["--rounds", str(rounds)]
            said = f"stopped; go on with: {shlex.join(['apes', 'train', '--resume', str(folder.path), *more])}"
        display.console.print(f"apes: {said}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
