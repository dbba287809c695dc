"""Members of a federation: the cards that were admitted, kept beside the policy that was made of them.

Cards lie in the shuffler's folder, under the digest of the policy's file. So the policy says which cards count, and
replacing that one file changes both: whoever is killed on the way leaves the old members or the new.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
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
    """What is a card here: a frozen dataclass that names a node by its key."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def node(self) -> str:
        """Public key of its node, one line of OpenSSH's format."""


C = TypeVar("C", bound=HasNode)
_POLICY = "policy.json"
_CARDS = "cards"


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """One who changes the members at a time; others wait."""
    held = lock(Layout(folder).shuffler / _POLICY, wait=True)
    try:
        yield
    finally:
        os.close(held)


def members(folder: Path, kind: type[C]) -> list[C]:
    """The cards, of class ``kind``, that the policy in force was made of."""
    shuffler = Layout(folder).shuffler
    try:
        policy = (shuffler / _POLICY).read_bytes()
        plain = json.loads((shuffler / _CARDS / _name_of(policy)).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"who was admitted to {folder} cannot be read: {error}; admit all cards again") from None
    return [from_plain(card, kind, f"{shuffler / _CARDS}, card {number}") for number, card in enumerate(plain, 1)]


def with_new(cards: list[C], new: list[C]) -> list[C]:
    """Cards and new ones; one that is there already, whole, may come again.

    Raises:
        ParameterError: If a new card has the node of another.
    """
    joined = {card.node: card for card in cards}
    for card in new:
        if joined.setdefault(card.node, card) != card:
            raise ParameterError("cards must have nodes of their own; one of the new has another's: dismiss that first")
    return list(joined.values())


def without(cards: list[C], gone: list[C]) -> list[C]:
    """Cards but for those that go; who is not there may go again."""
    nodes = {card.node for card in gone}
    return [card for card in cards if card.node not in nodes]


def put_in_force(folder: Path, policy: Policy, cards: list[C]) -> None:
    """Write a policy, which a running shuffler takes when it is asked next, the cards, and the keys of their nodes."""
    layout = Layout(folder)
    data = (json.dumps(asdict(policy), indent=1) + "\n").encode()
    kept = layout.shuffler / _CARDS / _name_of(data)
    plain = [asdict(card) for card in cards]
    write_bytes(kept, (json.dumps(plain, indent=1) + "\n").encode(), 0o600)
    write_bytes(layout.shuffler / _POLICY, data, 0o600)
    _remove_others(kept.parent, {kept.name})
    nodes = layout.superlink / "nodes"
    keys = {f"node-{hashlib.sha256(card.node.encode()).hexdigest()[:16]}.pub": card.node for card in cards}
    for name, key in keys.items():
        write_bytes(nodes / name, key.encode())
    _remove_others(nodes, keys.keys())


def _name_of(policy: bytes) -> str:
    return f"{hashlib.sha256(policy).hexdigest()}.json"


def _remove_others(folder: Path, names: Collection[str]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
