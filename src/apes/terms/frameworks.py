"""The frameworks of the paper: which mechanism, shuffled or not, sparsified or not."""

from collections.abc import Callable
from dataclasses import dataclass

from apes.terms.mechanism import ClipLaplaceReports, LaplaceReports, PlainUpdates, Reports


@dataclass(frozen=True)
class Framework:
    """What distinguishes a framework.

    Attributes:
        name: As on the command line.
        mechanism: Makes the mechanism of a clip bound and levels.
        shuffled: Whether a shuffler stands between users and analyzer.
        smallest_budget_for_all: Whether everybody uses the population's smallest budget.
        sparsifier: ``top-b``, ``threshold``, ``top-b-first`` or None.
    """

    name: str
    mechanism: Callable[[float, int | str | None], Reports]
    shuffled: bool = False
    smallest_budget_for_all: bool = False
    sparsifier: str | None = None


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework("non-private", PlainUpdates.of),
        Framework("ldp-min", LaplaceReports.of, smallest_budget_for_all=True),
        Framework("pldp", LaplaceReports.of),
        Framework("unis", LaplaceReports.of, shuffled=True),
        Framework("apes", ClipLaplaceReports.of, shuffled=True),
        Framework("s-apes", ClipLaplaceReports.of, shuffled=True, sparsifier="top-b"),
        Framework("s-apes-threshold", ClipLaplaceReports.of, shuffled=True, sparsifier="threshold"),
        Framework("s-apes-first", ClipLaplaceReports.of, shuffled=True, sparsifier="top-b-first"),
    )
}
