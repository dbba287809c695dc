"""The command plan: which cap, users, rounds or levels reach a target; search, draw, put into words."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting import planner
from apes.accounting.planner import Answer, Goal
from apes.budgets import make_budgets
from apes.checks import one_of, positive
from apes.cli import display, shared
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.mathematics.search import Progress
from apes.terms.level_choice import LevelChoice, choose_levels
from apes.terms.terms import Terms

LEVELS = "levels"


# parameters: one per option, as typer wants it.
def plan_command(
    target_epsilon: Annotated[float, typer.Option(help="Largest certified epsilon of a user over all rounds.")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")],
    solve: Annotated[str, typer.Option(help="What to find: cap (on budgets), users, rounds, or levels (of reports).")],
    budgets: shared.Budgets = "uniform2",
    users: shared.Users = 10_000,
    dimensions: shared.Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 40,
    levels: shared.Levels = None,
    clip: Annotated[str | None, typer.Option(help="C beside a norm; or C[,C2,...] to state errors for.")] = None,
    norm: shared.Norm = None,
    framework: shared.FrameworkName = "apes",
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Find the cap on budgets, the users, the rounds or the levels of reports that reach a target."""
    clips = parse_clips(clip)
    bounds = {"norm": norm, "clip": clips[0] if clips else 0.1}
    terms = shared.certified_terms(levels, framework=framework, sparsifier=sparsifier, keep=keep, **bounds)
    # Before a file of budgets is read: what is wrong with the question is not mended by another file.
    check_solve(solve, budgets, clip, terms)
    goal = Goal(target_epsilon, delta, rounds, shared.exposure_of(terms, budgets, users, seed, dimensions))
    began = time.perf_counter()
    if solve == LEVELS:
        choice = find_levels(goal, clips, plot)
        result, best = choice_as_dict(choice, goal, clips), choice.best
        words = f"{best.levels} levels, budgets capped at {best.cap or 0:.4g}, leave the smallest error"
        display.level_choice(result)
    else:
        dial = make_dial(solve, goal, lambda size: make_budgets(budgets, size, seed))
        answer = find(dial, solve, goal, plot)
        result = answer_as_dict(answer, solve, goal)
        words = "" if answer.value is None else dial.words.format(answer.value)
    result["seconds"] = time.perf_counter() - began
    shared.tell(result, as_json, in_words(result, words))
    if not result["feasible"]:
        raise typer.Exit(1)


def check_solve(solve: str, budgets: str, clip: str | None, terms: Terms) -> None:
    """Raise if the other options do not go with what is solved for."""
    one_of("solve", solve, ("cap", "users", "rounds", LEVELS))
    if clip is not None and solve != LEVELS and terms.norm is None:
        raise ParameterError(f"clip must be left out unless levels are solved for or there is a norm; got {clip!r}")
    if terms.norm is not None and solve == LEVELS:
        raise ParameterError(f"norm must be left out to solve for levels: it has two; got {terms.norm!r}")
    if solve == "users" and budgets.startswith("file:"):
        raise ParameterError(f"budgets must be a law to solve for users: a file holds so many; got {budgets!r}")
    if solve == LEVELS and terms.sparsification is not None and terms.sparsification.pads:
        raise ParameterError(f"framework must be one without padding to solve for levels; got {terms.framework!r}")


@dataclass(frozen=True, eq=False)
class Dial:
    """Something that can be turned until a target is met."""

    search: Callable[[Progress], Answer]
    cost: Callable[[float], float]  # certified epsilon at a place
    default: float  # where to look if there is no answer
    most: float  # largest place that makes sense
    words: str  # for the answer
    is_whole: bool = True  # whether places are whole numbers


def make_dial(solve: str, goal: Goal, population: Callable[[int], F64]) -> Dial:
    """The dial for what is to be solved for: cap, users (of whom ``population`` has the budgets) or rounds."""
    budgets = goal.exposure.budgets
    if solve == "cap":
        search, highest = partial(planner.largest_cap, goal), float(budgets.max())
        return Dial(search, planner.cap_cost(goal), highest / 8, highest, "cap budgets at {:.4g}", is_whole=False)
    if solve == "users":
        search, cost = partial(planner.fewest_users, population, goal), planner.users_cost(population, goal)
        return Dial(search, cost, budgets.size, planner.MOST_USERS, "{:,.0f} users are enough")
    return Dial(partial(planner.most_rounds, goal), planner.rounds_cost(goal), 1, math.inf, "{:,.0f} rounds fit")


def find(dial: Dial, solve: str, goal: Goal, plot: Path | None) -> Answer:
    """Search with a bar, and draw a picture if one is asked for."""
    with display.steps(f"searching for {solve}", "%") as progress:
        progress(0, 100)
        answer = dial.search(progress)
    if plot is not None:
        middle = dial.default if answer.value is None else answer.value
        with display.steps("drawing", "points") as progress:
            curve = planner.curve_around(dial.cost, middle, dial.most, is_whole=dial.is_whole, progress=progress)
        from apes.cli.plots import draw_plan

        draw_plan(curve, answer, goal, solve, plot)
    return answer


def find_levels(goal: Goal, clips: Sequence[float], plot: Path | None) -> LevelChoice:
    """Compare numbers of levels with a bar, and draw a picture if one is asked for."""
    with display.steps("comparing levels", "%") as progress:
        progress(0, 100)
        choice = choose_levels(goal, progress)
    if plot is not None:
        from apes.cli.plots import draw_level_choice

        draw_level_choice(choice, goal, clips, plot)
    return choice


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


def choice_as_dict(choice: LevelChoice, goal: Goal, clips: Sequence[float]) -> dict[str, Any]:
    """A choice of levels as plain values: the answer, and one entry per number of levels."""
    best = choice.best
    answer = Answer(None if best.cap is None else best.levels, best.epsilon, best.advice)
    offers = [asdict(offer) | {"errors": [clip * offer.error for clip in clips]} for offer in choice.offers]
    for offer in offers:
        if offer["cap"] is None:
            offer |= {"error": None, "errors": [None for _ in clips]}
    return answer_as_dict(answer, LEVELS, goal) | {"cap": best.cap, "clips": list(clips), "trade": offers}


def in_words(answer: dict[str, Any], words: str) -> str:
    """An answer for people, in one line."""
    target = answer["target"]
    if not answer["feasible"]:
        return f"epsilon {target['epsilon']:g} at delta {target['delta']:g} is out of reach: {answer['advice']}"
    epsilon = answer["certified"]["epsilon"]
    return f"{words}: certified epsilon {epsilon:.4g} at delta {target['delta']:g} for every user"
