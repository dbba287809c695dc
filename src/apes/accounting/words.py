"""Figures in words: what an epsilon means, the one place where that is judged; and how many there are of something."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_LARGEST_EPSILON = 10.0
_WORDS = ((1.0, "strong protection"), (3.0, "good protection"), (_LARGEST_EPSILON, "weak protection; aim for 1 to 3"))
_NONE = "this protects nobody; aim for 1 to 3"
# Up to delta, anything may be told about somebody: of a thousand people one, at this, and that is many.
_LARGEST_DELTA = 1e-3
HELD_OUT = "measured on people held out of training, without noise: the guarantee does not cover them"
"""What is said beside an accuracy or loss on people of a table, whose rows judge the model and train nothing."""
UNDER_A_SEED = "as long as the seed stays secret"
"""What a guarantee holds under where noise follows from a seed: whoever has the seed draws the same noise."""


def upwards(proved: float, digits: int = 4) -> str:
    """An epsilon or delta in so many digits, no smaller: who reads what is printed reads nothing that is not proved.

    >>> upwards(0.12341), upwards(0.1), upwards(8.9996), upwards(3.33e-05, 2)
    ('0.1235', '0.1', '9', '3.4e-05')
    """
    return _rounded(proved, digits, ROUND_CEILING)


def downwards(forced: float, digits: int = 4) -> str:
    """A figure that a true one cannot be below, in so many digits, no larger.

    >>> downwards(0.12349), downwards(0.1)
    ('0.1234', '0.1')
    """
    return _rounded(forced, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, way: str) -> str:
    # From the shortest text that stands for it: by its exact value, 0.1 is above 0.1.
    return f"{float(Context(prec=digits, rounding=way).create_decimal(repr(float(value)))):.{digits}g}"


def protects(epsilon: float | None, delta: float) -> bool:
    """Whether a central epsilon at a delta, over all that is released, protects anybody; None: no finite figure.

    >>> protects(10.0, 1e-3), protects(10.1, 1e-6), protects(1.0, 0.02), protects(None, 1e-6)
    (True, False, False, False)
    """
    return epsilon is not None and epsilon <= _LARGEST_EPSILON and delta <= _LARGEST_DELTA


def meaning(epsilon: float | None, delta: float) -> str:
    """Say what a central epsilon at a delta, over all that is released, comes to; None stands for no finite figure.

    By epsilon, an adversary's odds of telling whether somebody's data is this or that change by a factor of e^epsilon
    at most: 2.7 at 1, 20 at 3, 22,000 at 10. That holds but for a probability of delta.

    >>> meaning(0.5, 1e-6), meaning(402, 1e-6)
    ('strong protection', 'this protects nobody; aim for 1 to 3')
    >>> meaning(0.5, 0.4)
    'this protects nobody: with a probability of 0.4 nothing holds; aim for a delta of 1e-05 or less'
    """
    if epsilon is None or not epsilon < math.inf:
        return "nothing is guaranteed: this protects nobody"
    words = next((words for most, words in _WORDS if epsilon <= most), _NONE)
    if words is not _NONE and not delta <= _LARGEST_DELTA:
        return (
            f"this protects nobody: with a probability of {delta:.2g} nothing holds; aim for a delta of 1e-05 or less"
        )
    return words


def judged(epsilon: float | None, delta: float) -> str:
    """An epsilon with its meaning.

    >>> judged(402.1234, 1e-5)
    'epsilon 402.2 at delta 1e-05: this protects nobody; aim for 1 to 3'
    """
    figure = "without bound" if epsilon is None or not epsilon < math.inf else upwards(epsilon)
    return f"epsilon {figure} at delta {upwards(delta, 3)}: {meaning(epsilon, delta)}"


def counted(count: int, what: str) -> str:
    """A number of things as text.

    >>> counted(1, "round"), counted(10_000, "user")
    ('1 round', '10,000 users')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")
