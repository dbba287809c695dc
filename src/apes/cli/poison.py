"""The command poison: what people who lie do to the model of a plan."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from apes.accounting.words import upwards
from apes.audit.poisoning import Influence, PoisoningResult, poison
from apes.checks import shown, within
from apes.cli import display, shared
from apes.cli.choices import make_choices
from apes.cli.subjects import accuracy_note
from apes.cli.training_task import task_of
from apes.errors import ParameterError

_MOST_NUMBERS = 20


def run_poison(
    choices: dict[str, Any],
    *,
    liars: str,
    data_dir: Path | None,
    preset: str,
    plan_file: Path | None,
    threads: int | None,
    cache_mb: int | None,
    as_json: bool,
) -> None:
    """Train as the options of `apes poison` say (`apes.cli.poison_options`)."""
    # A text that cannot be read is refused before any data is.
    shares = _shares(liars)
    chosen = make_choices(choices, None, preset, plan_file, tables=True)
    task = task_of(chosen, data_dir, cache_mb)
    numbers = _numbers(shares, task.people.budgets.size)
    total, done = task.plan.terms.rounds * (1 + len(numbers)), 0
    began = time.perf_counter()
    with display.steps(f"training {1 + len(numbers)} times", "rounds") as progress:

        def after_round(_: object) -> None:
            nonlocal done
            done += 1
            progress(done, max(total, done))

        how: dict[str, Any] = {"features": task.features, "threads": threads, "after_round": after_round}
        result = poison(task.model, task.people, task.plan, numbers, **how)
    note = accuracy_note(task.people, result.loss)
    facts = facts_of(result) | {"accuracy_note": note, "seconds": time.perf_counter() - began}
    shared.tell(facts, as_json, lambda: _print(result, note))


def _shares(text: str) -> list[tuple[float, bool]]:
    """Each number that a text names, and whether it is a share in per cent."""
    found = []
    for part in text.split(","):
        word = part.strip()
        is_share = word.endswith("%")
        try:
            number = float(word[:-1]) if is_share else float(int(word))
        except ValueError:
            must = "liars must be numbers of people or shares in per cent, as in 1,1%,5%"
            raise ParameterError(f"{must}; got {shown(text)}") from None
        if is_share:
            within("liars", number, 0, 100)
        found.append((number, is_share))
    if len(found) > _MOST_NUMBERS:
        raise ParameterError(f"liars must be at most {_MOST_NUMBERS} numbers, got {len(found)}")
    return found


def _numbers(shares: list[tuple[float, bool]], users: int) -> list[int]:
    """How many of the users each of them is; the smallest share is one person."""
    return [max(1, round(number / 100 * users)) if is_share else int(number) for number, is_share in shares]


def facts_of(result: PoisoningResult) -> dict[str, Any]:
    """The result as plain values."""
    terms = result.plan.terms
    return {
        "attack": result.attack,
        "framework": terms.framework,
        "users": result.users,
        "dimensions": result.dimensions,
        "rounds": terms.rounds,
        "levels": terms.reports.levels,
        "clip": terms.clip,
        "norm": terms.norm,
        "cap": terms.cap,
        "seed": result.plan.seed,
        "without_liars": {"accuracy": result.accuracy, "loss": result.loss, "epsilon": result.epsilon},
        "with_liars": [asdict(entry) for entry in result.poisoned],
        "influence": [_influence(entry) for entry in result.influences],
    }


def _influence(entry: Influence) -> dict[str, float]:
    return asdict(entry) | {"ratio": entry.ratio, "norm_ratio": entry.norm_ratio}


def _print(result: PoisoningResult, note: str | None) -> None:
    """Print two tables, and what they are about."""
    terms = result.plan.terms
    what = f"{result.users:,} people, {terms.rounds:,} rounds, {terms.reports.levels} levels"
    title = f"[bold]What liars do to this plan[/]: {escape(terms.framework)}, {what}"
    harm = display.table_of(title, ("liars", "share", "accuracy", "loss", "epsilon without their cover"))
    harm.add_row("0", "0 %", _percent(result.accuracy), f"{result.loss:.3f}", upwards(result.epsilon))
    for entry in result.poisoned:
        figures = (_percent(entry.accuracy), f"{entry.loss:.3f}", upwards(entry.epsilon))
        harm.add_row(f"{entry.liars:,}", f"{100 * entry.share:.3g} %", *figures)
    display.answers.print(harm)
    title = "[bold]How far one person moves the estimate[/], in units of the clip bound C"
    headings = ("budget up to", "people", "liar", "honest", "ratio", "all coordinates (L2)")
    moves = display.table_of(title, headings)
    for each in result.influences:
        ratios = (f"{each.ratio:.3g} times", f"{each.norm_ratio:.3g} times")
        moves.add_row(f"{each.budget:.4g}", f"{each.people:,}", f"{each.liar:.2e}", f"{each.honest:.2e}", *ratios)
    display.answers.print(moves)
    if note is not None:
        display.answers.print(f"Accuracy and loss are {note}.", highlight=False)
    display.answers.print(f"The attack: {result.attack}. Another may do more harm: this is no bound.", highlight=False)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
