"""Members of a federation: the cards that were admitted, kept beside the policy that was made of them.

Cards lie in the shuffler's folder, under the digest of the policy's file. So the policy says which cards count, and
replacing that one file changes both: whoever is killed on the way leaves the old members or the new.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from apes.errors import DataError, ParameterError
from apes.federation.trial.layout import Layout
from apes.shuffler.service.policy import Policy
from apes.storage.files import write_bytes
from apes.storage.locks import lock
from apes.storage.settings import from_plain


class HasNode(Protocol):
    """What is a card here: a frozen dataclass that names a node and senders by their keys."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def node(self) -> str:
        """Public key of its node, one line of OpenSSH's format."""

    @property
    def senders(self) -> tuple[str, ...]:
        """Public keys of its users, in hexadecimal."""


C = TypeVar("C", bound=HasNode)
_POLICY = "policy.json"
_CARDS = "cards"


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """One who changes the members at a time; others wait.

    Raises:
        DataError: If the shuffler's folder is another account's.
    """
    check_owner(Layout(folder).shuffler)
    held = lock(Layout(folder).shuffler / _POLICY, wait=True)
    try:
        yield
    finally:
        os.close(held)


def check_owner(folder: Path) -> None:
    """Raise unless a folder, if it is there, is this account's own.

    What is made in another's would not be theirs to read; and whoever owns it may have put links there, which root
    would follow.
    """
    if folder.exists() and folder.stat().st_uid != os.geteuid():
        raise DataError(f"{folder} belongs to account number {folder.stat().st_uid}: do this under that account")


def members(folder: Path, kind: type[C]) -> dict[C, str]:
    """The cards, of class ``kind``, that the policy in force was made of, and where each is kept."""
    shuffler = Layout(folder).shuffler
    try:
        policy = (shuffler / _POLICY).read_bytes()
        plain = json.loads((shuffler / _CARDS / _name_of(policy)).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"who was admitted to {folder} cannot be read: {error}; admit all cards again") from None
    places = [f"{shuffler / _CARDS}, card {number}" for number in range(1, len(plain) + 1)]
    return {from_plain(card, kind, place): place for card, place in zip(plain, places, strict=True)}


def check_apart(cards: Mapping[C, str]) -> None:
    """Raise if two cards, whose names are given, have a node or a sender in common; the message names both cards."""
    owners: dict[str, str] = {}
    for card, name in cards.items():
        for key in (card.node, *card.senders):
            if key in owners:
                what = "nodes" if key == card.node else "senders"
                raise ParameterError(f"cards must have {what} of their own; {owners[key]} and {name} share {key}")
        owners |= dict.fromkeys((card.node, *card.senders), name)


def without(cards: Mapping[C, str], gone: Mapping[C, str]) -> dict[C, str]:
    """Cards but for those that go; who is not there may go again.

    Raises:
        ParameterError: If one that goes is not there but shares a node or a sender with one that is: whoever made it
            may want somebody else to go.
    """
    stay = {card: name for card, name in cards.items() if card not in gone}
    for card, name in gone.items():
        if card not in cards:
            check_apart({**stay, card: name})
    return stay


def put_in_force(folder: Path, policy: Policy, cards: Collection[C]) -> None:
    """Write a policy, which a running shuffler takes when it is asked next, the cards, and the keys of their nodes."""
    layout = Layout(folder)
    data = (json.dumps(asdict(policy), indent=1) + "\n").encode()
    kept = layout.shuffler / _CARDS / _name_of(data)
    plain = [asdict(card) for card in cards]
    write_bytes(kept, (json.dumps(plain, indent=1) + "\n").encode(), 0o600)
    write_bytes(layout.shuffler / _POLICY, data, 0o600)
    _remove_others(kept.parent, "*.json*", {kept.name})
    nodes = layout.superlink / "nodes"
    keys = {f"node-{hashlib.sha256(card.node.encode()).hexdigest()[:16]}.pub": card.node for card in cards}
    for name, key in keys.items():
        write_bytes(nodes / name, key.encode())
    _remove_others(nodes, "*node-*.pub*", keys.keys())


def _name_of(policy: bytes) -> str:
    return f"{hashlib.sha256(policy).hexdigest()}.json"


def _remove_others(folder: Path, ours: str, names: Collection[str]) -> None:
    """Remove what is ours, by a pattern, but for these names: nothing that somebody else keeps there."""
    for path in folder.glob(ours):
        if path.name not in names:
            path.unlink()
