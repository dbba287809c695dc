"""What a round is charged for: so many uses of a curve, in one or two ways, each of which is a proof."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate.curve import PrivacyCurve as Curve
from apes.accounting.certificate.curve import hiding_curve, honest_others
from apes.accounting.certificate.top_b_first import LARGEST_COUPLE_BUDGET as LARGEST_SPARSE_BUDGET
from apes.accounting.certificate.top_b_first import top_b_first_curve as sparse_curve
from apes.checks import whole

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Charges:
    """How a round's reports are counted.

    Attributes:
        dimensions: Coordinates of a report that can depend on data, at least 1.
        chosen: b, where every user sets all but b of them to zero before perturbing; in [1, dimensions], or None.
    """

    dimensions: int
    chosen: int | None = None

    def __post_init__(self) -> None:
        whole("dimensions", self.dimensions, 1)
        if self.chosen is not None:
            whole("chosen", self.chosen, 1, self.dimensions)

    @property
    def uses(self) -> tuple[int, ...]:
        """How many uses of a curve a round is, way by way."""
        if self.chosen is None:
            return (self.dimensions,)
        # Two updates differ in at most 2 b coordinates; or, counted in couples, b uses of another curve.
        return min(self.dimensions, 2 * self.chosen), self.chosen

    def curves(
        self, budgets: Array, colluders: int, delta: float, rounds: int, levels: int | None
    ) -> list[tuple[Curve, int]]:
        """The curves of a round with these participants and their uses, way by way.

        Args:
            budgets: Of those who took part.
            colluders: How many of them tell the adversary what they reported.
            delta: Of all rounds together, in (0, 1).
            rounds: About how many there are.
            levels: Levels of coded reports, or None for continuous ones.
        """
        others, largest = honest_others(budgets, colluders, levels), float(np.max(budgets))
        # The bound increases with the victim's budget while the others stay the same: the largest covers everybody.
        plain: tuple[Curve, int] = (
            hiding_curve(largest, others, delta / (rounds * self.uses[0]), levels),
            self.uses[0],
        )
        if self.chosen is None:
            return [plain]
        if largest > LARGEST_SPARSE_BUDGET:
            return [plain, plain]
        return [plain, (sparse_curve(largest, others, delta / (rounds * self.chosen), levels), self.chosen)]
