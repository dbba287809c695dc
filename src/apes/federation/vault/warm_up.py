"""What a vault does before it listens: compile its loops, so that its first answer takes no longer than any other."""

import numpy as np

from apes.federation.terms import FederationTerms
from apes.federation.vault.holdings import Holdings
from apes.mathematics.randomness import SystemSource
from apes.models.model import Model


def warm_up(terms: FederationTerms, holdings: Holdings, model: Model) -> None:
    """Draw a report of the first user at weights of zero, and throw it away."""
    weights = np.zeros(terms.dimensions, dtype=np.float32)
    terms.terms.device_client(model).levels(weights, holdings.population.block(0, 1), SystemSource())
