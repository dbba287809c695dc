"""The shuffler's gate: no round is released that would bring anybody's certified epsilon beyond the target.

The shuffler alone knows, before a release, who is in it; so it asks the accountant, with just those budgets.
"""

import numpy as np
from numpy.typing import NDArray

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.wire.release import Release


class Gate:
    """Accountants of the runs, charged with what was released; after a restart, from the ledger.

    Args:
        policy: Target and delta, and what is charged for.
        ledger: What was released before.
    """

    def __init__(self, policy: Policy, ledger: ShufflerLedger) -> None:
        self._policy, self._ledger = policy, ledger
        self._accountants: dict[str, Accountant] = {}

    def allows(self, run: str, budgets: NDArray[np.float64]) -> bool:
        """Whether a round with these participants keeps the run within the target."""
        return self._policy.target_epsilon is None or self._of(run).allows(self._exposure(budgets))

    def note(self, run: str, budgets: NDArray[np.float64]) -> None:
        """Charge a round that was allowed and is on the disk."""
        if self._policy.target_epsilon is not None:
            self._of(run).charge(self._exposure(budgets))

    def _of(self, run: str) -> Accountant:
        if run not in self._accountants:
            policy = self._policy
            accountant = Accountant(policy.delta, expected_rounds=policy.rounds, target=policy.target_epsilon)
            for release in self._ledger.releases(run):
                accountant.charge(self._exposure(Release.decode(release).batch.budgets))
            self._accountants[run] = accountant
        return self._accountants[run]

    def _exposure(self, budgets: NDArray[np.float64]) -> Exposure:
        policy = self._policy
        return Exposure(budgets, policy.charged, policy.levels, policy.top_b_first, dimensions=policy.dimensions)
