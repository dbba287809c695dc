"""The frameworks of the paper: which mechanism, shuffled or not, sparsified or not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from apes.terms.mechanism import Reports, clip_laplace, laplace, plain_updates


@dataclass(frozen=True)
class Framework:
    """What distinguishes a framework.

    Attributes:
        name: As on the command line.
        mechanism: Makes the mechanism of a clip bound, levels and a norm.
        shuffled: Whether a shuffler stands between users and analyzer.
        smallest_budget_for_all: Whether everybody uses the population's smallest budget.
        sparsifier: ``top-b``, ``threshold``, ``top-b-first`` or None.
    """

    name: str
    mechanism: Callable[[float, int | str | None, float | None], Reports]
    shuffled: bool = False
    smallest_budget_for_all: bool = False
    sparsifier: str | None = None


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        framework.name: framework
        for framework in (
            Framework("non-private", plain_updates),
            Framework("ldp-min", laplace, smallest_budget_for_all=True),
            Framework("pldp", laplace),
            Framework("unis", laplace, shuffled=True),
            Framework("apes", clip_laplace, shuffled=True),
            Framework("s-apes", clip_laplace, shuffled=True, sparsifier="top-b"),
            Framework("s-apes-threshold", clip_laplace, shuffled=True, sparsifier="threshold"),
            Framework("s-apes-first", clip_laplace, shuffled=True, sparsifier="top-b-first"),
        )
    }
)
