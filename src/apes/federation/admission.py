"""Admission: the shuffler's policy, made of cards. What is wrong with a card is said in one line that names the card.

Only who has the shuffler's key can admit: it opens the users' budgets, which the policy holds, a secret file.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.checks import positive_array
from apes.errors import ParameterError
from apes.federation.card import Card
from apes.federation.invitation import Invitation, read_invitation
from apes.federation.members import changing, check_apart, members, put_in_force, without
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Layout
from apes.shuffler.service.policy import Limits, Policy
from apes.storage.settings import read_key


def admit(folder: Path, cards: Mapping[Card, str]) -> Policy:
    """Write the shuffler's policy, which admits exactly these cards' users, and their couriers' keys.

    Cards have names, of their files, say, by which they are called if they cannot be admitted.

    Raises:
        ParameterError: If a card cannot be admitted, or all of them together are too few for a round.
    """
    return _put_in_force(folder, cards, is_enough_needed=True)


def _put_in_force(folder: Path, cards: Mapping[Card, str], *, is_enough_needed: bool) -> Policy:
    layout = Layout(folder)
    invitation, terms, _ = read_invitation(layout.invitation)
    key = read_key(layout.shuffler / "shuffler.key", X25519PrivateKey.from_private_bytes)
    budgets: list[float] = []
    for card, name in cards.items():
        with _naming(name):
            budgets += _taken(card, terms, invitation, key)
    check_apart(cards)
    senders = tuple(sender for card in cards for sender in card.senders)
    if is_enough_needed:
        terms.taken.check_enrolled(len(senders))
    thin = terms.terms.sparsification
    policy = Policy(
        **asdict(terms.taken),
        terms=terms.digest,
        runs=(invitation.run,),
        rounds=terms.rounds,
        dimensions=terms.dimensions,
        levels=terms.levels,
        charged=terms.charged,
        delta=terms.terms.central_delta(1),
        top_b_first=None if thin is None else thin.top_b_first(terms.dimensions),
        clip=terms.terms.clip,
        norm=terms.terms.norm,
        target_epsilon=terms.target,
        analyzer=invitation.analyzer_key,
        senders=senders,
        budgets=tuple(budgets),
    )
    put_in_force(folder, policy, cards.keys())
    return policy


def admit_more(folder: Path, cards: Mapping[Card, str]) -> Policy:
    """Admit these cards' users beside those who are there; a card that is there already, whole, may come again."""
    with changing(folder):
        return admit(folder, {**members(folder, Card), **cards})


def dismiss(folder: Path, cards: Mapping[Card, str]) -> Policy:
    """Admit these cards' users no longer; everybody else stays, also if they are too few for a round then.

    A member whose key was stolen can always be dismissed: the shuffler releases no round of too few.

    Raises:
        ParameterError: If nobody would be left, or a card shares a key with one that stays.
    """
    with changing(folder):
        stay = without(members(folder, Card), cards)
        if not stay:
            raise ParameterError("cards must leave at least one member; to dismiss all of them, stop the shuffler")
        return _put_in_force(folder, stay, is_enough_needed=False)


def check_size(limits: Limits, senders: int) -> None:
    """Raise unless a card may have so many senders: more might be one hand's, and would hide nobody."""
    if senders > limits.largest_card:
        raise ParameterError(f"a card must have at most {limits.largest_card} senders (largest_card), got {senders}")


def _taken(card: Card, terms: FederationTerms, invitation: Invitation, key: X25519PrivateKey) -> tuple[float, ...]:
    """The budgets of a card that may be admitted."""
    check_size(terms.limits, len(card.senders))
    budgets = card.opened(invitation, key)
    terms.taken.check(positive_array("budgets", budgets))
    return budgets


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which card an error is."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
