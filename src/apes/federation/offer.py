"""What somebody is asked to agree to, in figures, before anything is made."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from apes.accounting.certificate.joint_clipping import local_norm_epsilon
from apes.accounting.cost import Cost
from apes.accounting.guarantee import cover_of
from apes.accounting.local import local_user_epsilon
from apes.accounting.victims import Victims
from apes.accounting.words import meaning
from apes.federation.agreed_model import plain_model
from apes.federation.installed import InstalledModel
from apes.federation.terms import FederationTerms
from apes.federation.vault.lifetime import Lifetime
from apes.mathematics.arrays import F64

# A certificate takes half a second; whoever is asked wants a few lines.
_MOST_BUDGETS = 5


@dataclass(frozen=True)
class Price:
    """What the whole run may tell about somebody, by their budget; epsilons in nats, None where no bound is finite.

    Attributes:
        budget: Local, as it is used: per coordinate and round.
        users: How many of those who join have it, or less than it and more than the one before.
        report: Local epsilon of a whole report, one round.
        colluding: Local epsilon of all reports of all rounds: what is left if shuffler and analyzer collude.
        colluding_delta: That it holds up to: 0, or the terms' delta where a norm makes it smaller.
        central: Certified epsilon over all rounds at the terms' delta, had every round been of the smallest cohort.
        meaning: What that comes to, in words.
    """

    budget: float
    users: int
    report: float
    colluding: float | None
    colluding_delta: float
    central: float | None
    meaning: str


@dataclass(frozen=True)
class Offer:
    """All of it, as an invitation and its terms say, for people with certain budgets.

    Attributes:
        model: What is trained, by name; of an installed one ``module:attribute``.
        model_digest: Of an installed one, 64 hexadecimal digits; None for those built in.
        columns: Names of the columns that are learned from, in order; None where rows are numbers.
        label: Name of the column that is learned; None where rows are numbers.
        features: Numbers per row, or None if only the model knows.
        feature_map: What is done to rows first, by name.
        dimensions: Coordinates of a report.
        rounds: Of the run.
        smallest_cohort: Fewest whom one hides among, oneself included.
        delta: Of all central figures.
        target: Epsilon that no release passes; None if there is none.
        lifetime: Epsilon that the own vault never passes, over all runs and federations; None without a limit.
        prices: By budget, the smallest first.
        trusted: Whom one relies on for what.
        fingerprints: To compare by another channel, by what they are of.
    """

    model: str
    model_digest: str | None
    columns: tuple[str, ...] | None
    label: str | None
    features: int | None
    feature_map: str
    dimensions: int
    rounds: int
    smallest_cohort: int
    delta: float
    target: float | None
    lifetime: float | None
    prices: tuple[Price, ...]
    trusted: tuple[str, ...]
    fingerprints: dict[str, str]
    caveats: tuple[str, ...] = ()


def offer_of(terms: FederationTerms, budgets: F64, lifetime: Lifetime, fingerprints: dict[str, str]) -> Offer:
    """What these terms come to for people with these budgets, as they chose them."""
    groups, schema, plain = _groups(terms.applied(budgets)), terms.schema, plain_model(terms.model)
    is_installed = isinstance(terms.model, InstalledModel)
    columns = None
    if schema is not None:
        numbers, categories = schema.columns.numbers, schema.columns.categories
        columns = (*(column.name for column in numbers), *(column.name for column in categories))
    return Offer(
        model=str(plain["package" if is_installed else "name"]),
        model_digest=str(plain["digest"]) if is_installed else None,
        columns=columns,
        label=None if schema is None else schema.label,
        features=plain.get("features"),
        feature_map=terms.features,
        dimensions=terms.dimensions,
        rounds=terms.rounds,
        smallest_cohort=terms.taken.smallest_cohort,
        delta=terms.terms.central_delta(1),
        target=terms.target,
        lifetime=lifetime.epsilon,
        prices=tuple(_price(terms, budget, users) for budget, users in groups),
        trusted=_trusted(terms, is_installed),
        fingerprints=fingerprints,
        caveats=() if schema is None else schema.caveats,
    )


def _groups(budgets: F64) -> list[tuple[float, int]]:
    """Budgets and how many have each; of many different ones, a few that others are rounded up to."""
    steps = np.unique(budgets)
    if steps.size > _MOST_BUDGETS:
        steps = np.unique(np.quantile(budgets, np.linspace(0, 1, _MOST_BUDGETS), method="higher"))
    return sorted(Counter(steps[np.searchsorted(steps, budgets)].tolist()).items())


def _price(terms: FederationTerms, budget: float, users: int) -> Price:
    delta, worst = terms.terms.central_delta(1), terms.worst
    report = local_user_epsilon(budget, terms.charged, levels=terms.levels)
    colluding, colluding_delta = report * terms.rounds, 0.0
    if worst.norm is not None:
        bounded = local_norm_epsilon(budget, worst.ratio * (1 + 1e-12), delta, terms.rounds)
        if bounded < colluding:
            colluding, colluding_delta = bounded, delta
    accountant = terms.terms.accountant(1, settled=False)
    shifts = accountant.cost(worst, Victims(budget)).times(terms.rounds)
    # As in `FederationTerms.limit`, of which this is one person's part.
    central = Cost(shifts.mu_squared, cover_of(delta)).epsilon(delta)
    # No more than the shuffler lets pass, nor than what is left without it.
    central = min(central, math.inf if terms.target is None else terms.target, colluding)
    return Price(budget, users, report, _finite(colluding), colluding_delta, _finite(central), meaning(central, delta))


def _trusted(terms: FederationTerms, is_installed: bool) -> tuple[str, ...]:
    limits = terms.taken
    said = [
        f"the shuffler: that it releases sums of {limits.needed} reports or more, of different people, and tells "
        "nobody who sent which",
        f"whoever admits members: that they are different people, of whom at most {limits.distrusted} in a round tell "
        "the analyzer what they sent",
        "not the analyzer: whatever it does with the releases, the certified epsilon holds",
    ]
    if is_installed:
        said.append("the model's code: it runs on your rows; the guarantee holds for whatever updates come out of it")
    return tuple(said)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
