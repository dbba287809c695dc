"""What is chosen where nobody chooses: for every command, the page and Python. Imports nothing, so that help is quick.

Without options everything is about one training, that of `apes train`: `USERS` people with budgets by `BUDGETS` learn
`DATA` under an open plan. Reports are one bit per coordinate of updates within a norm; clip bound and cap on budgets
are fitted to the people, so that `ROUNDS` rounds together cost nobody more than `TARGET_EPSILON` (`apes.fitted`).
The paper's setting is the preset `PAPER`.
"""

from typing import Any

FRAMEWORK = "apes"
TARGET_EPSILON = 1.0
"""Certified central epsilon of anybody over all rounds, of an open plan."""
ROUNDS = 60
"""Rounds of an open plan."""
NORM = 1.0
"""R of an open plan, the bound of an update's L2 norm: rows of norm 9 give updates of about that size."""
NORM_TO_CLIP = 10.0
"""R / C up to which a fitted clip bound goes: clipping of single coordinates does not show yet (docs/fitting.md)."""

CLIP = 0.1
"""C of a plan that is not open: one with a clip bound, levels or another framework."""
ROUNDS_NOT_OPEN = 40
"""Rounds of such a plan."""

DATA = "digits"
FEATURES = "oriented-gradients"
DIMENSIONS = 2010
"""Coordinates of what is trained on these data and features: ten classes of 200 oriented gradients and a bias."""
DIMENSIONS_OF_PIXELS = 7850
"""Coordinates of what is trained on pixels: ten classes of 784 and a bias."""
USERS = 10_000
BUDGETS = "uniform2"

FEDERATION_USERS, FEDERATION_SILOS = 1_000, 10
"""People of a trial federation on one machine, and the vaults that they are spread over: a minute or two of work."""

DELTA_IN_WORDS = "1 / 10 n"

PRIVATE, PAPER = "private", "paper"
PRESETS: dict[str, dict[str, Any]] = {PRIVATE: {}, PAPER: {"clip": CLIP, "features": "pixels"}}
"""What is chosen where nothing else is: the best we know at the target; or the paper's, which protects nobody."""


def default_delta(users: int) -> float:
    """Delta of a central guarantee for so many users."""
    return 1 / (10 * users)
