"""The shuffler's gate: no round is released that would bring anybody's certified epsilon beyond the target.

A round is charged by the roster and the number of reports in it: for the honest with the largest budgets that may be
there. Whoever chose who is in it, that covers them; and what the gate says tells nobody whose budgets they are.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.roster import charged_as, with_later
from apes.shuffler.service.ledger import RoundClosed, ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.wire.receipt import Receipt
from apes.wire.release import receipt_of


@dataclass
class _Book:
    """An accountant of a run, and the rounds that it has counted so far."""

    accountant: Accountant
    counted: set[int] = field(default_factory=set)


class Gate:
    """Accountants of the runs, charged with what the ledger holds, whoever wrote it.

    Guarantee:
        What the ledger holds of a run is within the target, in whatever order its rounds come, however many at once,
        and however many shufflers share it; a ledger that was beyond it when the target was set gets nothing added.
    """

    def __init__(self, policy: Policy, ledger: ShufflerLedger) -> None:
        self._policy, self._ledger = policy, ledger
        self._books: dict[str, _Book] = {}

    def passes(self, receipt: Receipt, close: Callable[[], None]) -> bool:
        """Close a round of which this is the receipt if it keeps the run within the target; say whether it does.

        All in one transaction, so nobody else closes a round of the run meanwhile, be it in this process or in
        another; and in one thread: a caller who goes away cannot come between. What is charged is what the ledger
        holds, so if ``close`` fails, nothing is.

        Raises:
            RoundClosed: If it is over already.
        """
        run, number = receipt.run, receipt.round
        with self._ledger.transaction(run):
            if self._ledger.find(run, number) is not None:
                raise RoundClosed(f"round {number} is over already")
            if self._policy.target_epsilon is not None and not self._of(run).allows(self._exposure(receipt)):
                return False
            close()
            return True

    def _of(self, run: str) -> Accountant:
        policy = self._policy
        if run not in self._books:
            accountant = Accountant(policy.delta, expected_rounds=policy.rounds, target=policy.target_epsilon)
            self._books[run] = _Book(accountant)
        book = self._books[run]
        for number in self._ledger.numbers(run):
            closed = None if number in book.counted else self._ledger.find(run, number)
            if closed is not None:
                # What is in the ledger is out, and has to be counted whatever it comes to.
                book.accountant.record(self._exposure(receipt_of(closed.release)))
                book.counted.add(number)
        return book.accountant

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
