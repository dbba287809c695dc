"""How a federation comes about: somebody invites, and users join with keys and data of their own.

The shuffler's operator invites, since the shuffler's key is the secret that everybody relies on; the folders of
SuperLink and analyzer hold nothing but a TLS key and a token, and go to whoever runs those.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from apes.errors import DataError, ParameterError
from apes.federation.admission import check_size
from apes.federation.agreed_model import own_model
from apes.federation.analyzer import AnalyzerSettings
from apes.federation.card import Card
from apes.federation.courier import COURIER, CourierSettings, largest_question
from apes.federation.device_accounts import DeviceAccounts
from apes.federation.invitation import AUTHORITY, INVITATION, TERMS, Invitation, Received, authority_digest
from apes.federation.keys import Authority, node_key, write_secret
from apes.federation.renewal import AUTHORITY_KEY, PAIR, write_pair
from apes.federation.superlink import SUPERLINK, SuperLinkSettings
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Layout
from apes.federation.trial.scripts import write_device_scripts, write_server_scripts
from apes.federation.vault.folder import VAULT, VaultSettings, check_vault
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.pace import patience_for
from apes.federation.vault.witness import ID_BYTES, new_witness
from apes.population import Examples
from apes.shuffler.service import witness
from apes.shuffler.service.server import ShufflerSettings
from apes.storage.arrays import write_arrays
from apes.storage.files import write_bytes
from apes.storage.settings import write_settings
from apes.terms.schedule import Schedule
from apes.wire.envelope import RUN_BYTES

CARD = "card.json"
# What Flower starts on the SuperLink's machine.
_APP = Path(__file__).parent / "app"
_ORGANISER = "organiser.key"


@dataclass(frozen=True)
class Servers:
    """Where shuffler and SuperLink are, host and port of each, and how the analyzer waits (see `AnalyzerSettings`).

    The SuperLink's local door is at ``control_port``; by default at the port after its own.
    """

    shuffler: tuple[str, int]
    superlink: tuple[str, int]
    nodes: int
    round_seconds: float = 600.0
    keep_sealed: bool = False
    control_port: int | None = None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder that appears whole when the block ends well, and not at all otherwise.

    Until then it is ours, and nobody else can go in, nor ever could: keys and data are written there, and root gives
    parts of it away.
    """
    if folder.exists() or folder.is_symlink():
        raise ParameterError(f"folder must not exist yet, got {str(folder)!r}")
    part = folder.with_name(f".{folder.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    # What one who was killed has left; where anybody may write, it may also be put there by somebody else.
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise DataError(f"{part} is there already: somebody else is at work here; choose a folder elsewhere") from None
    try:
        yield part
        if stat.S_IMODE(part.stat().st_mode) == 0o700:
            part.chmod(_usual_permissions())
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _usual_permissions() -> int:
    """Those of a folder that somebody just makes here."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o777 & ~mask


@dataclass(frozen=True, eq=False)
class Task:
    """What a federation is to do."""

    terms: FederationTerms
    schedule: Schedule
    test: Examples  # public, to judge the model by
    model: str | None = None  # of an installed model, as the analyzer's owner names it
    allow_no_protection: bool = False  # whether terms that protect nobody are what is wanted


def invite(folder: Path, task: Task, servers: Servers) -> Invitation:
    """Make the folders of shuffler, SuperLink and analyzer, and that of the invitation, which is returned.

    Terms that protect nobody are refused, unless the task allows them by name.
    """
    task.terms.check_protects(allowed=task.allow_no_protection)
    layout, authority = Layout(folder), Authority()
    opener, organiser, signer, announcer = (
        X25519PrivateKey.generate(),
        *(Ed25519PrivateKey.generate() for _ in range(3)),
    )
    token, run = secrets.token_urlsafe(32).encode(), secrets.token_hex(RUN_BYTES)
    for owner, (host, _) in ((layout.shuffler, servers.shuffler), (layout.superlink, servers.superlink)):
        write_pair(owner / PAIR, authority, host)
    write_secret(layout.folder / AUTHORITY_KEY, authority.key())
    for trusting in (layout.analyzer, layout.superlink, layout.invitation):
        write_bytes(trusting / AUTHORITY, authority.certificate())
    for owner in (layout.shuffler, layout.analyzer):
        write_secret(owner / "token", token)
    control = servers.superlink[1] + 1 if servers.control_port is None else servers.control_port
    settled = SuperLinkSettings(*servers.superlink, control)
    write_settings(layout.superlink / SUPERLINK, settled)
    write_server_scripts(layout.folder, settled)
    write_secret(layout.shuffler / "shuffler.key", opener.private_bytes_raw())
    write_secret(layout.shuffler / "receipts.key", signer.private_bytes_raw())
    write_secret(layout.analyzer / "analyzer.key", announcer.private_bytes_raw())
    write_secret(layout.folder / _ORGANISER, organiser.private_bytes_raw())
    write_settings(layout.shuffler / "shuffler.json", ShufflerSettings(*servers.shuffler, certificate_key=PAIR))
    witness.new_witness(layout.shuffler / ShufflerSettings.witness)
    shutil.copytree(_APP, layout.analyzer / "app", ignore=shutil.ignore_patterns("__pycache__"))
    url, link = (f"{host}:{port}" for host, port in (servers.shuffler, servers.superlink))
    public = [key.public_key().public_bytes_raw().hex() for key in (opener, signer, announcer, organiser)]
    waits = servers.nodes, servers.round_seconds
    settings = AnalyzerSettings(
        run, f"https://{url}", public[1], *waits, keep_sealed=servers.keep_sealed, model=task.model
    )
    write_settings(layout.analyzer / "analyzer.json", settings)
    write_arrays(layout.analyzer / "test.npz", {"features": task.test.features, "labels": task.test.labels})
    write_settings(layout.analyzer / "schedule.json", task.schedule)
    for reader in (layout.analyzer, layout.invitation):
        task.terms.write(reader / TERMS)
    trusted = authority_digest(authority.certificate(), layout.invitation / AUTHORITY)
    invitation = Invitation(run, link, task.terms.digest, trusted, *public).signed(organiser)
    write_settings(layout.invitation / INVITATION, invitation)
    return invitation


@dataclass(frozen=True)
class Consent:
    """What a device's owner decides: not the invitation's to say.

    Attributes:
        model: ``module:attribute`` of a model that the owner installed and allows to run on the data; None for none.
        lifetime: What each user grants centrally, over all runs and federations.
        accounts: Who runs vault and courier; None if the same account does, as in a trial.
    """

    model: str | None = None
    lifetime: Lifetime = field(default_factory=Lifetime)
    accounts: DeviceAccounts | None = None


def join(folder: Path, received: Received, arrays: dict[str, NDArray[Any]], consent: Consent) -> Card:
    """Make the folder of a device or silo, with keys that nobody else has; return its card, which is also kept there.

    The arrays are its users' ``features``, ``labels``, ``offsets``, ``budgets`` and perhaps ``allowances``; by default
    everybody allows one whole run and no more. What is joined is the invitation as it was read, and nothing that may
    stand in its place by now.
    """
    invitation, terms = received.invitation, received.terms
    # Before anything is written: the owner named this model, or it does not run here.
    own_model(terms.model, consent.model)
    if consent.accounts is not None:
        consent.accounts.check_place(folder)
    budgets, lifetime = terms.applied(arrays["budgets"]), consent.lifetime
    check_size(terms.limits, budgets.size)
    keys = [Ed25519PrivateKey.generate() for _ in range(budgets.size)]
    vault, courier = folder / "vault", folder / "courier"
    write_arrays(vault / "data.npz", {"allowances": terms.charged * budgets * terms.rounds, **arrays}, 0o600)
    write_secret(vault / "keys.bin", b"".join(key.private_bytes_raw() for key in keys))
    terms.write(vault / TERMS)
    settings = VaultSettings(
        (invitation.run,),
        invitation.shuffler_key,
        invitation.analyzer_key,
        lifetime_epsilon=lifetime.epsilon,
        lifetime_delta=lifetime.delta,
        model=consent.model,
        courier=None if consent.accounts is None else consent.accounts.courier.name,
        one_account=consent.accounts is None,
        ledger_id=secrets.token_hex(ID_BYTES),
    )
    write_settings(vault / VAULT, settings)
    new_witness(vault / settings.witness)
    # What the vault will read has to be right now, while somebody is looking.
    check_vault(vault / VAULT)
    write_bytes(courier / AUTHORITY, received.authority)
    private, public = node_key()
    write_secret(courier / "node.key", private)
    patience, largest = patience_for(terms.dimensions, budgets.size), largest_question(terms.dimensions)
    write_settings(courier / COURIER, CourierSettings(invitation.superlink, patience=patience, largest=largest))
    write_device_scripts(folder, consent.accounts)
    card = Card.of(keys, budgets, public.decode(), invitation)
    write_settings(folder / CARD, card)
    # At last: whoever these folders belong to may change them from then on.
    if consent.accounts is not None:
        consent.accounts.take_over(folder)
    return card
