"""Published bounds, as printed: what the paper and its baselines claim. None of them is our guarantee.

Each bound takes the local budgets of all users (nats per coordinate, each in (0, inf)) and a delta in (0, 1), and
returns a central epsilon per coordinate, in nats. Those found by a search are rounded up, and at most the largest
budget e0, which needs no theorem: reports of e0-LDP are (e0, 0)-DP. Arguments out of range raise ParameterError, and a
population for which a bound's condition does not hold RegimeError. docs/published-bounds.md says what each figure is,
and why a published figure is not a certified one.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from apes.accounting.published.blanket import bbgn19_bennett, bbgn19_hoeffding
from apes.accounting.published.clones import fmt22_closed, fmt22_numeric
from apes.accounting.published.early import erlingsson19
from apes.accounting.published.echoes import eon_closed, eon_delta, eon_numeric, mean_echoes
from apes.accounting.published.renyi import gddtk21
from apes.accounting.published.user_level import (
    DeltaConvention,
    UserLevel,
    advanced_composition,
    user_apes,
    user_s_apes,
)

__all__ = [
    "PUBLISHED",
    "DeltaConvention",
    "PublishedBound",
    "UserLevel",
    "advanced_composition",
    "bbgn19_bennett",
    "bbgn19_hoeffding",
    "eon_closed",
    "eon_delta",
    "eon_numeric",
    "erlingsson19",
    "fmt22_closed",
    "fmt22_numeric",
    "gddtk21",
    "mean_echoes",
    "user_apes",
    "user_s_apes",
]

PublishedBound = Callable[[NDArray[np.float64], float], float]

PUBLISHED: dict[str, PublishedBound] = {
    "bbgn19_bennett": bbgn19_bennett,
    "bbgn19_hoeffding": bbgn19_hoeffding,
    "eon_closed": eon_closed,
    "eon_numeric": eon_numeric,
    "erlingsson19": erlingsson19,
    "fmt22_closed": fmt22_closed,
    "fmt22_numeric": fmt22_numeric,
    "gddtk21": gddtk21,
}
