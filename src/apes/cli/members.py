"""Commands of who keeps a federation's members: cards are admitted, and taken back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apes.cli import shared

if TYPE_CHECKING:
    from apes.federation.card import Card
    from apes.shuffler.service.policy import Policy


def admit_command(
    folder: shared.Folder,
    cards: Annotated[list[Path], typer.Argument(help="The cards of all who take part; with --add, of those who join.")],
    add: Annotated[bool, typer.Option("--add", help="Keep whoever is admitted already.")] = False,
    as_json: shared.Json = False,
) -> None:
    """Write the shuffler's policy: exactly these cards' users may report; a running shuffler takes it by itself."""
    from apes.federation.admission import admit, admit_more
    from apes.federation.members import changing

    if add:
        policy = admit_more(folder, _read_cards(cards))
    else:
        with changing(folder):
            policy = admit(folder, _read_cards(cards))
    _tell_admitted(folder, policy, as_json)


def dismiss_command(
    folder: shared.Folder,
    cards: Annotated[list[Path], typer.Argument(help="The cards of those who go.")],
    as_json: shared.Json = False,
) -> None:
    """Take cards back: their users' reports count no longer; a running shuffler heeds it from then on."""
    from apes.federation.admission import dismiss

    _tell_admitted(folder, dismiss(folder, _read_cards(cards)), as_json)


def _read_cards(paths: list[Path]) -> "dict[Card, str]":
    """The cards in these files, and whose is which."""
    from apes.federation.card import Card
    from apes.storage.settings import read_settings

    return {read_settings(path, Card): str(path) for path in paths}


def _tell_admitted(folder: Path, policy: "Policy", as_json: bool) -> None:
    said = {"terms": policy.terms, "users": len(policy.senders), "smallest_cohort": policy.smallest_cohort}
    said |= {"colluding": policy.distrusted, "needed": policy.needed}
    text = f"{said['users']} users admitted to {folder}"
    if len(policy.senders) < policy.needed:
        text += f"; a round needs {policy.needed}, so the shuffler releases none until others are admitted"
    shared.tell(said, as_json, text)
