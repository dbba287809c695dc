"""The vault: holds the users' data, budgets, keys and randomizer; hands out one sealed report per round."""

import sqlite3
import threading
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from apes.errors import ProtocolError
from apes.federation.terms import FederationTerms
from apes.federation.vault.charges import Charge, Grant
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import Answer, VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.witness import LedgerLost
from apes.mathematics.randomness import SystemSource
from apes.models.model import Model
from apes.wire.announcement import Announcement, Unsigned, parse_announcement
from apes.wire.envelope import Binding, seal
from apes.wire.frames import framed
from apes.wire.packing import packed


class VaultRefusal(StrEnum):
    """Why a vault does not answer. These words are all that a refusal says."""

    REQUEST = "request"
    TERMS = "terms"
    RUN = "run"
    ROUND = "round"
    ANNOUNCEMENT = "announcement"
    PAST = "past"
    WEIGHTS = "weights"
    ALLOWANCE = "allowance"
    LEDGER = "ledger"
    INTERNAL = "internal"


class VaultRefused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The vault does not answer, for the reason given."""

    def __init__(self, reason: VaultRefusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True)
class Request:
    """The only request there is: a sealed report on an announced round."""

    announcement: bytes  # signed (`apes.wire.announcement`)
    weights: bytes  # little-endian float32 numbers


def charges_of(terms: FederationTerms, holdings: Holdings, lifetime: Lifetime) -> list[Charge]:
    """What one round costs each user; locally, every coordinate that data goes into spends the whole budget."""
    budgets = holdings.population.budgets
    local, central = (terms.charged * budgets).tolist(), lifetime.costs(terms, budgets)
    return [Charge(own, cost.mu_squared, cost.delta) for own, cost in zip(local, central, strict=True)]


@dataclass(eq=False)
class Vault:
    """Answers the analyzer's announcements under the terms that its owner accepted, in increasing order of rounds.

    Guarantee:
        For every user, run and round at most one report ever leaves, on one announcement, which the analyzer signed and
        which the report is bound to; what it costs is on the disk before it leaves;
        nobody's spending exceeds their allowance, nor, centrally, the limit of the ledger, whatever other vaults share
        it, as long as the shuffler keeps to what was agreed. Nothing but sealed reports and words of `VaultRefusal`
        comes out.
    """

    terms: FederationTerms
    runs: tuple[str, ...]  # in hexadecimal
    holdings: Holdings
    shuffler: X25519PublicKey  # whom reports are sealed to
    analyzer: Ed25519PublicKey  # whose announcements are answered
    ledger: VaultLedger  # what was answered and spent
    model: Model  # the owner's own, that the terms are about (`apes.federation.vault.model`)

    def __post_init__(self) -> None:
        self._digest, self._lock = self.terms.digest, threading.Lock()
        self._client = self.terms.terms.device_client(self.model)
        self._charges = charges_of(self.terms, self.holdings, self.ledger.lifetime)

    def answer(self, request: Request) -> bytes:
        """Return the sealed reports of this round, framed: fresh ones once, the same ones ever after."""
        announced = self.announced(request)
        run = announced.run.hex()
        with self._lock:
            try:
                kept = self.ledger.find(run, announced.round)
                if kept is None:
                    with self.ledger.transaction():
                        return self._draw(announced, request.weights)
            except (sqlite3.Error, OSError, LedgerLost):
                raise VaultRefused(VaultRefusal.LEDGER) from None
        if kept.announcement != announced.digest:
            raise VaultRefused(VaultRefusal.ANNOUNCEMENT)
        if kept.answer is None:
            raise VaultRefused(VaultRefusal.PAST)
        return kept.answer

    def announced(self, request: Request) -> Announcement:
        """What a request is about, if it is the analyzer's and within what the owner accepted."""
        try:
            announced = parse_announcement(request.announcement, self.analyzer)
        except Unsigned:
            raise VaultRefused(VaultRefusal.ANNOUNCEMENT) from None
        except ProtocolError:
            raise VaultRefused(VaultRefusal.REQUEST) from None
        if announced.terms.hex() != self._digest:
            raise VaultRefused(VaultRefusal.TERMS)
        if announced.run.hex() not in self.runs:
            raise VaultRefused(VaultRefusal.RUN)
        if not announced.round <= self.terms.rounds:
            raise VaultRefused(VaultRefusal.ROUND)
        if not announced.is_of(request.weights):
            raise VaultRefused(VaultRefusal.WEIGHTS)
        return announced

    def _draw(self, announced: Announcement, raw: bytes) -> bytes:
        run, number = announced.run.hex(), announced.round
        if number <= self.ledger.last_round(run):
            raise VaultRefused(VaultRefusal.PAST)
        is_whole = len(raw) == 4 * self.terms.dimensions
        weights = np.frombuffer(raw if is_whole else b"", dtype="<f4").astype(np.float32)
        if not is_whole or not np.isfinite(weights).all():
            raise VaultRefused(VaultRefusal.WEIGHTS)
        willing = self._willing()
        if not willing:
            raise VaultRefused(VaultRefusal.ALLOWANCE)
        answer = b"".join(framed(self._reports(weights, willing, announced.binding)))
        charges = {user: self._charges[user] for user in willing}
        self.ledger.keep_previous(run, number, announced.previous)
        self.ledger.record(run, number, Answer(announced.digest, answer), charges)
        return answer

    def _willing(self) -> list[int]:
        """Users whom one more round keeps within what they grant."""
        limit, allowances, willing = self.ledger.lifetime.limit, self.holdings.allowances.tolist(), []
        for user, rounds in enumerate(self.ledger.spending()):
            rounds[self._charges[user]] += 1
            if Grant(allowances[user], limit).covers(rounds):
                willing.append(user)
        return willing

    def _reports(self, weights: NDArray[np.float32], willing: list[int], binding: Binding) -> list[bytes]:
        keys, source, sealed = self.holdings.keys, SystemSource(), []
        for block in self.holdings.blocks():
            first, budgets = block.first_user, block.budgets
            users = [user for user in willing if first <= user < first + budgets.size]
            if users:
                levels = self._client.levels(weights, block, source)
                for user in users:
                    budget, report = float(budgets[user - first]), packed(levels[user - first], self.terms.levels)
                    sealed.append(seal(report, budget, binding, keys[user], self.shuffler))
        return sealed
