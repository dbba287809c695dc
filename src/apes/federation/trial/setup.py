"""Set up a trial federation on one machine: everybody's folder, with keys, certificates, policy, terms and data."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.data import Dataset
from apes.federation.parties import Card, Range, Servers, admit, invite, join, new_folder
from apes.federation.terms import Terms
from apes.federation.trial.layout import HOST, Federation, Layout, free_ports
from apes.storage.settings import write_settings
from apes.terms.plan import Plan
from apes.training.analysis import TestSet
from apes.training.train import spread
from apes.wire.envelope import RUN_BYTES


def set_up(
    folder: Path,
    plan: Plan,
    dataset: Dataset,
    vaults: int,
    *,
    smallest_cohort: int | None = None,
    round_seconds: float = 600.0,
    keep_sealed: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Federation:
    """Make the folder of a trial federation; it appears whole, or not at all.

    Args:
        folder: A folder that does not exist yet.
        plan: What will run; its users are spread over the vaults.
        dataset: What the users' data is made of.
        vaults: Devices or silos, in [1, users].
        smallest_cohort: Fewest reports that the shuffler releases (default: half of the users, at least 2).
        round_seconds: How long the analyzer waits for reports.
        keep_sealed: Whether the analyzer keeps the sealed reports of every round.
        progress: Called with the users that are done, and all.
    """
    whole("vaults", vaults, 1, plan.users)
    terms = Terms(plan, dataset.train_images.shape[1], dataset.classes)
    population, ports = spread(plan, dataset), free_ports(2 + vaults)
    federation = Federation(
        secrets.token_hex(RUN_BYTES), vaults, plan.users, plan.rounds, ports[0], ports[1], tuple(ports[2:])
    )
    servers = Servers((HOST, ports[0]), (HOST, ports[1]), vaults, round_seconds, keep_sealed)
    cohort = max(2, plan.users // 2) if smallest_cohort is None else smallest_cohort
    admits = Range(float(population.budgets.min()), float(population.budgets.max()), cohort)
    edges = np.linspace(0, plan.users, vaults + 1).astype(int).tolist()
    with new_folder(folder) as part:
        layout = Layout(part)
        test = TestSet(dataset.test_images, dataset.test_labels)
        invitation = invite(part, terms, federation.run, test, servers, admits)
        cards: list[Card] = []
        for number, port in enumerate(federation.node_ports, 1):
            block = population.block(edges[number - 1], edges[number])
            arrays: dict[str, NDArray[Any]] = {
                "features": block.features,
                "labels": block.labels,
                "offsets": block.offsets,
                "budgets": block.budgets,
            }
            cards.append(join(layout.device(number), invitation, arrays, port))
            progress(edges[number], plan.users)
        admit(part, cards)
        write_settings(layout.settings, federation)
    return federation
