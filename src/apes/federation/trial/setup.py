"""Set up a trial federation on one machine: everybody's folder, with keys, certificates, policy, terms and data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from apes.checks import whole
from apes.data import Dataset
from apes.federation.installed import InstalledModel, installed_model
from apes.federation.parties import Consent, Servers, Task, admit, invite, join, new_folder
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import HOST, Federation, Layout, free_ports
from apes.federation.vault.folder import ARRAYS
from apes.population import Examples
from apes.shuffler.service.policy import Limits
from apes.storage.settings import write_settings
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation


def task_of(plan: Plan, simulation: Simulation, dataset: Dataset, limits: Limits, package: str | None = None) -> Task:
    """What a federation of about so many users, within these limits, is to do; with an installed model, if named."""
    terms, built_in = plan.terms, simulation.model(dataset)
    model = built_in if package is None else InstalledModel.of(package, installed_model(package))
    # What cannot run on devices is refused for that, not for the delta that is filled in here.
    terms.device_stages(model.dimensions)
    agreed = replace(terms, delta=terms.central_delta(simulation.users))
    test = Examples(dataset.test_images, dataset.test_labels)
    return Task(FederationTerms(agreed, model, limits, simulation.features), plan.schedule, test, package)


def set_up(
    folder: Path,
    plan: Plan,
    simulation: Simulation,
    dataset: Dataset,
    vaults: int,
    *,
    model: str | None = None,
    smallest_cohort: int | None = None,
    round_seconds: float = 600.0,
    keep_sealed: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Federation:
    """Make the folder of a trial federation, which must not exist yet; it appears whole, or not at all.

    The simulation's people are spread over the vaults, in [1, users]; they train ``model``, an installed one, or the
    simulation's. By default the smallest cohort is half of the users, at least 2. ``progress`` is called with the users
    that are done, and all.
    """
    users = simulation.users
    whole("vaults", vaults, 1, users)
    population, ports = simulation.people(dataset), free_ports(2 + vaults)
    servers = Servers((HOST, ports[0]), (HOST, ports[1]), vaults, round_seconds, keep_sealed)
    cohort = max(2, users // 2) if smallest_cohort is None else smallest_cohort
    limits = Limits(float(population.budgets.min()), float(population.budgets.max()), cohort)
    task = task_of(plan, simulation, dataset, limits, model)
    edges = np.linspace(0, users, vaults + 1).astype(int).tolist()
    with new_folder(folder) as part:
        layout, run, cards = Layout(part), invite(part, task, servers).run, []
        for number in range(1, vaults + 1):
            block = population.block(edges[number - 1], edges[number])
            arrays = {name: getattr(block, name) for name in ARRAYS}
            place = layout.device(number), layout.invitation
            cards.append(join(*place, arrays, Consent(model, node_port=ports[1 + number])))
            progress(edges[number], users)
        admit(part, cards)
        federation = Federation(run, vaults, users, plan.terms.rounds, ports[0], ports[1])
        write_settings(layout.settings, federation)
    return federation
