"""Commands of the three parties: vault, shuffler, and a trial federation on one machine."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from apes.cli import display, shared
from apes.cli.joining import Folder, admit_command, init_command, invite_command, join_command
from apes.cli.renewing import renew_command
from apes.errors import BudgetExceeded

federation_app = typer.Typer(no_args_is_help=True, help="Devices, shuffler and analyzer as processes, on Flower.")


def vault_command(settings: Annotated[Path, typer.Argument(help="The vault's settings, vault.json.")]) -> None:
    """Guard users' data: answer one sealed report per round on a local socket, and nothing else."""
    from apes.federation.vault.folder import open_vault

    open_vault(settings).serve()


def shuffler_command(settings: Annotated[Path, typer.Argument(help="The shuffler's settings.")]) -> None:
    """Take sealed reports over HTTPS; release counts, once per round."""
    from apes.shuffler.service.server import run_shuffler

    run_shuffler(settings)


shared.command(federation_app, "init")(init_command)
shared.command(federation_app, "invite")(invite_command)
shared.command(federation_app, "join")(join_command)
shared.command(federation_app, "admit")(admit_command)
shared.command(federation_app, "renew")(renew_command)


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
    from apes.federation.renewal import certificate_warnings
    from apes.federation.trial.trial import Trial

    trial = Trial(folder)
    for warning in certificate_warnings(trial.layout):
        display.console.print(f"warning: {warning}")
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
