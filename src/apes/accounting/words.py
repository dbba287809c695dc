"""What an epsilon means, in words: the one place where figures are judged."""

import math

_WORDS = ((1.0, "strong protection"), (3.0, "good protection"), (10.0, "weak protection; aim for 1 to 3"))
_NONE = "this protects nobody; aim for 1 to 3"


def meaning(epsilon: float | None) -> str:
    """Say what a central epsilon over everything that is released comes to; None stands for no finite figure.

    By epsilon, an adversary's odds of telling whether somebody's data is this or that change by a factor of e^epsilon
    at most: 2.7 at 1, 20 at 3, 22,000 at 10.

    >>> meaning(0.5), meaning(402)
    ('strong protection', 'this protects nobody; aim for 1 to 3')
    """
    if epsilon is None or not epsilon < math.inf:
        return "nothing is guaranteed: this protects nobody"
    return next((words for most, words in _WORDS if epsilon <= most), _NONE)


def judged(epsilon: float | None) -> str:
    """An epsilon with its meaning.

    >>> judged(402.1234)
    'epsilon 402.1: this protects nobody; aim for 1 to 3'
    """
    figure = "without bound" if epsilon is None or not epsilon < math.inf else f"{epsilon:.4g}"
    return f"epsilon {figure}: {meaning(epsilon)}"
