"""A vault from its folder: settings, accepted terms, data, keys; and what its users have spent and may still spend."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from apes.checks import hex_names, plain_text, positive, truth
from apes.errors import ApesError, DataError, ParameterError
from apes.features.feature_map import mapped
from apes.federation.agreed_model import own_model
from apes.federation.installed import check_package
from apes.federation.terms import FederationTerms
from apes.federation.vault.accounts import Account, check_apart
from apes.federation.vault.charges import Grant, central_cost, local_epsilon
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import VaultLedger, read_ledger, read_runs
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.model import Discreet, check_fit
from apes.federation.vault.pace import LONGEST, public_seconds
from apes.federation.vault.socket import VaultSocket
from apes.federation.vault.vault import Vault, charges_of
from apes.federation.vault.warm_up import warm_up
from apes.federation.vault.witness import ID_BYTES, Witness
from apes.models.model import Model
from apes.people.people import People
from apes.storage.arrays import read_arrays
from apes.storage.json_logs import log
from apes.storage.settings import read_settings
from apes.wire.envelope import RUN_BYTES

ARRAYS = ("features", "labels", "offsets", "budgets")
"""What a vault holds of its users, besides their allowances."""
KEY_BYTES = 32
VAULT = "vault.json"
"""Name of a vault's settings."""


@dataclass(frozen=True)
class VaultSettings:
    """What a vault's owner accepted, and its files; paths are relative to the folder of the settings' own."""

    runs: tuple[str, ...]  # 32 hexadecimal digits each
    shuffler_key: str  # X25519 public key that reports are sealed to, 64 hexadecimal digits
    analyzer_key: str  # Ed25519 public key of the analyzer whose announcements are answered, 64 hexadecimal digits
    terms: str = "terms.json"
    data: str = "data.npz"  # `ARRAYS` and ``allowances``
    keys: str = "keys.bin"  # the users' signing keys, 32 bytes each
    ledger: str = "ledger.sqlite"  # vaults of the same people, in the same order, may share one
    socket: str = "../socket/vault.sock"  # where a courier asks
    courier: str | None = None  # account that may ask and must not read, by name or number; not the vault's
    one_account: bool = False  # for trials: vault and courier are the same account's
    lifetime_epsilon: float | None = None  # largest central epsilon of all that ever leaves for a user, or None
    lifetime_delta: float = Lifetime.delta  # that it holds up to
    model: str | None = None  # ``module:attribute`` that the owner installed and allows; None for those built in
    ledger_id: str = field(kw_only=True)  # the vault's name in its ledger, 32 hexadecimal digits, made with the folder
    witness: str = "witness.json"  # the ledger's last answer when one left
    # From a request to its answer, in (0, 3600]; None: by dimensions and users alone. Never chosen by the data.
    answer_seconds: float | None = None

    def __post_init__(self) -> None:
        hex_names("runs", self.runs, RUN_BYTES)
        hex_names("shuffler_key", (self.shuffler_key,), KEY_BYTES)
        hex_names("analyzer_key", (self.analyzer_key,), KEY_BYTES)
        truth("one_account", self.one_account)
        if not isinstance(self.courier, str | None):
            raise ParameterError(f"courier must be a text or null, got {self.courier!r}")
        for name in ("terms", "data", "keys", "ledger", "socket", "witness"):
            plain_text(name, getattr(self, name))
        if self.model is not None:
            check_package("model", self.model)
        hex_names("ledger_id", (self.ledger_id,), ID_BYTES)
        if self.answer_seconds is not None:
            positive("answer_seconds", self.answer_seconds, LONGEST)
        self.lifetime  # noqa: B018 - checks it

    @property
    def guarded(self) -> tuple[str, ...]:
        """Files that the courier's account must neither read nor replace: all but the socket that it asks at.

        The witness too: an old ledger that comes back together with an old witness would spend budgets again.
        """
        return self.data, self.keys, self.ledger, self.witness, self.terms

    @property
    def lifetime(self) -> Lifetime:
        """What the owner grants centrally."""
        return Lifetime(self.lifetime_epsilon, self.lifetime_delta)


def open_vault(file: Path) -> VaultSocket:
    """Open the vault that a settings file describes, ready to serve."""
    courier = _asking_account(file)
    (settings, terms, holdings), folder = read_vault(file), file.parent
    model = _fitting_model(file, settings, terms, holdings)
    shuffler = X25519PublicKey.from_public_bytes(bytes.fromhex(settings.shuffler_key))
    users, witness = holdings.population.budgets.size, Witness(folder / settings.witness, settings.ledger_id)
    ledger = VaultLedger(folder / settings.ledger, users, settings.lifetime, witness)
    analyzer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(settings.analyzer_key))
    warm_up(terms, holdings, model)
    vault = Vault(terms, settings.runs, holdings, shuffler, analyzer, ledger, model)
    seconds = settings.answer_seconds or public_seconds(terms.dimensions, users)
    served = VaultSocket(folder / settings.socket, vault, 4 * terms.dimensions, seconds, courier)
    if courier is None:
        log("vault", accounts="one", message="a trial: whoever takes over the courier can read the data")
    else:
        log("vault", accounts="apart", courier=settings.courier)
    return served


def _asking_account(file: Path) -> int | None:
    """Number of the account that may ask, once it is sure that it cannot read; None in a trial."""
    settings, folder = read_settings(file, VaultSettings), file.parent
    if settings.one_account:
        return None
    if settings.courier is None:
        raise DataError(f"{file} names no account for the courier, and is no trial with one_account")
    courier = Account.find(settings.courier)
    check_apart(courier, [file, *(folder / name for name in settings.guarded)])
    owner = file.stat().st_uid
    if os.geteuid() != owner:
        # What it makes would be another account's, and the vault's own could not open it afterwards.
        raise DataError(f"{file} belongs to account number {owner}: start the vault under it, with start-vault.sh")
    return courier.user


def check_vault(file: Path) -> None:
    """Raise unless the vault that a settings file describes could be opened."""
    _fitting_model(file, *read_vault(file))


def read_vault(file: Path) -> tuple[VaultSettings, FederationTerms, Holdings]:
    """Read a vault's settings, the terms that its owner accepted, and what it guards; imports nobody's model."""
    settings = read_settings(file, VaultSettings)
    terms = FederationTerms.read(file.parent / settings.terms)
    return settings, terms, _read_holdings(file.parent / settings.data, file.parent / settings.keys, terms)


def _fitting_model(file: Path, settings: VaultSettings, terms: FederationTerms, holdings: Holdings) -> Model:
    """The model that terms and owner both name, which fits what the vault guards."""
    try:
        model = own_model(terms.model, settings.model)
    except ApesError as error:
        raise DataError(f"{file}: {error}") from None
    check_fit(model, holdings, str(file.parent / settings.data))
    return model if settings.model is None else Discreet(model)


def _read_holdings(data: Path, keys: Path, terms: FederationTerms) -> Holdings:
    arrays = read_arrays(data, (*ARRAYS, "allowances"))
    try:
        secrets = keys.read_bytes()
    except OSError as error:
        raise DataError(f"{keys} cannot be read: {error}") from None
    try:
        arrays |= {"budgets": terms.applied(arrays["budgets"])}
        people, features = People(*(arrays[name] for name in ARRAYS)), terms.feature_map()
        population = people if features is None else mapped(people, None, features)[0]
    except ParameterError as error:
        raise DataError(f"{data}: {error}") from None
    if len(secrets) % KEY_BYTES:
        raise DataError(f"{keys} must hold {KEY_BYTES} bytes per user, got {len(secrets)}")
    pieces = (secrets[start : start + KEY_BYTES] for start in range(0, len(secrets), KEY_BYTES))
    signing = [Ed25519PrivateKey.from_private_bytes(piece) for piece in pieces]
    return Holdings(population, signing, np.asarray(arrays["allowances"], dtype=np.float64))


@dataclass(frozen=True)
class CentralAccount:
    """What a user has spent centrally, had every round been of the worst cohort that was agreed.

    It holds against everybody but the shuffler. Where all was answered in one run, it is no more than what that run is
    certified for, whoever takes part: the target, which the shuffler enforces, or the terms' limit. None stands for an
    infinite figure.
    """

    mu: float | None  # Gaussian shift that covers everything
    epsilon: float | None  # at this delta, in nats
    delta: float  # the owner's, where the owner set a limit; else that of the terms
    limit: float | None  # largest epsilon in all; None if there is none
    rounds_left: int | None  # that it leaves room for; None without a limit


@dataclass(frozen=True)
class UserAccount:
    """One user's account with the vault; but for ``central``, epsilon is local and holds whoever reads the reports."""

    budget: float  # per coordinate and round
    rounds: int  # that were answered, of all runs
    spent: float  # what they cost, over all coordinates, in nats
    allowance: float | None  # what the user grants in all; None if it has no limit
    central: CentralAccount
    rounds_left: int | None  # that the vault will still answer for the user; None if they have no limit


def read_accounts(folder: Path) -> list[UserAccount]:
    """Read the accounts of a vault's users, by its folder or that of its device; the vault may be running."""
    folder = folder / "vault" if (folder / "vault").is_dir() else folder
    settings, terms, holdings = read_vault(folder / VAULT)
    budgets, allowances = holdings.population.budgets.tolist(), holdings.allowances.tolist()
    witness = Witness(folder / settings.witness, settings.ledger_id)
    spending, lifetime = read_ledger(folder / settings.ledger, len(budgets), settings.lifetime, witness)
    charges, limit, accounts = charges_of(terms, holdings, lifetime), lifetime.limit, []
    agreed = terms.terms.central_delta(1)
    delta = agreed if lifetime.epsilon is None else lifetime.delta
    runs = read_runs(folder / settings.ledger)
    # One run of these terms at most: what it is certified for holds for everybody in it.
    is_one_run = len(runs) <= 1 and runs <= set(settings.runs) and agreed <= delta
    most = (terms.granted.mu_squared, terms.epsilon) if is_one_run and runs else (math.inf, math.inf)
    for budget, allowance, rounds, charge in zip(budgets, allowances, spending, charges, strict=True):
        left, cost = Grant(math.inf, limit).rounds_left(rounds, charge), central_cost(rounds)
        mu = _finite(math.sqrt(min(cost.mu_squared, most[0])))
        epsilon = _finite(min(cost.epsilon(delta), most[1]))
        central = CentralAccount(mu, epsilon, delta, lifetime.epsilon, left)
        both = Grant(allowance, limit).rounds_left(rounds, charge)
        spent, granted = local_epsilon(rounds), _finite(allowance)
        accounts.append(UserAccount(budget, rounds.total(), spent, granted, central, both))
    return accounts


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
