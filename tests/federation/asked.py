"""What a vault said and what it cost, be it a process or in this one."""

import numpy as np
from parties import BUDGETS, opened

from apes.federation.vault.vault import VaultRefusal

WORDS = {refusal.value for refusal in VaultRefusal}


def is_answered(vault, small, number):
    """Whether a round gets a report of everybody."""
    levels, budgets, senders = opened(vault.sealed(number), small.shuffler)
    return (
        levels.shape == (8, 15)
        and levels.max() < 16
        and (budgets == BUDGETS).all()
        and [sender.hex() for sender in senders] == list(small.policy.senders)
    )


def word(vault, data):
    """The word that the vault refuses these bytes with; nothing else may come out."""
    answer = vault.ask(data)
    assert answer[:1] == b"\1"
    assert answer[1:].decode("ascii") in WORDS
    return answer[1:].decode("ascii")


def spent(vault):
    """What each user has spent, by the ledger."""
    return vault.rows("select user, epsilon, rounds from spent order by user, epsilon")


def nan_weights():
    """Weights that are no numbers, as many as the terms say."""
    return np.full(15, np.nan, "<f4").tobytes()
