"""Exposure: what one round reveals, as accountants consume it, logs keep it, and certificates come out of it again."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.certificate.curve import LARGEST_BUDGET, SMALLEST_BUDGET, PrivacyCurve, check_levels, hiding_curve
from apes.accounting.certificate.joint_clipping import norm_shift
from apes.accounting.certificate.top_b_first import LARGEST_COUPLE_BUDGET, top_b_first_curve
from apes.accounting.certificate.two_levels import MOST_USERS, LowerCurve, two_level_curve
from apes.accounting.composition.gaussian import covering_shift
from apes.accounting.composition.lattice import UNIT
from apes.accounting.cost import SUMS, Cost
from apes.accounting.victims import EVERYBODY, Victims, honest_others, victims_among, worst_of
from apes.checks import one_of, positive, positive_array, whole
from apes.errors import DataError, ParameterError
from apes.mathematics.thresholds import MAX_LEVELS

NEIGHBOURS = "replace-one-user"
"""One user's data replaced by any other; the number of users and everybody's budget stay, and are public."""
Ways = tuple[tuple[PrivacyCurve, int], ...]
"""Curves and how often each is used: every one of them covers the round, and the smaller result holds."""
MOST_DIMENSIONS = 10**12
# A budget from which on two-level reports are looked at both ways.
_BOLD = 3.0
SPARSIFIERS = ("top-b", "random-b", "threshold", "top-b-first")
_NOBODY_HIDES = 1e6
# A smaller R / C is taken for this one, which covers it: squares leave the range of floating point.
_SMALLEST_RATIO = 1e-100


@dataclass(frozen=True, eq=False)
class Exposure:
    """One round's release: who took part, with which budgets, and what is charged for. No data, no values, no names.

    Attributes:
        budgets: Local budgets of those who took part, per coordinate and round, each in (0, inf).
        charged: Coordinates of a report that are charged for: those in which two updates' reports can differ, in
            [1, 10^12].
        levels: Levels of coded reports in [2, 256], or None for continuous ones.
        top_b_first: b, where every user sets all but b coordinates to zero before perturbing, in [1, charged]; or None.
        round: Number of the round from 1; 0 where it has none.
        dimensions: Coordinates of a report, each perturbed under the whole of its user's budget; 0 for ``charged``.
        mechanism: Short name.
        clip: C, per coordinate, in (0, inf); infinite where nothing is clipped, and nothing certified.
        shuffled: Whether reports of a coordinate were permuted (or counted) across users.
        sparsifier: ``top-b``, ``random-b``, ``threshold``, ``top-b-first`` or None.
        why_not_certified: Why no central guarantee covers it, or None.
        norm: R, bound of every update's L2 norm, in (0, inf), where reports have two levels; or None.
    """

    budgets: Array = field(repr=False)
    charged: int
    levels: int | None = MAX_LEVELS
    top_b_first: int | None = None
    round: int = 0
    dimensions: int = 0
    mechanism: str = "clip-laplace"
    clip: float = 1.0
    shuffled: bool = True
    sparsifier: str | None = None
    why_not_certified: str | None = None
    norm: float | None = None

    def __post_init__(self) -> None:
        # Accountants remember what a multiset of budgets costs; memory of bytes cannot be made writable again.
        object.__setattr__(self, "budgets", np.frombuffer(positive_array("budgets", self.budgets).tobytes()))
        if self.dimensions == 0:
            object.__setattr__(self, "dimensions", self.charged)
        whole("charged", self.charged, 1, whole("dimensions", self.dimensions, 1, MOST_DIMENSIONS))
        # Where nothing is certified, nothing may have been clipped.
        if self.why_not_certified is None or self.clip != math.inf:
            positive("clip", self.clip)
        if self.sparsifier is not None:
            one_of("sparsifier", self.sparsifier, SPARSIFIERS)
        check_levels(self.levels)
        if self.top_b_first is not None:
            whole("top_b_first", self.top_b_first, 1, self.charged)
        if self.norm is not None and not (positive("norm", self.norm) and self.levels == 2):
            raise ParameterError(f"norm must be left out: reports have {self.levels} levels, not 2; got {self.norm!r}")
        if self.charged < (least := self._least_charged):
            raise ParameterError(f"charged must be in [{least}, {self.dimensions}] here, got {self.charged}")
        whole("round", self.round, 0)
        is_covered = self.shuffled is True and self.mechanism == "clip-laplace" and self.sparsifier != "top-b"
        if not (is_covered if self.why_not_certified is None else self.why_not_certified):
            said = f"certificates are for shuffled Clip-Laplace without top-b; got {self.why_not_certified!r}"
            raise ParameterError(f"why_not_certified must say why: {said}")

    @property
    def _least_charged(self) -> int:
        """Fewest coordinates in which two updates' reports can differ (docs/proofs.md, 9 and 10)."""
        if self.top_b_first is not None:
            return min(self.dimensions, 2 * self.top_b_first)
        return 1 if self.sparsifier == "random-b" else self.dimensions

    @cached_property
    def budgets_sha256(self) -> str:
        """Name of the multiset of budgets, without an order."""
        return budgets_digest(self.budgets)

    @cached_property
    def crowd(self) -> tuple[Array, Whole]:
        """Different budgets, ascending, and how many have each."""
        return np.unique(self.budgets, return_counts=True)

    @cached_property
    def _crowd(self) -> bytes:
        """What is remembered of people: short where few budgets differ."""
        return np.stack(self.crowd).astype(np.float64).tobytes()

    @property
    def form(self) -> tuple[object, ...]:
        """What all rounds of one run have in common."""
        sizes = (self.dimensions, self.charged, self.levels, self.top_b_first, self.norm)
        return (*sizes, self.mechanism, self.clip, self.sparsifier, self.shuffled, self.why_not_certified)

    @property
    def method(self) -> str:
        """How what it costs is proved: bits need no privacy blanket, unless budgets are large or users very many."""
        if self.levels != 2:
            return f"privacy blanket, {'continuous' if self.levels is None else f'{self.levels} levels'}"
        is_small = self.budgets.size <= MOST_USERS and float(self.budgets.max()) <= _BOLD
        # Couples of coordinates are hidden by a blanket (docs/proofs.md, 11).
        needs_none = is_small and self.top_b_first is None
        return f"tail bounds of other users' bits, {'without' if needs_none else 'or'} a privacy blanket"

    def level(self, rounds: int) -> str:
        """What a guarantee over so many such rounds covers."""
        return "rounds" if rounds > 1 else "user" if self.charged > 1 else "coordinate"

    @property
    def uses(self) -> tuple[int, ...]:
        """How many uses of a curve the round is, way by way."""
        if self.top_b_first is None:
            return (self.charged,)
        # Two updates differ in at most 2 b coordinates; or, counted in couples, b uses of another curve.
        return min(self.charged, 2 * self.top_b_first), self.top_b_first

    @property
    def forced(self) -> int:
        """In how many coordinates two updates can be at opposite ends."""
        room = self.ratio * self.ratio
        return min(self.charged if room >= self.charged else math.floor(room), *self.uses)

    @property
    def ratio(self) -> float:
        """R / C, as far as it bounds anything: ``|x_j| <= C`` alone keeps the norm below sqrt(d) C."""
        most = math.sqrt(self.dimensions) * (1 + 4 * UNIT)
        return most if self.norm is None else min(max(self.norm / self.clip, _SMALLEST_RATIO), most)

    def curves(self, delta: float, rounds: int, colluders: int = 0, victims: Victims = EVERYBODY) -> Ways:
        """The curves of the round and their uses, way by way, for about so many rounds of ``delta`` together."""
        deltas = tuple(delta / (rounds * uses) for uses in self.uses)
        return _curves(self._crowd, victims_among(self.budgets, victims), self.uses, deltas, colluders, self.levels)

    def cost(self, delta_0: float, colluders: int = 0, victims: Victims | None = None) -> Cost:
        """What the round costs the victims, by default anybody, ``delta_0`` per use of a curve being left uncovered."""
        if self.why_not_certified is not None:
            return Cost(math.inf, 0.0)
        left = max(self.uses) * delta_0 * (1 if self.norm is None else 2)
        if victims is not None:
            return Cost(self._mu_squared(delta_0, colluders, victims), left)
        return Cost(worst_of(self.budgets, lambda group: self._mu_squared(delta_0, colluders, group)), left)

    def _mu_squared(self, delta_0: float, colluders: int, victims: Victims) -> float:
        """The least of all ways."""
        among = victims_among(self.budgets, victims)
        shifts = _shifts(self._crowd, among, self.uses, delta_0, colluders, self.levels)
        squares = [uses * c * c for c, uses in shifts]
        if self.norm is not None and 0 < shifts[0][0] < math.inf:
            squares.append(norm_shift(shifts[0][0], self.ratio * (1 + 4 * UNIT), delta_0) ** 2)
        return min(squares) * (1 + 8 * UNIT)

    def local(self, victims: Victims = EVERYBODY) -> float:
        """What it tells about the victims whoever hides them, in nats: budgets added up."""
        if self.why_not_certified is not None:
            return math.inf
        return self.uses[0] * victims_among(self.budgets, victims).boldest * SUMS

    def as_dict(self) -> dict[str, Any]:
        """The exposure as plain values, for a line of JSON; the budgets by their digest, which names their file."""
        plain = asdict(self)
        del plain["budgets"]
        return plain | {
            "users": self.budgets.size,
            "budgets_sha256": self.budgets_sha256,
            "smallest_budget": float(self.budgets.min()),
            "largest_budget": float(self.budgets.max()),
            "neighbours": NEIGHBOURS,
        }

    @classmethod
    def from_dict(cls, line: Mapping[str, Any], budgets: Array) -> "Exposure":
        """Read a line of a log back, with the budgets that it names; DataError if others were charged."""
        exposure = cls(budgets, **{field.name: line[field.name] for field in fields(cls) if field.name in line})
        if exposure.as_dict() != dict(line):
            raise DataError(f"round {line.get('round')} was charged for other budgets than those that were kept of it")
        return exposure


def curve_of(victim: float, others: Array, delta: float, levels: int | None) -> PrivacyCurve:
    """The best curve of one coordinate that there is: bits need no blanket."""
    if levels != 2 or victim > LARGEST_BUDGET:
        return hiding_curve(victim, others, delta, levels)
    bits = two_level_curve(victim, others, delta)
    # Lines are coarse close to a large budget, where a blanket is not.
    return bits if victim <= _BOLD else LowerCurve(bits, hiding_curve(victim, others, delta, levels))


# Runs on the same people ask again and again.
@lru_cache(maxsize=256)
def _curves(  # parameters: all that a certificate depends on, hashable
    crowd: bytes, victims: Victims, uses: tuple[int, ...], deltas: tuple[float, ...], colluders: int, levels: int | None
) -> Ways:
    """The whole coordinate's curve and, where there are two ways, the one of couples."""
    # Beyond these ends nothing differs in floating point: below, the larger one covers; above, nobody hides anybody.
    different, counts = np.frombuffer(crowd).reshape(2, -1)
    inside = np.repeat(np.clip(different, SMALLEST_BUDGET, _NOBODY_HIDES), counts.astype(np.int64))
    victim, others = max(victims.boldest, SMALLEST_BUDGET), honest_others(inside, colluders, victims)
    plain = curve_of(victim, others, deltas[0], levels), uses[0]
    if len(deltas) == 1:
        return (plain,)
    if victim > LARGEST_COUPLE_BUDGET:
        # The couple's curve is not computed there: whole coordinates are counted both ways.
        return plain, plain
    return plain, (top_b_first_curve(victim, others, deltas[1], levels), uses[1])


@lru_cache(maxsize=256)
def _shifts(  # parameters: all that a certificate depends on, hashable
    crowd: bytes, victims: Victims, uses: tuple[int, ...], delta_0: float, colluders: int, levels: int | None
) -> tuple[tuple[float, int], ...]:
    """The Gaussian shift that covers one use, and how many uses there are, way by way."""
    ways = _curves(crowd, victims, uses, (delta_0,) * len(uses), colluders, levels)
    return tuple((covering_shift(curve, delta_0), count) for curve, count in ways)


def budgets_digest(budgets: Array) -> str:
    """SHA-256 of the sorted budgets (little-endian float64): names a multiset of budgets without an order."""
    return hashlib.sha256(np.sort(budgets).astype("<f8").tobytes()).hexdigest()
