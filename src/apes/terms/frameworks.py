"""The frameworks of the paper: which mechanism, shuffled or not, sparsified or not."""

from dataclasses import dataclass

from apes.errors import ParameterError


@dataclass(frozen=True)
class Framework:
    """What distinguishes a framework.

    Attributes:
        name: As on the command line.
        mechanism: ``clip-laplace``, ``laplace`` or ``none``.
        shuffled: Whether a shuffler stands between users and analyzer.
        smallest_budget_for_all: Whether everybody uses the population's smallest budget.
        sparsifier: ``top-b``, ``threshold``, ``top-b-first`` or None.
    """

    name: str
    mechanism: str
    shuffled: bool = False
    smallest_budget_for_all: bool = False
    sparsifier: str | None = None


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework("non-private", "none"),
        Framework("ldp-min", "laplace", smallest_budget_for_all=True),
        Framework("pldp", "laplace"),
        Framework("unis", "laplace", shuffled=True),
        Framework("apes", "clip-laplace", shuffled=True),
        Framework("s-apes", "clip-laplace", shuffled=True, sparsifier="top-b"),
        Framework("s-apes-threshold", "clip-laplace", shuffled=True, sparsifier="threshold"),
        Framework("s-apes-first", "clip-laplace", shuffled=True, sparsifier="top-b-first"),
    )
}


def framework(name: str) -> Framework:
    """Return the framework of that name."""
    if name not in FRAMEWORKS:
        raise ParameterError(f"framework must be one of {', '.join(FRAMEWORKS)}; got {name!r}")
    return FRAMEWORKS[name]
