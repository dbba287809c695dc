"""Set up a trial federation on one machine: everybody's folder, with keys, certificates, policy, terms and data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from apes.accounting.roster import charged_as
from apes.checks import whole
from apes.defaults import default_delta
from apes.federation.admission import admit
from apes.federation.card import Card
from apes.federation.invitation import read_invitation
from apes.federation.parties import Consent, Servers, Task, invite, join, new_folder
from apes.federation.subject import Subject
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import HOST, Federation, Layout, free_ports
from apes.federation.vault.folder import ARRAYS
from apes.mathematics.arrays import F64
from apes.people.people import People
from apes.shuffler.service.policy import Limits
from apes.storage.settings import write_settings
from apes.terms.fitting import fitted_to
from apes.terms.plan import Plan


def task_of(
    plan: Plan,
    subject: Subject,
    limits: Limits,
    model: str | None = None,
    *,
    charged: F64 | None = None,
    allow_no_protection: bool = False,
) -> Task:
    """What a federation on this subject, within these limits, is to do.

    Args:
        plan: An open one is fitted: all rounds of a cohort that is charged as ``charged`` keep within its target.
        subject: What is trained.
        limits: Which cohorts count.
        model: An installed one's name.
        charged: Budgets that a round is charged for (`apes.accounting.roster.charged_as`); by default the worst that
            the limits allow, the smallest cohort at the largest budget.
        allow_no_protection: Whether terms that protect nobody are what is wanted.
    """
    about = subject.trained_as(model)
    if plan.is_open:
        if plan.delta is None and about.users is not None:
            plan = replace(plan, delta=default_delta(about.users))
        charged = np.full(limits.smallest_cohort, limits.largest_budget) if charged is None else charged
        plan = fitted_to(plan, charged, about.model.dimensions, adaptive=True)
    terms = plan.terms
    # What cannot run on devices is refused for that, and not for a delta that is missing.
    terms.device_stages(about.model.dimensions)
    if about.users is not None:
        terms = replace(terms, delta=terms.central_delta(about.users))
    agreed = FederationTerms(terms, about.model, limits, about.features, about.schema)
    return Task(agreed, plan.schedule, about.test, model, allow_no_protection)


def set_up(
    folder: Path,
    plan: Plan,
    subject: Subject,
    people: People,
    vaults: int,
    *,
    model: str | None = None,
    smallest_cohort: int | None = None,
    largest_card: int | None = None,
    colluding: int | None = None,
    round_seconds: float = 600.0,
    keep_sealed: bool = False,
    allow_no_protection: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Federation:
    """Make the folder of a trial federation, which must not exist yet; it appears whole, or not at all.

    The people are spread over the vaults, in [1, users]; they train ``model``, an installed one, or the subject's. By
    default the largest card is that of the largest vault, as many may collude, and the smallest cohort is half of the
    others, at least 2. An open plan is fitted so that all of its rounds, with everybody there, keep within its target:
    with fewer there are fewer rounds. What protects nobody is refused unless ``allow_no_protection``. ``progress`` is
    called with the users that are done, and all.
    """
    users = people.budgets.size
    whole("vaults", vaults, 1, users)
    ports = free_ports(3)
    servers = Servers((HOST, ports[0]), (HOST, ports[1]), vaults, round_seconds, keep_sealed, ports[2])
    edges = np.linspace(0, users, vaults + 1).astype(int).tolist()
    most = int(np.diff(edges).max()) if largest_card is None else largest_card
    limits = Limits(float(people.budgets.min()), float(people.budgets.max()), 1, most, colluding)
    cohort = max(2, (users - limits.distrusted) // 2) if smallest_cohort is None else smallest_cohort
    limits = replace(limits, smallest_cohort=cohort)
    limits.check_enrolled(users)
    charged = charged_as(people.budgets, users, limits.distrusted)
    task = task_of(plan, subject, limits, model, charged=charged, allow_no_protection=allow_no_protection)
    with new_folder(folder) as part:
        layout, run, cards = Layout(part), invite(part, task, servers).run, dict[Card, str]()
        received = read_invitation(layout.invitation)
        for number in range(1, vaults + 1):
            block = people.block(edges[number - 1], edges[number])
            arrays = {name: getattr(block, name) for name in ARRAYS}
            card = join(layout.device(number), received, arrays, Consent(model))
            cards[card] = f"the card of {layout.device(number)}"
            progress(edges[number], users)
        admit(part, cards)
        rounds = task.terms.rounds
        federation = Federation(run, vaults, users, rounds, ports[0], ports[1], allow_no_protection)
        write_settings(layout.settings, federation)
    return federation
