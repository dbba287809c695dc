"""The shuffler's gate: no round is released that would bring anybody's certified epsilon beyond the target.

A round is charged by the roster and the number of reports in it: for the honest with the largest budgets that may be
there. Whoever chose who is in it, that covers them; and what the gate says tells nobody whose budgets they are.
"""

import threading
from collections.abc import Callable

import numpy as np

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.roster import charged_as, with_later
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.wire.receipt import Receipt
from apes.wire.release import receipt_of


class Gate:
    """Accountants of the runs, charged with what was released; after a restart, from the ledger.

    Guarantee:
        What the ledger holds of a run is within the target, in whatever order its rounds come, and however many at
        once; a ledger that was beyond it when the target was set gets nothing added.
    """

    def __init__(self, policy: Policy, ledger: ShufflerLedger) -> None:
        self._policy, self._ledger, self._lock = policy, ledger, threading.Lock()
        self._accountants: dict[str, Accountant] = {}

    def passes(self, receipt: Receipt, close: Callable[[], None]) -> bool:
        """Close a round of which this is the receipt if it keeps the run within the target; say whether it does.

        All in one piece and in one thread: a caller who goes away cannot come between ledger and accountant. If
        ``close`` fails, nothing is charged.
        """
        with self._lock:
            if self._policy.target_epsilon is None:
                close()
                return True
            accountant, exposure = self._of(receipt.run), self._exposure(receipt)
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
                accountant.record(self._exposure(receipt_of(release)))
            self._accountants[run] = accountant
        return self._accountants[run]

    def _exposure(self, receipt: Receipt) -> Exposure:
        policy = self._policy
        roster = np.array(list(self._ledger.roster(receipt.run, policy.members).values()))
        enrolled = with_later(roster, receipt.later, policy.largest_budget)
        budgets = charged_as(enrolled, receipt.users, policy.distrusted)
        # Without top-b-first, fewer coordinates than there are can only be those of a random choice.
        thin = "random-b" if policy.charged < policy.dimensions and policy.top_b_first is None else None
        sizes = policy.charged, policy.levels, policy.top_b_first
        d, clip, norm = policy.dimensions, policy.clip, policy.norm
        return Exposure(budgets, *sizes, dimensions=d, sparsifier=thin, clip=clip, norm=norm)
