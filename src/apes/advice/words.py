"""What advice says in words: what is protected, whom one relies on, and why a way stands where it does."""

import math

from apes.accounting.words import upwards
from apes.advice.accuracy import Measured
from apes.advice.question import Question
from apes.advice.way import Way

UNIT = (
    "One person's data, all of it, in all rounds: replaced by any other. Epsilon bounds what whoever sees the "
    "shuffler's counts and every model can learn about it. Who takes part and everybody's budget are public."
)
TRUST = (
    "The shuffler is trusted not to tell who sent what. Nobody is trusted with data: reports are perturbed on each "
    "device. Should shuffler and analyzer work together, only the local budgets, per coordinate and round, are left."
)


def figure(epsilon: float) -> str:
    """An epsilon to three digits, no smaller, and a large one in full."""
    return upwards(epsilon, 3) if epsilon < 1000 else f"{math.ceil(epsilon):,}"


def change_in_words(way: Way) -> str:
    """What a way asks for beside reports of its kind, in a few words."""
    match way.change:
        case "cap":
            return f"cap {way.cap:.4g}"
        case "rounds":
            return f"{way.rounds:,} {'round' if way.rounds == 1 else 'rounds'}"
        case "users":
            return f"{way.users:,} people"
        case _:
            return "as asked"


def reason_for(way: Way, question: Question) -> str:
    """What a way comes to against the target, in a sentence."""
    target = f"{question.target_epsilon:g}"
    spent = f"epsilon {figure(way.epsilon)} of {target}"
    if not way.meets_target:
        return f"It costs epsilon {figure(way.epsilon)}, beyond the target of {target}."
    match way.change:
        case "cap":
            lowered = int((question.budgets > (way.cap or 0.0)).sum())
            return f"{lowered:,} of {question.users:,} people use {way.cap:.4g} instead of more: {spent}."
        case "rounds":
            return f"{way.rounds:,} of {question.rounds:,} rounds fit: {spent}."
        case "users":
            more = way.users - question.users
            return f"It takes {way.users:,} people, {more:,} more, with budgets spread alike: {spent}."
        case _:
            whole = "No cap is needed" if way.cap is None else f"With the cap of {way.cap:.4g}"
            fit = "the one round fits" if way.rounds == 1 else f"all {way.rounds:,} rounds fit"
            return f"{whole}, and {fit}: {spent}."


def why_first(best: Way, others: list[Way], question: Question, table: Measured) -> str:
    """Why the recommended way is recommended, in a sentence; ``others`` fit these people too."""
    if best.change == "users":
        return f"No way fits these {question.users:,} people; this one needs the fewest more."
    if not others:
        return "It is the only way that keeps within the target with these people."
    if best.accuracy is None:
        return "Of the ways within the target it leaves the least noise in a weight."
    next_best = max(way.accuracy or 0.0 for way in others)
    if best.accuracy > next_best and table.can_tell_apart(best.accuracy, next_best):
        gap = 100 * (best.accuracy - next_best)
        return f"Of the ways within the target it is expected to be the most accurate, by {gap:.1f} points."
    return "It is expected to be as accurate as any way within the target, and of those it costs people least."


def question_in_words(question: Question) -> str:
    """What was asked, in a sentence."""
    values = question.different[0]
    spread = f"{values[0]:g}" if values.size == 1 else f"{values[0]:.3g} to {values[-1]:.3g}"
    rounds = "1 round" if question.rounds == 1 else f"{question.rounds:,} rounds"
    people = "1 person" if question.users == 1 else f"{question.users:,} people"
    return (
        f"{people} with local budgets of {spread}, {rounds} of {question.dimensions:,} coordinates: at most epsilon "
        f"{question.target_epsilon:g} at delta {question.central_delta:g} for anybody, over everything."
    )
