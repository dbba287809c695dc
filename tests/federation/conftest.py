"""A small federation in memory: terms, users with keys, a policy and the shuffler's key."""

import os
from dataclasses import asdict, dataclass

import numpy as np
import pytest

# Flower's commands import it, and it binds a socket while it is imported, which a unit test may not.
import urllib3.util.connection  # noqa: F401
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from parties import ANALYZER, BUDGETS, OTHER_RUN, RECEIPTS, RUN, agreed, announced, public

from apes.federation.terms import FederationTerms
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.rounds import Keys
from apes.wire.envelope import seal
from apes.wire.packing import packed


@dataclass(frozen=True)
class Small:
    """Eight users, 3 classes of 4 features (15 coordinates), 16 levels."""

    terms: FederationTerms
    keys: list
    shuffler: X25519PrivateKey
    policy: Policy

    @property
    def services_keys(self):
        return Keys(self.shuffler, RECEIPTS)

    def announced(self, number=1, terms=None, **choices):
        return announced(terms or self.terms.digest, number, **choices)

    def report(self, user, levels=None, budget=None, key=None, **bound):
        """A sealed report as an honest user's vault would make it, but for what is asked otherwise."""
        budget = BUDGETS[user] if budget is None else budget
        if levels is None:
            levels = np.full(self.terms.dimensions, user % self.terms.levels, dtype=np.uint8)
        key = self.keys[user] if key is None else key
        report = packed(levels, self.terms.levels)
        return seal(report, budget, self.announced(**bound).binding, key, self.shuffler.public_key())


@pytest.fixture(scope="session")
def small():
    terms = agreed()
    keys = [Ed25519PrivateKey.generate() for _ in range(8)]
    policy = Policy(
        terms=terms.digest,
        runs=(RUN, OTHER_RUN),
        rounds=3,
        dimensions=terms.dimensions,
        levels=16,
        charged=terms.charged,
        delta=1e-3,
        **asdict(terms.limits),
        analyzer=public(ANALYZER),
        senders=tuple(public(key) for key in keys),
        budgets=tuple(BUDGETS.tolist()),
    )
    return Small(terms, keys, X25519PrivateKey.generate(), policy)


@pytest.fixture
def noise():
    """Random byte strings, as many as asked for."""
    return lambda count, longest=300: [
        os.urandom(int(size)) for size in np.random.default_rng(5).integers(0, longest, count)
    ]
