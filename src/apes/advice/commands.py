"""The command that does a way: every choice written out, so that what was certified is what is trained."""

import shlex
from typing import Any

from apes.advice.question import Question, as_text
from apes.budgets import PUBLIC_SEED
from apes.data.digits import NUM_TRAIN
from apes.defaults import DIMENSIONS, DIMENSIONS_OF_PIXELS

# Coordinates of what `apes train` makes of the embedded digits, and the options that make it.
_ON_DIGITS: dict[int, list[str]] = {DIMENSIONS: [], DIMENSIONS_OF_PIXELS: ["--features", "pixels"]}
_OWN_TABLE = ["--data", "TABLE.csv", "--user-column", "USER", "--label-column", "LABEL", "--bounds", "LOW:HIGH"]
_ORDER = ("framework", "rounds", "clip", "levels", "norm", "cap", "delta", "target_epsilon")


def is_on_digits(question: Question) -> bool:
    """Whether the embedded digits can be trained on with so many coordinates and people, or an own table has to be."""
    return question.dimensions in _ON_DIGITS and question.users <= NUM_TRAIN


def train_command(question: Question, choices: dict[str, Any]) -> str:
    """The line for a shell that trains people with the question's budgets by these choices of a plan."""
    words = ["apes", "train"]
    if is_on_digits(question):
        words += [*_ON_DIGITS[question.dimensions], "--users", str(question.users), "--budgets", question.named]
    else:
        # People of a table bring their budgets in a column, or they are made by a law.
        is_file = question.named.startswith("file:")
        words += [*_OWN_TABLE, *(["--budget-column", "BUDGET"] if is_file else ["--budgets", question.named])]
    for name in _ORDER:
        if choices.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", as_text(choices[name])]
    if question.seed != PUBLIC_SEED:
        # The same law of budgets is drawn with it; the noise follows from it too, and the result says so.
        words += ["--seed", as_text(question.seed)]
    return shlex.join(words)
