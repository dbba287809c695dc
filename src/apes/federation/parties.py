"""How a federation comes about: somebody invites, users join with keys and data of their own, and are admitted.

The shuffler's operator invites, since the shuffler's key is the secret that everybody relies on; the folders of
SuperLink and analyzer hold nothing but a TLS key and a token, and go to whoever runs those.
"""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from apes.errors import ParameterError
from apes.federation.agreed_model import own_model
from apes.federation.analyzer import AnalyzerSettings
from apes.federation.fingerprints import fingerprints
from apes.federation.keys import Authority, node_key, write_secret
from apes.federation.renewal import AUTHORITY_KEY, PAIR, write_pair
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Layout
from apes.federation.trial.scripts import write_device_scripts, write_server_scripts
from apes.federation.vault.folder import VAULT, VaultSettings, check_vault
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.witness import ID_BYTES, new_witness
from apes.population import Examples
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.server import ShufflerSettings
from apes.storage.arrays import write_arrays
from apes.storage.files import write_bytes
from apes.storage.settings import read_settings, write_settings
from apes.terms.schedule import Schedule
from apes.wire.envelope import RUN_BYTES

CARD = "card.json"
# What Flower ships to the nodes.
_APP = Path(__file__).parent / "app"
_INVITATION = "invitation.json"


@dataclass(frozen=True)
class Invitation:
    """What a user needs to know to join; public."""

    run: str  # in hexadecimal
    shuffler_key: str  # X25519 public key that reports are sealed to, in hexadecimal
    superlink: str  # host and port


@dataclass(frozen=True)
class Card:
    """What a device or silo shows to be admitted; public."""

    senders: tuple[str, ...]  # its users' signing keys, in hexadecimal
    node: str  # its SuperNode's key, one line of OpenSSH's format


@dataclass(frozen=True)
class Servers:
    """Where shuffler and SuperLink are, host and port of each, and how the analyzer waits (see `AnalyzerSettings`)."""

    shuffler: tuple[str, int]
    superlink: tuple[str, int]
    nodes: int
    round_seconds: float = 600.0
    keep_sealed: bool = False


def read_invitation(folder: Path) -> tuple[FederationTerms, dict[str, str]]:
    """The terms of an invitation, and the fingerprints of all that it names."""
    invitation = read_settings(folder / _INVITATION, Invitation)
    terms = FederationTerms.read(folder / "terms.json")
    return terms, fingerprints(invitation, terms.digest, folder / "authority.pem")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder that appears whole when the block ends well, and not at all otherwise."""
    if folder.exists():
        raise ParameterError(f"folder must not exist yet, got {str(folder)!r}")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Task:
    """What a federation is to do."""

    terms: FederationTerms
    schedule: Schedule
    test: Examples  # public, to judge the model by
    model: str | None = None  # of an installed model, as the analyzer's owner names it


def invite(folder: Path, task: Task, servers: Servers) -> Invitation:
    """Make the folders of shuffler, SuperLink and analyzer, and that of the invitation, which is returned."""
    layout, authority, opener = Layout(folder), Authority(), X25519PrivateKey.generate()
    token, run = secrets.token_urlsafe(32).encode(), secrets.token_hex(RUN_BYTES)
    for owner, (host, _) in ((layout.shuffler, servers.shuffler), (layout.superlink, servers.superlink)):
        write_pair(owner / PAIR, authority, host)
    write_secret(layout.folder / AUTHORITY_KEY, authority.key())
    for trusting in (layout.analyzer, layout.superlink, layout.invitation):
        write_bytes(trusting / "authority.pem", authority.certificate())
    for owner in (layout.shuffler, layout.analyzer):
        write_secret(owner / "token", token)
    write_server_scripts(layout.folder, servers.superlink)
    write_secret(layout.shuffler / "shuffler.key", opener.private_bytes_raw())
    write_settings(layout.shuffler / "shuffler.json", ShufflerSettings(*servers.shuffler, certificate_key=PAIR))
    shutil.copytree(_APP, layout.analyzer / "app", ignore=shutil.ignore_patterns("__pycache__"))
    url, link = (f"{host}:{port}" for host, port in (servers.shuffler, servers.superlink))
    waits = servers.nodes, servers.round_seconds
    settings = AnalyzerSettings(run, f"https://{url}", *waits, keep_sealed=servers.keep_sealed, model=task.model)
    write_settings(layout.analyzer / "analyzer.json", settings)
    write_arrays(layout.analyzer / "test.npz", {"features": task.test.features, "labels": task.test.labels})
    write_settings(layout.analyzer / "schedule.json", task.schedule)
    for reader in (layout.analyzer, layout.invitation):
        task.terms.write(reader / "terms.json")
    public = opener.public_key().public_bytes_raw().hex()
    invitation = Invitation(run, public, link)
    write_settings(layout.invitation / _INVITATION, invitation)
    return invitation


@dataclass(frozen=True)
class Consent:
    """What a device's owner decides: not the invitation's to say.

    Attributes:
        model: ``module:attribute`` of a model that the owner installed and allows to run on the data; None for none.
        lifetime: What each user grants centrally, over all runs and federations.
        node_port: Local port of the SuperNode.
    """

    model: str | None = None
    lifetime: Lifetime = field(default_factory=Lifetime)
    node_port: int = 9094


def join(folder: Path, invitation_folder: Path, arrays: dict[str, NDArray[Any]], consent: Consent) -> Card:
    """Make the folder of a device or silo, with keys that nobody else has; return its card, which is also kept there.

    The arrays are its users' ``features``, ``labels``, ``offsets``, ``budgets`` and perhaps ``allowances``; by default
    everybody allows one whole run and no more.
    """
    invitation = read_settings(invitation_folder / _INVITATION, Invitation)
    terms = FederationTerms.read(invitation_folder / "terms.json")
    # Before anything is written: the owner named this model, or it does not run here.
    own_model(terms.model, consent.model)
    budgets, lifetime = terms.applied(arrays["budgets"]), consent.lifetime
    keys = [Ed25519PrivateKey.generate() for _ in range(budgets.size)]
    write_arrays(folder / "data.npz", {"allowances": terms.charged * budgets * terms.rounds, **arrays}, 0o600)
    write_secret(folder / "keys.bin", b"".join(key.private_bytes_raw() for key in keys))
    terms.write(folder / "terms.json")
    settings = VaultSettings(
        (invitation.run,),
        invitation.shuffler_key,
        lifetime_epsilon=lifetime.epsilon,
        lifetime_delta=lifetime.delta,
        model=consent.model,
        ledger_id=secrets.token_hex(ID_BYTES),
    )
    write_settings(folder / VAULT, settings)
    new_witness(folder / settings.witness)
    # What the vault will read has to be right now, while somebody is looking.
    check_vault(folder / VAULT)
    write_bytes(folder / "authority.pem", (invitation_folder / "authority.pem").read_bytes())
    private, public = node_key()
    write_secret(folder / "node.key", private)
    write_device_scripts(folder, invitation.superlink, consent.node_port)
    card = Card(tuple(key.public_key().public_bytes_raw().hex() for key in keys), public.decode())
    write_settings(folder / CARD, card)
    return card


def admit(folder: Path, cards: list[Card]) -> Policy:
    """Write the shuffler's policy, which admits exactly these cards' users, and their SuperNodes' keys."""
    layout = Layout(folder)
    invitation = read_settings(layout.invitation / _INVITATION, Invitation)
    terms = FederationTerms.read(layout.invitation / "terms.json")
    thin = terms.terms.sparsification
    policy = Policy(
        **asdict(terms.taken),
        terms=terms.digest,
        runs=(invitation.run,),
        rounds=terms.rounds,
        dimensions=terms.dimensions,
        levels=terms.levels,
        charged=terms.charged,
        delta=terms.terms.central_delta(1),
        top_b_first=None if thin is None else thin.top_b_first(terms.dimensions),
        clip=terms.terms.clip,
        norm=terms.terms.norm,
        target_epsilon=terms.target,
        senders=tuple(sender for card in cards for sender in card.senders),
    )
    nodes = layout.superlink / "nodes"
    shutil.rmtree(nodes, ignore_errors=True)
    for number, card in enumerate(cards, 1):
        write_bytes(nodes / f"node-{number:04d}.pub", card.node.encode())
    write_settings(layout.shuffler / "policy.json", policy)
    return policy
