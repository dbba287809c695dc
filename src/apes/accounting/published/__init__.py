"""Published bounds, as printed: what the paper and its baselines claim. None of them is our guarantee.

Each bound takes the local budgets of all users (nats per coordinate, each in (0, inf)) and a delta in (0, 1), and
returns a central epsilon per coordinate, in nats. Those found by a search are rounded up, and at most the largest
budget e0, which needs no theorem: reports of e0-LDP are (e0, 0)-DP. Arguments out of range raise ParameterError, and a
population for which a bound's condition does not hold RegimeError. docs/published-bounds.md says what each figure is,
and why a published figure is not a certified one.
"""

from collections.abc import Callable

from apes.accounting import Array
from apes.accounting.published.blanket import bbgn19_bennett, bbgn19_hoeffding
from apes.accounting.published.clones import fmt22_closed, fmt22_numeric
from apes.accounting.published.echoes import eon_closed, eon_numeric
from apes.accounting.published.uniform import erlingsson19, gddtk21

PUBLISHED: dict[str, Callable[[Array, float], float]] = {
    "bbgn19_bennett": bbgn19_bennett,
    "bbgn19_hoeffding": bbgn19_hoeffding,
    "eon_closed": eon_closed,
    "eon_numeric": eon_numeric,
    "erlingsson19": erlingsson19,
    "fmt22_closed": fmt22_closed,
    "fmt22_numeric": fmt22_numeric,
    "gddtk21": gddtk21,
}
