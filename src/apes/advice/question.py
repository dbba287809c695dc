"""The question: whose budgets, how many rounds, which target; and how the command line names those people."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.cost import MOST_ROUNDS
from apes.accounting.exposure import MOST_DIMENSIONS
from apes.budgets import make_budgets, spread_alike
from apes.checks import positive, positive_array, whole, within
from apes.defaults import DIMENSIONS, ROUNDS, TARGET_EPSILON, default_delta
from apes.mathematics.arrays import F64

MOST_USERS = 10**7
"""Largest population that is looked at: it takes 80 MB."""
# More different budgets than these are named by a file.
_MOST_SHARES = 32


@dataclass(frozen=True, eq=False)
class Question:
    """What a privacy officer asks: these people, so many rounds, at most this much about any one of them.

    Attributes:
        budgets: Everybody's own local budget, per coordinate and round, each in (0, inf); at most 10^7.
        rounds: Rounds of training, everybody taking part in each, in [1, 1000000].
        delta: Delta of the guarantee, in [1e-100, 0.5] (default 1 / 10 n).
        target_epsilon: Largest certified central epsilon of anybody over all rounds, in (0, inf).
        dimensions: Coordinates of a report, in [1, 10^12].
        cap: Largest local budget that may be used, in (0, inf), if there is such a wish.
        spec: The budgets as the command line has them (`apes.make_budgets`); by default shares, or a file to write.
        seed: What a law of budgets was drawn with.
    """

    budgets: F64 = field(repr=False)
    rounds: int = ROUNDS
    delta: float | None = None
    target_epsilon: float = TARGET_EPSILON
    dimensions: int = DIMENSIONS
    cap: float | None = None
    spec: str | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", positive_array("budgets", self.budgets))
        whole("users", self.budgets.size, 1, MOST_USERS)
        whole("rounds", self.rounds, 1, MOST_ROUNDS)
        within("delta", self.central_delta, SMALLEST_DELTA, 0.5)
        positive("target_epsilon", self.target_epsilon)
        whole("dimensions", self.dimensions, 1, MOST_DIMENSIONS)
        if self.cap is not None:
            positive("cap", self.cap)

    @property
    def users(self) -> int:
        """How many people there are."""
        return self.budgets.size

    @property
    def central_delta(self) -> float:
        """Delta of the guarantee, as it was given or as it goes with so many people."""
        return default_delta(self.users) if self.delta is None else self.delta

    @cached_property
    def different(self) -> tuple[F64, F64]:
        """The different budgets, ascending, and how many people have each."""
        return _counted(self.budgets)

    @cached_property
    def named(self) -> str:
        """The budgets as the command line has them."""
        return self.spec or _as_shares(self.budgets) or "file:BUDGETS.csv"

    def with_users(self, users: int) -> "Question":
        """The same question about more or fewer people whose budgets are spread in the same way."""
        kind = self.named.partition(":")[0]
        own = spread_alike(self.budgets, users) if kind == "file" else make_budgets(self.named, users, self.seed)
        spec = self.named
        if kind == "file":
            spec = _as_shares(own) or f"file:{users}_BUDGETS.csv"
        return replace(self, budgets=own, spec=spec, delta=self.central_delta)


def _counted(budgets: F64) -> tuple[F64, F64]:
    values, counts = np.unique(budgets, return_counts=True)
    return values, counts.astype(np.float64)


def _as_shares(budgets: F64) -> str | None:
    """Shares that `apes.make_budgets` makes the same people of; None if there are too many, or no such."""
    values, counts = _counted(budgets)
    if values.size > _MOST_SHARES:
        return None
    users, texts = int(counts.sum()), []
    # All but the last in per cent, to as many digits as tell people apart; the last one has the rest.
    digits = max(0, math.ceil(math.log10(users)) - 1)
    for count in counts[:-1].tolist():
        texts.append(f"{100 * count / users:.{digits}f}")
    rest = 10**digits * 100 - sum(int(text.replace(".", "")) for text in texts)
    texts.append(f"{rest / 10**digits:.{digits}f}")
    spec = ",".join(f"{as_text(value)}:{_short(text)}%" for value, text in zip(values.tolist(), texts, strict=True))
    made = np.sort(make_budgets(spec, users, 0)) if rest > 0 and all(float(text) > 0 for text in texts) else np.empty(0)
    return spec if np.array_equal(made, np.repeat(values, counts.astype(np.int64))) else None


def as_text(value: float | int | str) -> str:
    """A value as short as it can be read back."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    """A decimal number without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text
