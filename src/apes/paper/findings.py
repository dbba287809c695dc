"""What the results say about the paper: where it does not agree with itself, or with what is proved.

Every number here is made from the results that it stands under; where they do not say it, it is not said.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from apes.accounting.published.user_level import DeltaConvention, user_apes
from apes.mathematics.search import bisect
from apes.paper.printed import EPSILON_UC, EPSILON_UC_TABLE_3
from apes.paper.setting import DIMENSIONS

Result = dict[str, Any]


def findings(results: Mapping[str, Result]) -> list[str]:
    """Sentences, those that these results bear out; results are by name of experiment."""
    figures = {name: result["figures"] for name, result in results.items()}
    found: list[str] = []
    if "table3" in figures and figures["table3"]["epsilon_uc"]["apes"]["is_papers"]:
        found += _of_table_3(figures["table3"])
    if "table4" in figures:
        found += _of_table_4(figures["table4"])
    found += _of_bounds([figures[name] for name in ("fig2a", "fig5", "fig6") if name in figures])
    if "fig3b" in figures:
        found.append(
            "The text to figure 3b says that fewer dimensions are uploaded as b/d grows. Fewer are uploaded as it "
            "falls."
        )
    return found


def _of_table_3(figures: Result) -> Iterator[str]:
    """Of its user-level column: one figure that is printed twice, and how many readings it needs."""
    users, unis = figures["epsilon_uc"], figures["epsilon_uc"]["unis"]
    printed = EPSILON_UC_TABLE_3["unis"]
    needed = _needed(printed, unis["delta_c"])
    yield (
        f"UniS under Uniform2 is printed as {EPSILON_UC['unis']['uniform2']:g} in Table 4 and as {printed:g} in Table "
        f"3. {unis['by_convention']['coordinate']:.2f} comes out (delta' = delta_c); the exact clone bound is "
        f"{figures['epsilon_c']['unis']:.4f} per coordinate, and {printed:g} would need {needed:.4f}."
    )
    readings = ", ".join(f"{name} is nearest to '{users[name]['convention']}'" for name in ("apes", "s-apes", "unis"))
    pairs = [[users[name]["by_convention"][kind] for name in ("apes", "s-apes")] for kind in ("coordinate", "composed")]
    like = ", or ".join(f"{one:.2f} and {other:.2f}" for one, other in pairs)
    yield (
        f"The user-level column of Table 3 takes delta' in more than one way: {readings}. Like for like, apes and "
        f"s-apes are {like}."
        if len({users[name]["convention"] for name in ("apes", "s-apes", "unis")}) > 1
        else f"The user-level column of Table 3: {readings}."
    )


def _needed(printed: float, delta_c: float) -> float:
    """The epsilon per coordinate that would come to a printed figure of a user, from above."""

    def reaches(epsilon: float) -> bool:
        return user_apes(epsilon, delta_c, DIMENSIONS, DeltaConvention.COORDINATE).epsilon >= printed

    return bisect(reaches, 1e-6, 1.0, steps=60)


def _of_table_4(figures: Result) -> Iterator[str]:
    laws = figures["top_b_first"]["laws"]
    lower = sum(found["certified"]["total"] < found["certified_apes"]["total"] for found in laws.values())
    yield (
        "Algorithm 2 chooses the b largest coordinates of the perturbed report; Proposition 1 then counts 2 b "
        "coordinates, but the choice looks at all d, and what goes with it is refuted (docs/published-bounds.md). "
        f"Made before perturbation, the choice does leave 2 b (docs/proofs.md, 10), and what is certified is lower "
        f"than for APES under {lower} of the {len(laws)} laws that were tried."
    )
    yield (
        "LDP-Min, PLDP and UniS use Laplace reports; the paper calls its figure for UniS an approximation, since "
        "shuffled Laplace reports of different budgets have no finite bound of that kind."
    )


def _of_bounds(figures: list[Result]) -> Iterator[str]:
    """EoN's bound against what some dataset forces, at the points of these figures."""
    points = [point for each in figures for points in each["curves"].values() for point in points]
    if points:
        refuted = sum(point["lower"] > point["published"]["eon_numeric"] for point in points)
        yield (
            f"EoN's bound is not proved for different budgets. What some dataset forces exceeds it "
            f"at {refuted or 'none'} of these {len(points)} points; docs/published-bounds.md has a population where "
            "it does."
        )
