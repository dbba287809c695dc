"""Commands of the three parties: vault, shuffler, and a trial federation on one machine."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.checks import unused
from apes.cli import display, shared
from apes.cli.options import PAPER, Choices, make_choices, with_choices
from apes.errors import BudgetExceeded, ParameterError

Folder = Annotated[Path, typer.Argument(help="Folder of the federation.")]
RoundSeconds = Annotated[float, typer.Option(help="How long a round waits for reports.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="MODULE:ATTRIBUTE of a model that you installed, which runs here (default: one that is built in)."
    ),
]
_OF_BUILT_IN = ("update", "local_epochs", "local_learning_rate", "mu")
federation_app = typer.Typer(no_args_is_help=True, help="Devices, shuffler and analyzer as processes, on Flower.")


def vault_command(settings: Annotated[Path, typer.Argument(help="The vault's settings, vault.json.")]) -> None:
    """Guard users' data: answer one sealed report per round on a local socket, and nothing else."""
    from apes.federation.vault.folder import open_vault

    open_vault(settings).serve()


def shuffler_command(settings: Annotated[Path, typer.Argument(help="The shuffler's settings.")]) -> None:
    """Take sealed reports over HTTPS; release counts, once per round."""
    from apes.shuffler.service.server import run_shuffler

    run_shuffler(settings)


@shared.command(federation_app, "init")
@with_choices
# parameters: one per option, as typer wants it.
def init_command(
    choices: dict[str, Any],
    folder: Folder,
    devices: Annotated[int | None, typer.Option(help="Devices of one user each.")] = None,
    silos: Annotated[int | None, typer.Option(help="Silos that --users are spread over.")] = None,
    model: Model = None,
    data_dir: shared.DataDir = None,
    smallest_cohort: Annotated[
        int | None, typer.Option(help="Fewest reports that the shuffler releases (default: half of the users).")
    ] = None,
    round_seconds: RoundSeconds = 600.0,
    keep_sealed: Annotated[bool, typer.Option(help="Let the analyzer keep the sealed reports.")] = False,
    as_json: shared.Json = False,
) -> None:
    """Make keys, certificates, policy, terms, data and start scripts for a trial on this machine."""
    from apes.federation.trial.setup import set_up

    if (devices is None) == (silos is None):
        raise ParameterError(f"devices or silos must be given, one of them; got {devices!r} and {silos!r}")
    if devices is not None and choices.setdefault("users", devices) != devices:
        raise ParameterError(f"users must be left out: every device is one user; got {choices['users']!r}")
    chosen = _chosen(choices, model)
    dataset = display.dataset(chosen.simulation, data_dir)
    with display.steps("making keys", "users") as progress:
        federation = set_up(
            folder,
            chosen.plan,
            chosen.simulation,
            dataset,
            devices or silos or 0,
            model=model,
            smallest_cohort=smallest_cohort,
            round_seconds=round_seconds,
            keep_sealed=keep_sealed,
            progress=progress,
        )
    text = f"{folder}: {federation.vaults} vaults, {federation.users} users; next: apes federation up {folder}"
    shared.tell({"folder": str(folder), **asdict(federation)}, as_json, text)


@shared.command(federation_app, "invite")
@with_choices
# parameters: one per option, as typer wants it.
def invite_command(
    choices: dict[str, Any],
    folder: Folder,
    shuffler: Annotated[str, typer.Option(help="HOST:PORT of the shuffler.")],
    superlink: Annotated[str, typer.Option(help="HOST:PORT of the SuperLink.")],
    nodes: Annotated[int, typer.Option(help="SuperNodes to wait for before the first round.")],
    smallest_cohort: Annotated[int, typer.Option(help="Fewest reports that the shuffler releases.")],
    smallest_budget: Annotated[float, typer.Option(help="Smallest local budget taken.")],
    largest_budget: Annotated[float, typer.Option(help="Largest local budget taken.")],
    model: Model = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the files of the public test set.")] = None,
    round_seconds: RoundSeconds = 600.0,
    as_json: shared.Json = False,
) -> None:
    """Make the folders of shuffler, SuperLink and analyzer, and an invitation, for a federation on several hosts."""
    from apes.federation.parties import Servers, invite, new_folder
    from apes.federation.trial.setup import task_of
    from apes.shuffler.service.policy import Limits

    chosen = _chosen(choices, model)
    dataset = display.dataset(chosen.simulation, data_dir)
    servers = Servers(_address("shuffler", shuffler), _address("superlink", superlink), nodes, round_seconds)
    limits = Limits(smallest_budget, largest_budget, smallest_cohort)
    task = task_of(chosen.plan, chosen.simulation, dataset, limits, model)
    with new_folder(folder) as part:
        invitation = invite(part, task, servers)
    shared.tell({"folder": str(folder), "run": invitation.run}, as_json, f"hand out {folder / 'invitation'}")


@shared.command(federation_app, "join")
# parameters: one per option, as typer wants it.
def join_command(
    folder: Folder,
    invitation: Annotated[Path, typer.Option(help="Folder with the invitation.")],
    data: Annotated[Path, typer.Option(help="NumPy archive: features, labels, offsets, budgets[, allowances].")],
    model: Model = None,
    node_port: Annotated[int, typer.Option(help="Local port for the SuperNode.")] = 9094,
    lifetime_epsilon: Annotated[
        float | None, typer.Option(help="Largest central epsilon of a user over all runs and federations.")
    ] = None,
    lifetime_delta: Annotated[float, typer.Option(help="Delta that it holds up to.")] = 1e-6,
    as_json: shared.Json = False,
) -> None:
    """Make the folder of a device or silo, with keys of its own; its card.json goes to whoever invited."""
    from apes.federation.parties import CARD, Consent, join, new_folder
    from apes.federation.vault.folder import ARRAYS
    from apes.federation.vault.lifetime import Lifetime
    from apes.storage.arrays import read_arrays

    arrays = read_arrays(data, ARRAYS, ("allowances",))
    with new_folder(folder) as part:
        lifetime = Lifetime(lifetime_epsilon, lifetime_delta)
        card = join(part, invitation, arrays, Consent(model, lifetime, node_port))
    runs = "a model that is built in" if model is None else model
    text = f"{len(card.senders)} users train {runs}; hand over {folder / CARD}"
    shared.tell({"folder": str(folder), "model": model, **asdict(card)}, as_json, text)


@shared.command(federation_app, "admit")
def admit_command(
    folder: Folder,
    cards: Annotated[list[Path], typer.Argument(help="The cards of all who take part.")],
    as_json: shared.Json = False,
) -> None:
    """Write the shuffler's policy: exactly these cards' users may report."""
    from apes.federation.parties import Card, admit
    from apes.storage.settings import read_settings

    policy = admit(folder, [read_settings(card, Card) for card in cards])
    said = {"terms": policy.terms, "users": len(policy.senders), "smallest_cohort": policy.smallest_cohort}
    shared.tell(said, as_json, f"{said['users']} users admitted to {folder}")


@shared.command(federation_app, "spent")
def spent_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a device or silo.")], as_json: shared.Json = False
) -> None:
    """Show what each user of a vault has spent, and how many rounds are left; the vault may be running."""
    from apes.federation.vault.folder import read_accounts

    accounts = [asdict(account) for account in read_accounts(folder)]
    display.spent(accounts)
    shared.tell({"folder": str(folder), "users": accounts}, as_json)


@shared.command(federation_app, "up")
def up_command(folder: Folder, as_json: shared.Json = False) -> None:
    """Start shuffler, SuperLink, SuperNodes and vaults, train, and stop them again; goes on where it stopped."""
    from apes.federation.trial.trial import Trial

    trial = Trial(folder)
    began = time.perf_counter()
    if not trial.summary.exists():
        trial.down()
        try:
            with display.working() as tell:
                tell("starting shuffler, SuperLink and vaults")
                trial.start(["shuffler", "superlink", *trial.vaults])
                tell("registering SuperNodes")
                trial.register_nodes()
                tell("starting SuperNodes")
                trial.start(trial.nodes)
                tell("starting the analyzer")
                run = trial.submit()
            with display.training_rounds("federation", trial.federation.rounds, len(trial.metrics())) as show:
                trial.watch(run, show)
        finally:
            trial.down()
    summary = json.loads(trial.summary.read_text())
    if "refused" in summary:
        raise BudgetExceeded(summary["refused"])
    summary["seconds"] = time.perf_counter() - began
    display.federation(summary)
    shared.tell(summary, as_json)


@shared.command(federation_app, "down")
def down_command(folder: Folder, as_json: shared.Json = False) -> None:
    """Stop what `up` started and left running."""
    from apes.federation.trial.trial import Trial

    stopped = Trial(folder).down()
    shared.tell({"stopped": stopped}, as_json, f"stopped: {', '.join(stopped) or 'nothing was running'}")


def _chosen(choices: dict[str, Any], model: str | None) -> Choices:
    if model is not None:
        unused({name: choices.get(name) for name in _OF_BUILT_IN}, f"{model} has its own updates")
    return make_choices(choices, preset=PAPER)


def _address(name: str, value: str) -> tuple[str, int]:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ParameterError(f"{name} must be HOST:PORT with a port in [1, 65535], got {value!r}")
    return host, int(port)
