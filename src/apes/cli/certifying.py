"""Certifying a run again: from its log, or in a federation by what was signed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apes.checks import unused
from apes.errors import ParameterError

if TYPE_CHECKING:
    from apes.accounting.guarantee import Guarantee
    from apes.training.run_folder import RunFolder

Invitation = Annotated[
    Path | None, typer.Option(help="Folder with the invitation that a federation's run answers to: needed there.")
]


def certified_again(folder: "RunFolder", invitation: Path | None) -> "tuple[list[float], Guarantee, dict[str, str]]":
    """What a run has spent, its guarantee, and by whose word: of a federation, the invitation's fingerprint."""
    if "receipts_key" not in folder.config["choices"]:
        unused({"invitation": invitation}, "this is no federation's run")
        return *folder.recertify(), {}
    if invitation is None:
        raise ParameterError(
            "invitation must be given: a federation's run is certified by the terms and the receipts' key that were "
            "signed there, not by what its folder says"
        )
    from apes.federation.invitation import read_invitation
    from apes.federation.receipts import Charging, certify_by_receipts

    signed, terms, _ = read_invitation(invitation)
    charging = Charging.under(terms, signed.run, signed.receipts_key)
    return *certify_by_receipts(folder, terms, charging), {"fingerprint": signed.fingerprint}
