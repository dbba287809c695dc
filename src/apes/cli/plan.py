"""What `apes plan` does between its options and its output: search, draw, put into words."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.accounting.planner import (
    MOST_USERS,
    Answer,
    Goal,
    cap_cost,
    curve_around,
    fewest_users,
    largest_cap,
    most_rounds,
    rounds_cost,
    users_cost,
)
from apes.budgets import make_budgets
from apes.checks import positive
from apes.cli import display
from apes.cli.plots.pictures import draw_plan, draw_trade
from apes.errors import ParameterError
from apes.mathematics.search import Progress
from apes.terms.level_choice import Offer, Trade, trade_levels
from apes.terms.plan import Plan

LEVELS = "levels"


@dataclass(frozen=True, eq=False)
class Dial:
    """Something that can be turned until a target is met.

    Attributes:
        search: Finds the answer.
        cost: Certified epsilon at a place.
        default: Where to look if there is no answer.
        most: Largest place that makes sense.
        is_whole: Whether places are whole numbers.
        words: The answer in words.
    """

    search: Callable[[Progress], Answer]
    cost: Callable[[float], float]
    default: float
    most: float
    is_whole: bool
    words: str


def make_dial(solve: str, plan: Plan, goal: Goal) -> Dial:
    """The dial for what is to be solved for: cap, users or rounds."""
    makers = {"cap": _cap_dial, "users": _users_dial, "rounds": _rounds_dial}
    if solve not in makers:
        raise ParameterError(f"solve must be one of {', '.join([*makers, LEVELS])}; got {solve!r}")
    return makers[solve](plan, goal)


def _cap_dial(plan: Plan, goal: Goal) -> Dial:
    budgets = plan.population_budgets()
    highest = float(budgets.max())
    return Dial(
        lambda progress: largest_cap(budgets, goal, progress),
        cap_cost(budgets, goal),
        highest / 8,
        highest,
        is_whole=False,
        words="cap budgets at {:.4g}",
    )


def _users_dial(plan: Plan, goal: Goal) -> Dial:
    if plan.budgets.startswith("file:"):
        raise ParameterError(f"budgets must be a law to solve for users: a file holds so many; got {plan.budgets!r}")

    def population(users: int) -> NDArray[np.float64]:
        return make_budgets(plan.budgets, users, plan.seed)

    return Dial(
        lambda progress: fewest_users(population, goal, progress),
        users_cost(population, goal),
        plan.users,
        MOST_USERS,
        is_whole=True,
        words="{:,.0f} users are enough",
    )


def _rounds_dial(plan: Plan, goal: Goal) -> Dial:
    budgets = plan.population_budgets()
    return Dial(
        lambda progress: most_rounds(budgets, goal, progress),
        rounds_cost(budgets, goal),
        1,
        math.inf,
        is_whole=True,
        words="{:,.0f} rounds fit",
    )


def find(dial: Dial, solve: str, goal: Goal, plot: Path | None) -> Answer:
    """Search with a bar, and draw a picture if one is asked for."""
    with display.steps(f"searching for {solve}", "%") as progress:
        progress(0, 100)
        answer = dial.search(progress)
    if plot is not None:
        middle = dial.default if answer.value is None else answer.value
        with display.steps("drawing", "points") as progress:
            curve = curve_around(dial.cost, middle, dial.most, is_whole=dial.is_whole, progress=progress)
        draw_plan(curve, answer, goal, solve, plot)
    return answer


def find_levels(plan: Plan, goal: Goal, clips: Sequence[float], plot: Path | None) -> Trade:
    """Compare numbers of levels with a bar, and draw a picture if one is asked for."""
    with display.steps("comparing levels", "%") as progress:
        progress(0, 100)
        trade = trade_levels(plan.population_budgets(), goal, progress)
    if plot is not None:
        draw_trade(trade, goal, clips, plot)
    return trade


def parse_clips(text: str | None) -> list[float]:
    """Clip bounds from a list with commas; none from None."""
    try:
        clips = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"clip must be numbers with commas between them, got {text!r}") from None
    return [positive("clip", clip) for clip in clips]


def answer_as_dict(answer: Answer, solve: str, goal: Goal) -> dict[str, Any]:
    """An answer as plain values."""
    return {
        "solve": solve,
        "feasible": answer.value is not None,
        "answer": answer.value,
        "certified": None if answer.epsilon is None else {"epsilon": answer.epsilon, "delta": goal.delta},
        "target": {"epsilon": goal.epsilon, "delta": goal.delta},
        "advice": answer.advice,
    }


def trade_as_dict(trade: Trade, goal: Goal, clips: Sequence[float]) -> dict[str, Any]:
    """A trade as plain values: the answer, and one entry a number of levels."""
    best = trade.best
    answer = Answer(None if best.cap is None else best.levels, best.epsilon, best.advice)
    absolute = trade.errors(clips).tolist() if clips else [[] for _ in trade.offers]
    offers = [_offer_as_dict(offer, errors) for offer, errors in zip(trade.offers, absolute, strict=True)]
    return answer_as_dict(answer, LEVELS, goal) | {"cap": best.cap, "clips": list(clips), "trade": offers}


def _offer_as_dict(offer: Offer, errors: list[float]) -> dict[str, Any]:
    if offer.cap is None:
        return asdict(offer) | {"error": None, "errors": [None for _ in errors]}
    return asdict(offer) | {"errors": errors}


def in_words(answer: dict[str, Any], words: str) -> str:
    """An answer for people, in one line."""
    target = answer["target"]
    if not answer["feasible"]:
        return f"epsilon {target['epsilon']:g} at delta {target['delta']:g} is out of reach: {answer['advice']}"
    epsilon = answer["certified"]["epsilon"]
    return f"{words}: certified epsilon {epsilon:.4g} at delta {target['delta']:g} for every user"


def levels_in_words(trade: Trade) -> str:
    """The best offer of a trade, in words."""
    best = trade.best
    return f"{best.levels} levels, budgets capped at {best.cap:.4g}, leave the smallest error" if best.cap else ""
