"""What a vault's users have spent and may still spend; for their owner, beside a vault that runs."""

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from apes.federation.vault.folder import VAULT, read_vault
from apes.federation.vault.ledger import local_epsilon, read_spending


@dataclass(frozen=True)
class UserAccount:
    """One user's account with the vault; every epsilon is local, in nats, and holds whoever reads the reports."""

    budget: float  # per coordinate and round
    rounds: int  # that were answered, of all runs
    spent: float  # what they cost, over all coordinates
    allowance: float | None  # what the user grants in all; None if it has no limit
    rounds_left: int | None  # that the vault will still answer for the user; None if they have no limit


def read_accounts(folder: Path) -> list[UserAccount]:
    """Read the accounts of the users of a device or silo; nothing is changed, and its vault may be running."""
    settings, terms, holdings = read_vault(folder / VAULT)
    budgets, allowances = holdings.population.budgets.tolist(), holdings.allowances.tolist()
    spending, accounts = read_spending(folder / settings.ledger, len(budgets)), []
    for budget, allowance, rounds in zip(budgets, allowances, spending, strict=True):
        granted = allowance if math.isfinite(allowance) else None
        left = None if granted is None else rounds_left(rounds, terms.charged * budget, granted)
        accounts.append(UserAccount(budget, rounds.total(), local_epsilon(rounds), granted, left))
    return accounts


def rounds_left(spent: Mapping[float, int], cost: float, allowance: float) -> int:
    """How many more rounds at this cost fit into an allowance, by the sum that the vault itself forms; in nats.

    ``spent`` counts the rounds so far, by what one of them cost.
    """

    def after(further: int) -> float:
        return local_epsilon({**spent, cost: spent.get(cost, 0) + further})

    most = min(allowance / cost + 2, sys.maxsize / 2)
    return bisect_right(range(1, int(most)), allowance, key=after)
