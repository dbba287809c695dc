"""The command line: what commands there are."""

from typing import Annotated

import typer

from apes.cli import shared
from apes.cli.account import account_command
from apes.cli.audit import audit_command
from apes.cli.converge import converge_command
from apes.cli.data import data_app
from apes.cli.federation import courier_command, federation_app, shuffler_command, superlink_command, vault_command
from apes.cli.plan import plan_command
from apes.cli.predict import predict_command
from apes.cli.reproduce import reproduce_command
from apes.cli.train import train_command
from apes.cli.tune import tune_command
from apes.storage.version import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
shared.command(app, "train")(train_command)
shared.command(app, "predict")(predict_command)
shared.command(app, "tune")(tune_command)
shared.command(app, "account")(account_command)
shared.command(app, "plan")(plan_command)
shared.command(app, "audit")(audit_command)
shared.command(app, "converge")(converge_command)
shared.command(app, "reproduce")(reproduce_command)
shared.command(app, "vault")(vault_command)
shared.command(app, "courier")(courier_command)
shared.command(app, "shuffler")(shuffler_command)
shared.command(app, "superlink")(superlink_command)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Personalised private federated learning in the shuffle model."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
