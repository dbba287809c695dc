"""The analyzer's receipts: what the shuffler signed of every release, and of the roster; what figures are made of.

They lie in the folder of the run: ``receipts.jsonl``, a line per round, and ``roster.bin``. Whoever has the shuffler's
public key can check them, and certify the run again from them.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from apes.accounting.guarantee import Guarantee
from apes.accounting.roster import charged_as, with_later
from apes.checks import hex_names
from apes.errors import ApesError, DataError, ProtocolError
from apes.federation.terms import FederationTerms
from apes.mathematics.arrays import F64
from apes.shuffler.service.policy import KEY_BYTES
from apes.storage.files import write_bytes
from apes.training.run_folder import RunFolder
from apes.wire.announcement import FIRST
from apes.wire.receipt import Receipt, check_next
from apes.wire.roster import Roster

_RECEIPTS, _ROSTER = "receipts.jsonl", "roster.bin"


class Receipts:
    """Receipts in the folder of a run, each checked with the one before it; run and terms in hexadecimal."""

    def __init__(self, folder: Path, run: str, terms: str, shuffler: Ed25519PublicKey) -> None:
        self._folder, self._run, self._terms, self._shuffler = folder, run, terms, shuffler
        self._kept: list[Receipt] = []
        self._roster: Roster | None = None
        file = folder / _RECEIPTS
        try:
            for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
                self._add(Receipt.read(line))
        except (OSError, UnicodeDecodeError, ApesError) as error:
            raise DataError(f"{file} does not hold: {error}") from None

    def first(self, rounds: int) -> list[Receipt]:
        """Receipts of the first rounds; refused if one is missing."""
        if len(self._kept) < rounds:
            file = self._folder / _RECEIPTS
            raise DataError(f"{file} does not hold: it has {len(self._kept)} receipts, {rounds} rounds were released")
        return self._kept[:rounds]

    def before(self, number: int) -> bytes:
        """Digest of the release before a round."""
        receipts = self.first(number - 1)
        return bytes.fromhex(receipts[-1].digest) if receipts else FIRST

    def keep(self, receipt: Receipt) -> None:
        """Keep a round's receipt next to those before it; ProtocolError if it does not follow, or there is another."""
        same = self._kept[receipt.round - 1 : receipt.round]
        if same == [receipt]:
            return
        if same:
            raise ProtocolError(f"the shuffler signed two receipts of round {receipt.round}")
        self._add(receipt)
        write_bytes(self._folder / _RECEIPTS, "".join(f"{entry.line()}\n" for entry in self._kept).encode())

    def _add(self, receipt: Receipt) -> None:
        check_next(receipt, self._kept[-1] if self._kept else None, self._shuffler)
        named, number = (receipt.run, receipt.round, receipt.terms), len(self._kept) + 1
        if named != (self._run, number, self._terms) or receipt.roster != self.roster().digest:
            raise ProtocolError(f"the receipt is not that of round {number} of this run and roster")
        self._kept.append(receipt)

    def roster(self) -> Roster:
        """The run's roster."""
        if self._roster is None:
            file = self._folder / _ROSTER
            try:
                self._roster = self._checked(Roster.decode(file.read_bytes()))
            except (OSError, ProtocolError) as error:
                raise DataError(f"{file} does not hold: {error}") from None
        return self._roster

    @property
    def has_roster(self) -> bool:
        """Whether the roster is there."""
        return (self._folder / _ROSTER).exists()

    def keep_roster(self, roster: Roster) -> None:
        """Keep the run's roster, once and for ever."""
        write_bytes(self._folder / _ROSTER, self._checked(roster).encode())

    def _checked(self, roster: Roster) -> Roster:
        roster.check(self._shuffler)
        if (roster.run, roster.terms) != (self._run, self._terms):
            raise ProtocolError("the roster is not that of this run under these terms")
        return roster


@dataclass(frozen=True)
class Charging:
    """What receipts are charged by, as the configuration of a run holds it."""

    run: str
    terms: str
    receipts_key: str  # the shuffler's, Ed25519, in hexadecimal
    colluding: int
    largest_budget: float

    def __post_init__(self) -> None:
        hex_names("receipts_key", (self.receipts_key,), KEY_BYTES)

    @classmethod
    def under(cls, terms: FederationTerms, run: str, receipts_key: str) -> "Charging":
        """What the terms say of it."""
        return cls(run, terms.digest, receipts_key, terms.taken.distrusted, terms.taken.largest_budget)

    def receipts(self, folder: Path) -> Receipts:
        """The receipts in a folder."""
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.receipts_key))
        return Receipts(folder, self.run, self.terms, key)

    @property
    def people(self) -> str:
        """Whom a run is about, as its log names them."""
        by = f"by the receipts of {self.receipts_key}"
        return f"those who take part in {self.run}, {by}, {self.colluding} colluding, {self.largest_budget!r} the most"

    def budgets(self, roster: F64, receipt: Receipt) -> F64:
        """The budgets that a round is charged for."""
        return charged_as(with_later(roster, receipt.later, self.largest_budget), receipt.users, self.colluding)


def check_cohort(terms: FederationTerms, receipt: Receipt, roster: F64) -> F64:
    """Raise unless a round is of the form and of a cohort that the terms allow; return the budgets of all enrolled."""
    if receipt.shape != (terms.dimensions, terms.levels):
        raise ProtocolError(f"the shuffler's release {receipt.round} is not of the terms' coordinates and levels")
    taken = terms.taken
    enrolled = with_later(roster, receipt.later, taken.largest_budget)
    if not (taken.needed <= receipt.users <= enrolled.size and taken.takes(enrolled)):
        raise ProtocolError(f"the shuffler's release {receipt.round} is of a cohort beyond the terms' limits")
    return enrolled


def certify_by_receipts(folder: RunFolder, terms: FederationTerms, charging: Charging) -> tuple[list[float], Guarantee]:
    """What was spent after every round, and the guarantee, by the terms and the shuffler's receipts alone.

    Nothing else in the folder has a say: its log only has to agree, lest somebody reads there what is not so.
    """
    try:
        identity, logged = folder.charged()
        receipts = charging.receipts(folder.path)
        roster = receipts.roster().budgets
        accountant = terms.terms.accountant(1, settled=False, limit=terms.limit)
        by_round = []
        for receipt, exposure in zip(receipts.first(len(logged)), logged, strict=True):
            check_cohort(terms, receipt, roster)
            told = terms.terms.exposure(receipt.round, charging.budgets(roster, receipt), terms.dimensions)
            if told.as_dict() != exposure.as_dict():
                raise DataError(f"round {receipt.round} was charged otherwise than its receipt says")
            by_round.append(accountant.record(told))
        # The log of an earlier layout names them in another place.
        if (identity.name or identity.people) != charging.people or Charging(**folder.config["choices"]) != charging:
            raise DataError(f"its log or its configuration is not of {charging.people}")
        said = folder.recertify()[1]
        # By the terms that were signed, not by what the folder says of the table.
        caveats = () if terms.schema is None else terms.schema.caveats
        proved = replace(accountant.guarantee, caveats=caveats)
        if (said.epsilon, said.delta) != (proved.epsilon, proved.delta):
            raise DataError(f"its log claims epsilon {said.epsilon:.4g}, its receipts prove {proved.epsilon:.4g}")
    except (ApesError, TypeError) as error:
        raise DataError(f"{folder.path} has no receipts for what it says: {error}") from None
    return by_round, proved
