"""Commands of the parties: vault, courier, shuffler, and a trial federation on one machine."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apes.cli import answers, display, shared
from apes.errors import BudgetExceeded

if TYPE_CHECKING:
    from apes.federation.trial.trial import Trial


def vault_command(settings: Annotated[Path, typer.Argument(help="The vault's settings, vault.json.")]) -> None:
    """Guard users' data: answer one sealed report per round on a local socket, and nothing else."""
    from apes.federation.vault.folder import open_vault

    open_vault(settings).serve()


def courier_command(settings: Annotated[Path, typer.Argument(help="The courier's settings, courier.json.")]) -> None:
    """Carry models to a vault and sealed reports back, as a Flower node; runs nothing that a server sends."""
    from apes.federation.courier import Courier

    Courier(settings).run()


def shuffler_command(settings: Annotated[Path, typer.Argument(help="The shuffler's settings.")]) -> None:
    """Take sealed reports over HTTPS; release counts, once per round."""
    from apes.shuffler.service.server import run_shuffler

    run_shuffler(settings)


def superlink_command(settings: Annotated[Path, typer.Argument(help="The SuperLink's settings.")]) -> None:
    """Run Flower's SuperLink: open to nodes, and to nobody else but this machine."""
    from apes.federation.superlink import run_superlink

    run_superlink(settings)


def register_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the SuperLink, with the nodes' keys.")],
    as_json: shared.Json = False,
) -> None:
    """Tell a SuperLink that runs here which nodes it may let in; as it starts, it knows."""
    from apes.federation.registration import register
    from apes.federation.superlink import SUPERLINK, SuperLinkSettings
    from apes.storage.settings import read_settings

    nodes = register(folder, read_settings(folder / SUPERLINK, SuperLinkSettings).control)
    shared.tell({"nodes": nodes}, as_json, f"{nodes} nodes are registered")


def spent_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a device or silo.")], as_json: shared.Json = False
) -> None:
    """Show what each user of a vault has spent, and how many rounds are left; the vault may be running."""
    from apes.federation.vault.folder import read_accounts

    accounts = [asdict(account) for account in read_accounts(folder)]
    shared.tell({"folder": str(folder), "users": accounts}, as_json, lambda: answers.spent(accounts))


def included_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a device or silo.")],
    invitation: Annotated[Path, typer.Option(help="Folder of the invitation that it joined.")],
    shuffler: Annotated[str, typer.Option(help="HOST:PORT of the shuffler.")],
    number: Annotated[int | None, typer.Option("--round", help="Which round (default: the last answered).")] = None,
    as_json: shared.Json = False,
) -> None:
    """Ask the shuffler for proofs that a vault's reports counted, and check them; fail if one is missing."""
    from apes.federation.inclusion import INCLUDED, OPEN, check_reports

    found = check_reports(folder, invitation, shuffler, number)
    shared.tell(
        {"folder": str(folder), "reports": [asdict(each) for each in found]}, as_json, lambda: answers.included(found)
    )
    if any(each.status not in (INCLUDED, OPEN) for each in found):
        typer.echo("apes: NOT EVERY REPORT IS PROVED TO COUNT", err=True)
        raise typer.Exit(1)


def up_command(
    folder: shared.Folder, allow_no_protection: shared.AllowNoProtection = False, as_json: shared.Json = False
) -> None:
    """Start shuffler, SuperLink, couriers and vaults, train, and stop them again; goes on where it stopped."""
    from apes.federation.renewal import certificate_warnings
    from apes.federation.trial.trial import Trial

    trial = Trial(folder, allow_no_protection=allow_no_protection)
    for warning in certificate_warnings(trial.layout):
        display.console.print(f"warning: {warning}")
    began = time.perf_counter()
    if not trial.summary.exists():
        with trial.alone():
            _train(trial)
    summary = json.loads(trial.summary.read_text())
    if "refused" in summary:
        raise BudgetExceeded(summary["refused"])
    simulated = trial.simulated()
    summary["simulated"] = None if simulated is None else asdict(simulated)
    summary["seconds"] = time.perf_counter() - began
    shared.tell(summary, as_json, lambda: answers.federation(summary))


def _train(trial: "Trial") -> None:
    with display.working() as tell:
        tell("starting shuffler, SuperLink and vaults")
        # One vault compiles its loops for all of them.
        trial.start(["shuffler", "superlink", *trial.vaults[:1]])
        trial.start(trial.vaults[1:])
        tell("registering nodes")
        trial.register_nodes()
        tell("starting couriers")
        trial.start(trial.nodes)
        tell("starting the analyzer")
        run = trial.submit()
    from apes.cli.watching import training_rounds

    with training_rounds("federation", trial.federation.rounds, len(trial.metrics())) as show:
        trial.watch(run, show)


def down_command(folder: shared.Folder, as_json: shared.Json = False) -> None:
    """Stop what `up` started and left running."""
    from apes.federation.trial.trial import Trial

    stopped = Trial(folder).down()
    shared.tell({"stopped": stopped}, as_json, f"stopped: {', '.join(stopped) or 'nothing was running'}")
