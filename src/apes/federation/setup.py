"""Set up a trial federation on one machine: keys, certificates, policy, terms, data and start scripts."""

import io
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from apes.data import Dataset
from apes.envelope import RUN_BYTES
from apes.errors import ParameterError
from apes.federation.analyst import AnalyzerSettings
from apes.federation.keys import Authority, node_key, write_secret
from apes.federation.layout import HOST, Federation, Layout, free_ports
from apes.federation.scripts import superlink_script, supernode_script, write_script
from apes.federation.terms import Terms
from apes.federation.vault_file import VaultSettings
from apes.files import write_bytes
from apes.parameters import whole
from apes.plan import Plan
from apes.population import InMemoryPopulation
from apes.settings import write_settings
from apes.shuffler.policy import Policy
from apes.shuffler.server import ShufflerSettings
from apes.training import spread


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
    if folder.exists():
        raise ParameterError(f"folder must not exist yet, got {str(folder)!r}")
    terms = Terms(plan, dataset.train_images.shape[1], dataset.classes)
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        layout = Layout(part)
        ports = free_ports(2 + vaults)
        run = secrets.token_hex(RUN_BYTES)
        federation = Federation(run, vaults, plan.users, plan.rounds, ports[0], ports[1], tuple(ports[2:]))
        opener = X25519PrivateKey.generate()
        population = spread(plan, dataset)
        senders = _make_devices(layout, federation, terms, population, opener, progress)
        cohort = max(2, plan.users // 2) if smallest_cohort is None else smallest_cohort
        policy = _policy(terms, run, population, senders, cohort)
        _make_servers(
            layout,
            federation,
            terms,
            policy,
            opener,
            AnalyzerSettings(run, f"https://{HOST}:{ports[0]}", vaults, round_seconds, keep_sealed=keep_sealed),
        )
        test: dict[str, NDArray[Any]] = {"images": dataset.test_images, "labels": dataset.test_labels}
        write_bytes(layout.analyzer / "test.npz", _archive(test))
        write_settings(layout.settings, federation)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return federation


def _policy(terms: Terms, run: str, population: InMemoryPopulation, senders: list[str], cohort: int) -> Policy:
    return Policy(
        plan=terms.fingerprint,
        runs=(run,),
        rounds=terms.plan.rounds,
        dimensions=terms.dimensions,
        levels=terms.levels,
        smallest_budget=float(population.budgets.min()),
        largest_budget=float(population.budgets.max()),
        smallest_cohort=cohort,
        senders=tuple(senders),
    )


def _make_servers(
    layout: Layout,
    federation: Federation,
    terms: Terms,
    policy: Policy,
    opener: X25519PrivateKey,
    settings: AnalyzerSettings,
) -> None:
    """Folders of shuffler, SuperLink and analyzer."""
    authority, token = Authority(), secrets.token_urlsafe(32).encode()
    for owner in (layout.shuffler, layout.superlink):
        certificate, key = authority.issue(HOST)
        write_bytes(owner / "tls.pem", certificate)
        write_secret(owner / "tls.key", key)
    for trusting in (layout.analyzer, layout.superlink, *map(layout.device, range(1, federation.vaults + 1))):
        write_bytes(trusting / "authority.pem", authority.certificate())
    write_secret(layout.shuffler / "shuffler.key", opener.private_bytes_raw())
    for owner in (layout.shuffler, layout.analyzer):
        write_secret(owner / "token", token)
    write_settings(layout.shuffler / "policy.json", policy)
    write_settings(layout.shuffler / "shuffler.json", ShufflerSettings(HOST, federation.shuffler_port))
    write_script(layout.shuffler / "start.sh", "exec apes shuffler shuffler.json")
    write_script(layout.superlink / "start.sh", superlink_script(federation.superlink_port))
    terms.write(layout.analyzer / "terms.json")
    write_settings(layout.analyzer / "analyzer.json", settings)


def _make_devices(
    layout: Layout,
    federation: Federation,
    terms: Terms,
    population: InMemoryPopulation,
    opener: X25519PrivateKey,
    progress: Callable[[int, int], None],
) -> list[str]:
    """Folders of the devices; return the users' public keys."""
    senders: list[str] = []
    edges = np.linspace(0, federation.users, federation.vaults + 1).astype(int)
    settings = VaultSettings((federation.run,), opener.public_key().public_bytes_raw().hex())
    for number in range(1, federation.vaults + 1):
        folder, block = layout.device(number), population.block(int(edges[number - 1]), int(edges[number]))
        keys = [Ed25519PrivateKey.generate() for _ in range(block.budgets.size)]
        arrays: dict[str, NDArray[Any]] = {
            "features": block.features,
            "labels": block.labels,
            "offsets": block.offsets,
            "budgets": block.budgets,
            # One whole run, no more.
            "allowances": terms.dimensions * block.budgets * terms.plan.rounds,
        }
        write_secret(folder / "data.npz", _archive(arrays))
        write_secret(folder / "keys.bin", b"".join(key.private_bytes_raw() for key in keys))
        terms.write(folder / "terms.json")
        write_settings(folder / "vault.json", settings)
        private, public = node_key()
        write_secret(folder / "node.key", private)
        write_bytes(folder / "node.pub", public)
        write_script(folder / "start-vault.sh", "exec apes vault vault.json")
        script = supernode_script(HOST, federation.superlink_port, federation.node_ports[number - 1])
        write_script(folder / "start-supernode.sh", script)
        senders += [key.public_key().public_bytes_raw().hex() for key in keys]
        progress(len(senders), federation.users)
    return senders


def _archive(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Arrays as the bytes of a NumPy archive."""
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # type: ignore[arg-type]  # its stub has no type for a dictionary of arrays
    return archive.getvalue()
