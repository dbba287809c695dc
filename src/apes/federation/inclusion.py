"""Whether a device's reports counted: its owner asks the shuffler for a proof of each, and checks it here.

What was sent is known from the vault's ledger, who is who from the invitation that was joined. The shuffler is asked
directly, over TLS, with the users' own keys; nobody in between learns what it answers.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apes.checks import address, whole
from apes.errors import DataError, ProtocolError
from apes.federation.bounded import bound_answers
from apes.federation.expiry import why_refused
from apes.federation.invitation import Invitation, read_invitation
from apes.federation.vault.folder import VAULT, read_vault
from apes.federation.vault.ledger import SentReport, read_previous, read_sent
from apes.wire.envelope import Binding
from apes.wire.inclusion import INCLUSION, Inclusion, InclusionRequest

INCLUDED, MISSING, OPEN, NO_PROOF = "included", "missing", "open", "no proof"
"""What is known of a report: it is proved to count; the shuffler says that it does not; its round is not released; or
what came is no proof, or nothing came."""
_LARGEST_ANSWER = 1 << 16
_SECONDS = 30.0
_TRIES = 3
Post = Callable[[str, bytes], httpx.Response]


@dataclass(frozen=True)
class ReportStatus:
    """What is known of one report.

    Attributes:
        user: Number of the user in the vault, from 0.
        run: In hexadecimal.
        round: Of the run, from 1.
        status: ``included``, ``missing``, ``open`` or ``no proof``.
        why: What is wrong, where something is.
        reports: How many reports the release counts; None unless it is included.
        receipt: Digest of the receipt that proves it; the analyzer's receipts of the run have the same.
    """

    user: int
    run: str
    round: int
    status: str
    why: str | None = None
    reports: int | None = None
    receipt: str | None = None


def check_reports(folder: Path, invitation: Path, shuffler: str, number: int | None = None) -> list[ReportStatus]:
    """Ask for proofs that the reports of a vault's users counted.

    Args:
        folder: Of the device or silo, or of its vault; the vault may be running.
        invitation: Folder of the invitation that it joined.
        shuffler: Host and port of the shuffler.
        number: The round; by default the last one that the vault answered.

    Raises:
        DataError: If the invitation is not the one that the vault joined, or the vault answered no such round.
    """
    if number is not None:
        whole("round", number, 1, 2**32 - 1)
    address("shuffler", shuffler)
    received = read_invitation(invitation)
    context = ssl.create_default_context(cadata=received.authority.decode("ascii", "replace"))
    with httpx.Client(
        base_url=f"https://{shuffler}", verify=context, timeout=httpx.Timeout(_SECONDS), trust_env=False
    ) as client:
        bound_answers(client, _LARGEST_ANSWER)
        return statuses(folder, received.invitation, lambda path, data: _posted(client, path, data), number)


def statuses(folder: Path, invitation: Invitation, post: Post, number: int | None = None) -> list[ReportStatus]:
    """The same by a function that posts bytes to a path of the shuffler's and returns its answer."""
    folder = folder / "vault" if (folder / "vault").is_dir() else folder
    settings, terms, holdings = read_vault(folder / VAULT)
    named = invitation.run in settings.runs, invitation.shuffler_key, invitation.analyzer_key, invitation.terms
    if named != (True, settings.shuffler_key, settings.analyzer_key, terms.digest):
        raise DataError("the invitation is not the one that this vault joined")
    sent = [entry for entry in read_sent(folder / settings.ledger) if entry.run == invitation.run]
    rounds = {entry.round for entry in sent}
    if number is None and rounds:
        number = max(rounds)
    if number is None or number not in rounds:
        asked = "no round" if number is None else f"no report in round {number}"
        raise DataError(f"the vault's ledger knows of {asked} that was answered in this run")
    # What the analyzer says of the round's release, if the vault answered the round after it.
    announced = read_previous(folder / settings.ledger, invitation.run).get(number + 1)
    users = {key.public_key().public_bytes_raw(): user for user, key in enumerate(holdings.keys)}
    shuffler = Ed25519PublicKey.from_public_bytes(bytes.fromhex(invitation.receipts_key))
    found = []
    for entry in sent:
        user = users.get(entry.sender)
        if entry.round == number and user is not None:
            found.append(_status(entry, user, holdings.keys[user], (terms.digest, shuffler, announced), post))
    return sorted(found, key=lambda status: status.user)


# parameters: what is asked about, by whom, what is known of the run, and how the shuffler is asked.
def _status(
    entry: SentReport, user: int, key: Ed25519PrivateKey, known: tuple[str, Ed25519PublicKey, bytes | None], post: Post
) -> ReportStatus:
    """What the shuffler's answer proves about a report."""
    terms, shuffler, announced = known
    run = bytes.fromhex(entry.run)
    binding = Binding(run, entry.round, bytes.fromhex(terms), entry.announcement)
    request = InclusionRequest.signed(run, entry.round, entry.report, key)
    of = user, entry.run, entry.round
    try:
        answer = post(INCLUSION.format(run=entry.run, number=entry.round), request)
        if not answer.is_success:
            reason = _reason(answer)
            return ReportStatus(*of, OPEN if reason == "open" else NO_PROOF, f"the shuffler refused ({reason})")
        inclusion = Inclusion.decode(answer.content)
        is_included, digest = inclusion.check(binding, entry.report, shuffler), inclusion.receipt.digest
        if announced is not None and announced.hex() != digest:
            return ReportStatus(*of, NO_PROOF, "the analyzer was given another receipt of this round", receipt=digest)
        if is_included:
            return ReportStatus(*of, INCLUDED, reports=inclusion.receipt.users, receipt=digest)
        return ReportStatus(*of, MISSING, "the shuffler released the round without this report")
    except ProtocolError as error:
        return ReportStatus(*of, NO_PROOF, str(error))


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["refused"])[:40]
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)


def _posted(client: httpx.Client, path: str, data: bytes) -> httpx.Response:
    """Post, and again on another connection where one ended; ProtocolError if nothing comes."""
    for _ in range(_TRIES):
        try:
            return client.post(path, content=data)
        except httpx.TransportError as error:
            ended = why_refused(error, "the shuffler's", client.base_url.host, client.base_url.port or 443)
            problem = ended or f"{type(error).__name__}: {error}"
    raise ProtocolError(f"the shuffler at {client.base_url} does not answer: {problem}")
