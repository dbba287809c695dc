"""The command plan: which cap, users, rounds or levels reach a target; search, draw, put into words."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from apes.accounting import planner
from apes.accounting.cost import MOST_ROUNDS
from apes.accounting.planner import Answer, Goal
from apes.accounting.words import upwards
from apes.budgets import make_budgets, spread_alike
from apes.checks import one_of, positive, unused, whole
from apes.cli import display, shared
from apes.cli.plan_words import plan_as_dict, plan_in_words
from apes.defaults import NORM, NORM_TO_CLIP, ROUNDS, USERS
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.mathematics.search import Progress
from apes.mathematics.thresholds import MAX_LEVELS
from apes.terms.fitting import fitted_to
from apes.terms.level_choice import LevelChoice, choose_levels
from apes.terms.plan import Plan
from apes.terms.terms import Terms

LEVELS = "levels"


def run_planning(
    *,
    target_epsilon: float,
    delta: float | None,
    solve: str | None,
    budgets: str,
    users: int | None,
    dimensions: int | None,
    rounds: int | None,
    levels: str | None,
    clip: str | None,
    norm: float | None,
    cap: float | None,
    framework: str,
    sparsifier: str | None,
    keep: float | None,
    seed: int,
    preset: str,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Search as the options of `apes plan` say (`apes.cli.plan_options`)."""
    clips = parse_clips(clip)
    kind = {"framework": framework, "sparsifier": sparsifier, "keep": keep}
    bounds = shared.with_preset(preset, clip=clips[0] if clips else None, norm=norm, rounds=rounds, cap=cap)
    size = shared.with_preset(preset, dimensions=dimensions)["dimensions"]
    plan = shared.certified_plan(levels, **kind, **bounds, delta=delta, target_epsilon=target_epsilon)
    is_whole = solve is None and plan.is_open
    terms = _terms_of_open(plan, solve, size) if plan.is_open else plan.terms
    # Before a file of budgets is read: what is wrong with the question is not mended by another file.
    if is_whole:
        unused({"plot": None if plot is None else str(plot)}, "there is nothing to draw of a plan; solve for something")
    else:
        check_solve(solve, clip, terms)
    own, people = _population(budgets, users, seed)
    began = time.perf_counter()
    if is_whole:
        result, words = _whole_plan(plan, own, size)
    else:
        exposure = terms.exposure(0, terms.applied(own), size)
        goal = Goal(target_epsilon, terms.central_delta(own.size), terms.rounds, exposure)
        result, words = _solved(str(solve), goal, terms, (people, budgets.startswith("file:")), clips, plot)
    result["seconds"] = time.perf_counter() - began
    shared.tell(result, as_json, lambda: _show(result, words))
    if not result["feasible"]:
        raise typer.Exit(1)


def _terms_of_open(plan: Plan, solve: str | None, dimensions: int) -> Terms:
    """What an open plan's people agree to while one thing is searched for: nothing is fitted to them."""
    if solve == LEVELS and plan.norm is None:
        # They are compared without a norm, which goes with two.
        return replace(plan, levels=MAX_LEVELS).terms
    norm = NORM if plan.norm is None else plan.norm
    rounds = ROUNDS if plan.rounds is None else plan.rounds
    return replace(plan, norm=norm, clip=norm / min(NORM_TO_CLIP, math.sqrt(dimensions)), rounds=rounds).terms


def _whole_plan(plan: Plan, own: F64, dimensions: int) -> tuple[dict[str, Any], str]:
    """The plan that `apes train` fits to these people, and what is certified of it."""
    with display.working() as show:
        show("fitting clip bound and cap to the budgets")
        settled = fitted_to(plan, own, dimensions)
        terms = settled.terms
        accountant = terms.accountant(own.size, settled=True)
        accountant.charge(terms.exposure(0, terms.applied(own), dimensions), terms.rounds)
    delta, about = terms.central_delta(own.size), plan_as_dict(settled, is_fitted=True)
    certified = {"epsilon": accountant.epsilon, "delta": delta}
    target = {"epsilon": settled.target_epsilon, "delta": delta}
    facts = {"solve": None, "feasible": True, "answer": None, "advice": "", "plan": about}
    return {**facts, "certified": certified, "target": target}, plan_in_words(about).removesuffix(".")


def _solved(
    solve: str,
    goal: Goal,
    terms: Terms,
    people: tuple[Callable[[int], F64], bool],
    clips: Sequence[float],
    plot: Path | None,
) -> tuple[dict[str, Any], str]:
    """What was searched for, and how to say it; ``people`` makes budgets, and whether they are spread as in a file."""
    if solve == LEVELS:
        choice = find_levels(goal, clips, plot)
        return choice_as_dict(choice, goal, clips), _levels_in_words(choice, goal)
    population, of_file = people
    dial = make_dial(solve, goal, lambda size: terms.applied(population(size)), of_file=of_file)
    answer, words = find(dial, solve, goal, plot)
    return answer_as_dict(answer, solve, goal), words


def _show(result: dict[str, Any], words: str) -> None:
    if result["solve"] == LEVELS:
        display.level_choice(result)
    typer.echo(in_words(result, words))


def _population(budgets: str, users: int | None, seed: int) -> tuple[F64, Callable[[int], F64]]:
    """Everybody's budgets, and those of as many people of the same kind as one likes."""
    if users is not None:
        whole("users", users, 1, planner.MOST_USERS)
    if budgets.startswith("file:"):
        own = make_budgets(budgets, users, seed)
        return own, partial(spread_alike, own)
    return make_budgets(budgets, USERS if users is None else users, seed), partial(make_budgets, budgets, seed=seed)


def check_solve(solve: str | None, clip: str | None, terms: Terms) -> None:
    """Raise if the other options do not go with what is solved for."""
    if solve is None:
        why = "one fits a plan where clip, levels and framework are left out"
        raise ParameterError(f"solve must be one of cap, users, rounds, {LEVELS}: {why}; got none")
    one_of("solve", solve, ("cap", "users", "rounds", LEVELS))
    if clip is not None and solve != LEVELS and terms.norm is None:
        raise ParameterError(f"clip must be left out unless levels are solved for or there is a norm; got {clip!r}")
    if terms.norm is not None and solve == LEVELS:
        raise ParameterError(f"norm must be left out to solve for levels: it has two; got {terms.norm!r}")
    if terms.cap is not None and solve == "cap":
        raise ParameterError(f"cap must be left out to solve for it; got {terms.cap!r}")
    if solve == LEVELS and terms.sparsification is not None and terms.sparsification.pads:
        raise ParameterError(f"framework must be one without padding to solve for levels; got {terms.framework!r}")


@dataclass(frozen=True, eq=False)
class Dial:
    """Something that can be turned until a target is met."""

    search: Callable[[Progress], Answer]
    cost: Callable[[float], float]  # certified epsilon at a place
    default: float  # where to look if there is no answer
    most: float  # largest place that makes sense
    words: Callable[[float], str]  # for the answer
    is_whole: bool = True  # whether places are whole numbers


def make_dial(solve: str, goal: Goal, population: Callable[[int], F64], *, of_file: bool = False) -> Dial:
    """The dial for what is to be solved for: cap, users (of whom ``population`` has the budgets) or rounds."""
    budgets = goal.exposure.budgets
    if solve == "cap":
        search, highest = partial(planner.largest_cap, goal), float(budgets.max())
        words = partial(_cap_in_words, goal=goal)
        return Dial(search, planner.cap_cost(goal), highest / 8, highest, words, is_whole=False)
    if solve == "users":
        search, cost = partial(planner.fewest_users, population, goal), planner.users_cost(population, goal)
        return Dial(search, cost, budgets.size, planner.MOST_USERS, partial(_users_in_words, of_file=of_file))
    return Dial(partial(planner.most_rounds, goal), planner.rounds_cost(goal), 1, math.inf, _rounds_in_words)


def _cap_in_words(cap: float, goal: Goal) -> str:
    is_needed = cap < goal.exposure.budgets.max()
    return f"cap budgets at {cap:.4g}" if is_needed else f"no cap is needed (the largest budget is {cap:.4g})"


def _levels_in_words(choice: LevelChoice, goal: Goal) -> str:
    cap = choice.best.cap or 0.0
    capped = f"budgets capped at {cap:.4g}" if cap < goal.exposure.budgets.max() else "with no cap on budgets"
    return f"{choice.best.levels} levels, {capped}, leave the smallest error"


def _users_in_words(users: float, *, of_file: bool) -> str:
    spread = ", if their budgets are spread as those in the file" if of_file else ""
    return ("1 user is enough" if users == 1 else f"{users:,.0f} users are enough") + spread


def _rounds_in_words(rounds: float) -> str:
    most = ", the most there can be," if rounds >= MOST_ROUNDS else ""
    return "1 round fits" if rounds == 1 else f"{rounds:,.0f} rounds{most} fit"


def find(dial: Dial, solve: str, goal: Goal, plot: Path | None) -> tuple[Answer, str]:
    """Search with a bar, and draw a picture if one is asked for; the answer, and how to say it."""
    with display.steps(f"searching for {solve}", "%") as progress:
        progress(0, 100)
        answer = dial.search(progress)
    if plot is not None:
        middle = dial.default if answer.value is None else answer.value
        with display.steps("drawing", "points") as progress:
            curve = planner.curve_around(dial.cost, middle, dial.most, is_whole=dial.is_whole, progress=progress)
        from apes.cli.plots import draw_plan

        draw_plan(curve, answer, goal, solve, plot)
    return answer, "" if answer.value is None else dial.words(answer.value)


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
    needed = answer.value is None or answer.value < float(goal.exposure.budgets.max())
    return {
        **({"needed": needed} if solve == "cap" else {}),
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
    return f"{words}: certified epsilon {upwards(epsilon)} at delta {target['delta']:g} for every user"
