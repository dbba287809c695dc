"""What a run of `apes train` came to, as plain values, and what it leaves in its folder."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from apes.accounting.account import by_group, local_figures, with_levels
from apes.accounting.planner import Goal, largest_cap
from apes.cli import display
from apes.cli.choices import Choices
from apes.cli.subjects import accuracy_note, budgets_said, levels_chosen, of_table
from apes.cli.training_task import Task
from apes.report.facts import Certified
from apes.report.report import write_report
from apes.storage.version import __version__
from apes.terms.spelling import train_words
from apes.training.model_file import about_model
from apes.training.peak_memory import peak_mb
from apes.training.run_files import ACCOUNT, ACCURACY
from apes.training.run_folder import RunFolder
from apes.training.train import TARGET, TrainingResult


def summary_of(
    chosen: Choices, task: Task, result: TrainingResult, seconds: float, asked: int | None = None
) -> dict[str, Any]:
    """What a run came to; ``asked``: rounds in all that it was to go on to, if more than were planned."""
    plan, people = result.plan, chosen.people
    exposure, last = result.exposures[-1], result.metrics[-1]
    noise = plan.terms.calibrator(plan.calibration).standard_error(result.budgets)
    optimizer = plan.schedule.steps(plan.terms, task.model, noise)
    proved = result.guarantee.as_dict([entry.epsilon for entry in result.metrics])
    if proved["epsilon"] is not None:
        proved["by_budget"] = with_levels(
            by_group(result.guarantee, result.budgets), levels_chosen(task.people, result.budgets)
        )
    return {
        "framework": plan.framework,
        "budgets": budgets_said(people),
        "users": result.budgets.size,
        "dimensions": exposure.dimensions,
        "rounds": len(result.metrics),
        "planned_rounds": plan.terms.rounds,
        "stopped": result.stopped,
        "more_rounds": _more_rounds(chosen, result, asked) if result.stopped == TARGET else None,
        "clip": plan.terms.clip,
        "norm": plan.norm,
        "cap": plan.cap,
        "levels": exposure.levels,
        "seed": plan.seed,
        "data": people.data,
        "split": getattr(people, "split", None),
        "features": getattr(people, "features", None),
        "learning_rate": optimizer.learning_rate,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "baseline": last.baseline,
        "beats_baseline": last.judged.beats_baseline,
        "test_rows": last.test_rows,
        "accuracy_note": accuracy_note(task.people, last.loss),
        "accuracy_by_round": [entry.accuracy for entry in result.metrics],
        "loss_by_round": [entry.loss for entry in result.metrics],
        "model_sha256": result.model_sha256,
        "seconds": seconds,
        "seconds_per_round": sorted(entry.seconds for entry in result.metrics)[len(result.metrics) // 2],
        "peak_memory_mb": peak_mb(),
        "local_epsilon": _local(result),
        "version": __version__,
        "certified": proved,
    } | of_table(task.people, result)


def _local(result: TrainingResult) -> dict[str, list[float]]:
    """What reports tell whoever sees who sent them: least and most, by budgets."""
    exposure, ends = result.exposures[-1], [float(result.budgets.min()), float(result.budgets.max())]
    local = {"coordinate": ends, "user": [exposure.charged * budget for budget in ends]}
    if exposure.norm is not None:
        figures = [local_figures(exposure, budget, result.guarantee.delta) for budget in ends]
        local["user_at_delta"] = [each["user_at_delta"] for each in figures]
    return local


def _more_rounds(chosen: Choices, result: TrainingResult, asked: int | None) -> dict[str, Any]:
    """Why a run ended at its target, and what would let all rounds take place, in a new one."""
    terms, each = result.plan.terms, replace(result.exposures[0], round=0)
    target, delta, rounds = float(terms.target_epsilon or 0), result.guarantee.delta, asked or terms.rounds
    goal = Goal(target, delta, rounds, each)
    with display.steps("what would allow more rounds", "tried") as progress:
        cap = largest_cap(goal, progress).value
    gate, anew = (terms.accountant(result.budgets.size, settled=it) for it in (not result.guarantee.is_adaptive, True))
    return {
        "target": target,
        "rounds": rounds,
        "epsilon_after_next": gate.after(each, len(result.metrics) + 1),
        "epsilon_of_all": anew.after(each, rounds),
        "cap": cap,
        "command": None if cap is None else train_words(chosen.as_dict(), cap=_shortened(cap), rounds=rounds),
    }


def _shortened(cap: float) -> float:
    """A cap in three digits, no larger."""
    unit = 10.0 ** (math.floor(math.log10(cap)) - 2)
    return float(f"{math.floor(cap / unit * (1 + 1e-12)) * unit:.12g}")


def finish(folder: RunFolder, chosen: Choices, task: Task, result: TrainingResult, summary: dict[str, Any]) -> None:
    """Write the model, the summary, a picture of how it went, one of what it cost whom, and the report."""
    from apes.cli.run_plots import draw_accuracy, draw_run_account

    by_round, rounds = [entry.epsilon for entry in result.metrics], len(result.metrics)
    said: dict[str, Any] = {
        "rounds": rounds,
        "schema": task.people.schema,
        "features": getattr(chosen.people, "features", None),
    }
    about = about_model(task.model, result.guarantee, folder.charged()[0].terms, **said)
    folder.keep_model(result.weights, about, summary["certified"])
    folder.finish(summary)
    write_report(folder, Certified(result.guarantee, by_round))
    what = f"{summary['framework']} on {Path(summary['data']).name}"
    title = f"{what}: {summary['users']:,} users, budgets {summary['budgets']}"
    if result.metrics[-1].loss is not None:
        draw_accuracy(result.metrics, title, folder.place(ACCURACY))
    if result.guarantee.why_not_certified is None:
        groups, spent = by_group(result.guarantee, result.budgets), [epsilon or 0.0 for epsilon in by_round]
        # This one may be shown: no file of this machine is named.
        data = "own table" if task.people.schema is not None else what
        budgets = summary["budgets"] if not str(summary["budgets"]).startswith("file:") else "of a file"
        title = f"{data}: {summary['users']:,} users, budgets {budgets}"
        draw_run_account(groups, spent, result.guarantee, folder.path / ACCOUNT, title=title)
