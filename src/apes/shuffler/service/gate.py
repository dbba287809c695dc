"""The shuffler's gate: no round is released that would bring anybody's certified epsilon beyond the target.

The shuffler alone knows, before a release, who is in it; so it asks the accountant, with just those budgets.
"""

import threading
from collections.abc import Callable

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.mathematics.arrays import F64
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.wire.release import Release


class Gate:
    """Accountants of the runs, charged with what was released; after a restart, from the ledger.

    Guarantee:
        What the ledger holds of a run is within the target, in whatever order its rounds come, and however many at
        once; a ledger that was beyond it when the target was set gets nothing added.
    """

    def __init__(self, policy: Policy, ledger: ShufflerLedger) -> None:
        self._policy, self._ledger, self._lock = policy, ledger, threading.Lock()
        self._accountants: dict[str, Accountant] = {}

    def passes(self, run: str, budgets: F64, close: Callable[[], None]) -> bool:
        """Close a round with these participants if it keeps the run within the target; say whether it does.

        All in one piece and in one thread: a caller who goes away cannot come between ledger and accountant. If
        ``close`` fails, nothing is charged.
        """
        policy = self._policy
        with self._lock:
            if policy.target_epsilon is None:
                close()
                return True
            accountant, exposure = self._of(run), self._exposure(budgets)
            if not accountant.allows(exposure):
                return False
            close()
            accountant.record(exposure)
            return True

    def _of(self, run: str) -> Accountant:
        if run not in self._accountants:
            policy = self._policy
            accountant = Accountant(policy.delta, expected_rounds=policy.rounds, target=policy.target_epsilon)
            for release in self._ledger.releases(run):
                # What is in the ledger is out, and has to be counted whatever it comes to.
                accountant.record(self._exposure(Release.decode(release).batch.budgets))
            self._accountants[run] = accountant
        return self._accountants[run]

    def _exposure(self, budgets: F64) -> Exposure:
        policy = self._policy
        # Without top-b-first, fewer coordinates than there are can only be those of a random choice.
        thin = "random-b" if policy.charged < policy.dimensions and policy.top_b_first is None else None
        sizes = policy.charged, policy.levels, policy.top_b_first
        d, clip, norm = policy.dimensions, policy.clip, policy.norm
        return Exposure(budgets, *sizes, dimensions=d, sparsifier=thin, clip=clip, norm=norm)
