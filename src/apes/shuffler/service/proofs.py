"""Proofs for senders: the hash tree over a release's reports, and what one sender may know of it (apes.wire.inclusion).

Leaves are blinded by a secret that only those who hold the shuffler's signing key can compute. So several shufflers on
one ledger, and one that was started again, give the same root and the same answers, and nothing more has to be kept
than the digest of every report that counted.
"""

import hmac
import threading
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.shuffler.service.ledger import ShufflerLedger
from apes.wire.envelope import Binding
from apes.wire.inclusion import Inclusion, InclusionRequest, ReportTree, blinding_of, leaf_of
from apes.wire.receipt import Receipt
from apes.wire.release import receipt_of

# Trees that are kept, of about 64 bytes per report: senders ask about the last rounds.
_TREES = 4
_PURPOSE = b"apes inclusion secret 1\n"


class Proofs:
    """Roots of releases, and answers to those who sent a report.

    Guarantee:
        A proof is handed out for the report of the sender who signed the question, and for no other.
    """

    def __init__(self, ledger: ShufflerLedger, signing: Ed25519PrivateKey) -> None:
        self._ledger = ledger
        self._secret = hmac.digest(signing.private_bytes_raw(), _PURPOSE, "sha256")
        self._kept, self._lock = lru_cache(maxsize=_TREES)(self._read), threading.Lock()

    def root(self, binding: Binding, reports: Iterable[bytes]) -> bytes:
        """The root over the reports with these digests."""
        return self._tree(binding, reports).root

    def answer(self, request: InclusionRequest, release: bytes, members: Container[bytes]) -> bytes | None:
        """What a sender may know of a release, encoded; of the same size whether the report is in it or not.

        None for who is neither one of the members nor somebody whose report counted.
        """
        receipt = receipt_of(release)
        with self._lock:
            reports, tree = self._kept(_binding(receipt))
        if request.sender not in members and request.sender not in reports:
            return None
        return self._inclusion(request, receipt, reports, tree).encode()

    def _inclusion(
        self, request: InclusionRequest, receipt: Receipt, reports: Mapping[bytes, bytes], tree: ReportTree | None
    ) -> Inclusion:
        binding = _binding(receipt)
        if not receipt.included or tree is None:
            return Inclusion(receipt)
        # The same steps whoever asks about whatever, so that the time tells those who see the network no more.
        blinding = blinding_of(self._secret, binding, request.report)
        found = tree.path(leaf_of(binding, request.report, blinding))
        is_own = reports.get(request.sender) == request.report
        if found is None or not is_own:
            return Inclusion(receipt)
        place, path = found
        return Inclusion(receipt, True, blinding, place, tuple(path))

    def _read(self, binding: Binding) -> tuple[dict[bytes, bytes], ReportTree | None]:
        reports = self._ledger.reports(binding.run.hex(), binding.round)
        return reports, self._tree(binding, reports.values()) if reports else None

    def _tree(self, binding: Binding, reports: Iterable[bytes]) -> ReportTree:
        return ReportTree(leaf_of(binding, report, blinding_of(self._secret, binding, report)) for report in reports)


def _binding(receipt: Receipt) -> Binding:
    """What the reports of a release were made for."""
    run, terms, announcement = (bytes.fromhex(name) for name in (receipt.run, receipt.terms, receipt.announcement))
    return Binding(run, receipt.round, terms, announcement)
