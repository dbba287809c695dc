"""Commands that bring a federation about: init for a trial; invite and join, each for its own party."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apes.checks import address, unused
from apes.cli import display, shared
from apes.cli.options import Choice, Preset, with_choices
from apes.cli.table_options import with_table_choices
from apes.defaults import FEDERATION_SILOS, FEDERATION_USERS, PRIVATE
from apes.errors import ParameterError
from apes.federation.device_accounts import COURIER_ACCOUNT, VAULT_ACCOUNT, DeviceAccounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from apes.cli.choices import Choices
    from apes.data.table.schema import Schema
    from apes.federation.subject import Subject
    from apes.people.people import People

_CARD = typer.Option(help="Most senders that one device or silo may bring.")
Colluding = Annotated[
    int | None,
    typer.Option(help="How many senders of a round may be on the analyzer's side (default: as many as a card has)."),
]
RoundSeconds = Annotated[float, typer.Option(help="How long a round waits for reports.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="MODULE:ATTRIBUTE of a model that you installed and let run here (default: one that is built in)."
    ),
]
_SILOS = f"Silos that the users are spread over (default {FEDERATION_SILOS}, without --devices)."
_USERS = Choice(int, f"Number of users (default {FEDERATION_USERS}, or one per device).")
_NO_COMPARISON = "Do not train the same people in one process too, for `up` to show beside the federation's accuracy."
# What an installed model has of its own.
_OF_BUILT_IN = ("update", "local_epochs", "local_learning_rate", "mu")


@partial(with_choices, otherwise={"users": _USERS})
@with_table_choices
# parameters: one per option, as typer wants it.
def init_command(
    choices: dict[str, Any],
    folder: shared.Folder,
    devices: Annotated[int | None, typer.Option(help="Devices of one user each.")] = None,
    silos: Annotated[int | None, typer.Option(help=_SILOS)] = None,
    preset: Preset = PRIVATE,
    model: Model = None,
    data_dir: shared.DataDir = None,
    smallest_cohort: Annotated[
        int | None, typer.Option(help="Fewest honest senders of a round (default: half of the users who are).")
    ] = None,
    largest_card: Annotated[int | None, _CARD] = None,
    colluding: Colluding = None,
    round_seconds: RoundSeconds = 600.0,
    keep_sealed: Annotated[bool, typer.Option(help="Let the analyzer keep the sealed reports.")] = False,
    allow_no_protection: shared.AllowNoProtection = False,
    no_comparison: Annotated[bool, typer.Option("--no-comparison", help=_NO_COMPARISON)] = False,
    as_json: shared.Json = False,
) -> None:
    """Make keys, certificates, policy, terms, data and start scripts for a trial on this machine.

    Planned as `apes train` plans for the same people: within a target, which clip bound and cap are fitted to.
    """
    from apes.cli.choices import names_table
    from apes.federation.trial.comparison import simulate, write_comparison
    from apes.federation.trial.setup import set_up

    if devices is not None and silos is not None:
        raise ParameterError(f"devices or silos must be left out, one of them; got {devices!r} and {silos!r}")
    if devices is not None and not names_table(choices) and choices.setdefault("users", devices) != devices:
        raise ParameterError(f"users must be left out: every device is one user; got {choices['users']!r}")
    if not names_table(choices):
        choices.setdefault("users", FEDERATION_USERS)
    chosen = _chosen(choices, model, preset)
    subject, people = _subject(chosen, data_dir)
    users = people.budgets.size
    if devices is not None and devices != users:
        raise ParameterError(
            f"devices must be {users}, one per user who trains, or left out for silos; got {devices!r}"
        )
    vaults = min(users, FEDERATION_SILOS) if devices is None and silos is None else devices or silos or 0
    how: dict[str, Any] = {"smallest_cohort": smallest_cohort, "largest_card": largest_card, "colluding": colluding}
    how |= {"round_seconds": round_seconds, "keep_sealed": keep_sealed, "allow_no_protection": allow_no_protection}
    with display.steps("making keys", "users") as progress:
        federation = set_up(folder, chosen.plan, subject, people, vaults, model=model, progress=progress, **how)
    if not no_comparison and model is None:
        with display.working() as say:
            say("training the same people in one process, for comparison")
            write_comparison(folder, simulate(chosen.plan, subject, people))
    text = f"{folder}: {federation.vaults} vaults, {federation.users} users; next: apes federation up {folder}"
    shared.tell({"folder": str(folder), "model": model, **asdict(federation)}, as_json, text)


@with_choices
@with_table_choices
# parameters: one per option, as typer wants it.
def invite_command(
    choices: dict[str, Any],
    folder: shared.Folder,
    shuffler: Annotated[str, typer.Option(help="HOST:PORT of the shuffler.")],
    superlink: Annotated[str, typer.Option(help="HOST:PORT of the SuperLink; it uses the next port too, locally.")],
    nodes: Annotated[int, typer.Option(help="Nodes to wait for before the first round.")],
    smallest_cohort: Annotated[int, typer.Option(help="Fewest honest senders of a round.")],
    smallest_budget: Annotated[float, typer.Option(help="Smallest local budget taken.")],
    largest_budget: Annotated[float, typer.Option(help="Largest local budget taken.")],
    largest_card: Annotated[int, _CARD] = 1,
    colluding: Colluding = None,
    preset: Preset = PRIVATE,
    model: Model = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the files of the public test set.")] = None,
    round_seconds: RoundSeconds = 600.0,
    allow_no_protection: shared.AllowNoProtection = False,
    as_json: shared.Json = False,
) -> None:
    """Make the folders of shuffler, SuperLink and analyzer, and an invitation, for a federation on several hosts."""
    from apes.cli.choices import names_table
    from apes.federation.parties import Servers, invite, new_folder
    from apes.federation.trial.setup import task_of
    from apes.shuffler.service.policy import Limits

    if names_table(choices) and not {"budgets", "budget_column"} & choices.keys():
        # Nobody's budgets are looked at before they join.
        choices["budgets"] = "constant:1"
    chosen = _chosen(choices, model, preset)
    servers = Servers(address("shuffler", shuffler), address("superlink", superlink), nodes, round_seconds)
    limits = Limits(smallest_budget, largest_budget, smallest_cohort, largest_card, colluding)
    subject = _public_subject(chosen, choices, data_dir)
    task = task_of(chosen.plan, subject, limits, model, allow_no_protection=allow_no_protection)
    with new_folder(folder) as part:
        invitation = invite(part, task, servers)
    said = {"folder": str(folder), "run": invitation.run, "model": model, "terms": task.terms.digest}
    said["fingerprint"] = own = invitation.fingerprint
    shared.tell(said, as_json, f"hand out {folder / 'invitation'}, and by another channel its fingerprint: {own}")


# parameters: one per option, as typer wants it.
def join_command(  # long: options, each explained where it is named
    folder: shared.Folder,
    invitation: Annotated[Path, typer.Option(help="Folder with the invitation.")],
    data: Annotated[
        Path,
        typer.Option(help="Own table, if the terms are about tables; else features, labels, offsets, budgets as .npz."),
    ],
    user_column: Annotated[str | None, typer.Option(help="Table: column of user ids (default: all are one's).")] = None,
    budget_column: Annotated[str | None, typer.Option(help="Table: column of the budgets that people chose.")] = None,
    budget: Annotated[float | None, typer.Option(help="Table: everybody's budget, without such a column.")] = None,
    model: Model = None,
    lifetime_epsilon: Annotated[
        float | None, typer.Option(help="Largest central epsilon of a user over all runs and federations.")
    ] = None,
    lifetime_delta: Annotated[float, typer.Option(help="Delta that it holds up to.")] = 1e-6,
    vault_account: Annotated[str, typer.Option(help="Account of the vault; root makes it if need be.")] = VAULT_ACCOUNT,
    courier_account: Annotated[str, typer.Option(help="Account of the courier, likewise.")] = COURIER_ACCOUNT,
    one_account: Annotated[bool, typer.Option(help="For a trial: one account, without that protection.")] = False,
    fingerprint: Annotated[
        str | None, typer.Option(help="The invitation's, as you were told it: with another one nobody joins.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Join without being asked.")] = False,
    as_json: shared.Json = False,
) -> None:
    """Show what joining means and ask; then make the folder of a device or silo, with keys of its own.

    Its card.json goes to whoever invited.
    """
    from apes.cli.offers import Invited, ask, check_invited
    from apes.federation.fingerprints import fingerprints
    from apes.federation.invitation import read_invitation
    from apes.federation.parties import CARD, Consent, join, new_folder
    from apes.federation.vault.lifetime import Lifetime

    if not one_account:
        DeviceAccounts.check_may_make()
    # Once: what is shown and agreed to is what is joined, whatever the folder holds by then.
    received, lifetime = read_invitation(invitation), Lifetime(lifetime_epsilon, lifetime_delta)
    signed, terms, _ = received
    invited = check_invited(Invited(terms, lifetime, fingerprints(signed)), model, fingerprint)
    whose = {"user_column": user_column, "budget_column": budget_column, "budget": budget}
    arrays, facts = _own_rows(data, terms.schema, whose)
    facts["offer"] = asdict(ask(invited, arrays["budgets"], yes))
    accounts = None if one_account else DeviceAccounts.made(vault_account, courier_account)
    with new_folder(folder) as part:
        card = join(part, received, arrays, Consent(model, lifetime, accounts))
    runs = "a model that is built in" if model is None else model
    text = f"{len(card.senders)} users train {runs}, invitation {signed.fingerprint}; hand over {folder / CARD}"
    said = {"folder": str(folder), "model": model, "fingerprint": signed.fingerprint, **facts, **asdict(card)}
    shared.tell(said, as_json, text)


def _chosen(choices: dict[str, Any], model: str | None, preset: str) -> "Choices":
    from apes.cli.choices import make_choices, names_table

    if model is not None:
        unused({name: choices.get(name) for name in _OF_BUILT_IN}, f"{model} has its own updates")
        if not names_table(choices):
            # It was written for images as they are.
            choices.setdefault("features", "pixels")
    return make_choices(choices, preset=preset, tables=True)


def _subject(chosen: "Choices", data_dir: Path | None) -> "tuple[Subject, People]":
    """What is trained, and by whom."""
    from apes.cli.subjects import people_of_table, tell_clipped
    from apes.federation.subject import Subject
    from apes.terms.own_table import OwnTable

    if isinstance(chosen.people, OwnTable):
        unused({"data_dir": None if data_dir is None else str(data_dir)}, "data is a file")
        people = people_of_table(chosen.people)
        tell_clipped(people.facts)
        return Subject.of_people(chosen.people, people), people
    dataset = display.dataset(chosen.people, data_dir)
    return Subject.of_images(chosen.people, dataset), chosen.people.people(dataset)


def _public_subject(chosen: "Choices", choices: dict[str, Any], data_dir: Path | None) -> "Subject":
    """What is trained, where nobody has joined yet."""
    from apes.cli.subjects import bounds_as_option
    from apes.federation.subject import Subject
    from apes.terms.own_table import OwnTable

    if isinstance(chosen.people, OwnTable):
        unused({"data_dir": data_dir, "test_share": choices.get("test_share")}, "all of a public table judges")
        with bounds_as_option(chosen.people):
            return Subject.of_public_table(chosen.people)
    return Subject.of_images(chosen.people, display.dataset(chosen.people, data_dir))


def _own_rows(
    data: Path, schema: "Schema | None", whose: dict[str, Any]
) -> "tuple[dict[str, NDArray[Any]], dict[str, Any]]":
    """What a vault is to guard; and what was read of a table."""
    from apes.cli.subjects import tell_clipped
    from apes.federation.own_table import Whose, read_own_table
    from apes.federation.vault.folder import ARRAYS
    from apes.storage.arrays import read_arrays

    if schema is None:
        unused(whose, "the terms are not about tables")
        return read_arrays(data, ARRAYS, ("allowances",)), {}
    with display.steps(f"reading {data.name}", "bytes") as progress:
        arrays, facts = read_own_table(data, schema, Whose(**whose), progress)
    tell_clipped(facts)
    return arrays, {"table": asdict(facts)}
