"""The command line: what commands there are. None of them is imported before it is called."""

from typing import Annotated

import typer

from apes.cli.later import add_later

# Name, MODULE:FUNCTION within apes.cli, and what it does: the first paragraph of the function's docstring.
Row = tuple[str, str, str]
# fmt: off
COMMANDS: tuple[Row, ...] = (
    ("train", "train_options:train_command",
     "Train a model: users, shuffler and analyzer simulated in one process."),
    ("predict", "predict:predict_command",
     "Predict: a class or number for every row of a table; what was released is used, and no privacy spent."),
    ("show", "show:show_command",
     "Show what a run is, what is guaranteed about it, how good its model is, and what can be done next."),
    ("tune", "tune:tune_command",
     "Find the plan that trains best at a target, on public data; `apes train --plan FILE` takes it."),
    ("account", "account:account_command",
     "Say what is proved about the central privacy of a population, and what the literature would claim."),
    ("advise", "advise:advise_command",
     "Say how to train people with these budgets within a target: every certified way, the best first."),
    ("plan", "plan_options:plan_command",
     "Find the plan, the cap on budgets, the users, the rounds or the levels of reports that reach a target."),
    ("page", "page:page_command",
     "Serve a page with sliders on this machine: what a training would reveal, as you drag."),
    ("audit", "audit:audit_command",
     "Attack the real pipeline on a worst-case pair of datasets; fail loudly if it reveals more than is certified."),
    ("poison", "poison_options:poison_command",
     "Train a plan with people who lie, and say what that does to accuracy: a report cannot be checked."),
    ("converge", "converge:converge_command",
     "Train a problem that meets the assumptions of the convergence bound; fail loudly if the bound does not hold."),
    ("reproduce", "reproduce:reproduce_command",
     "Make a table or figure of the paper anew: result, picture, and a report with the paper's figures beside ours."),
    ("vault", "federation:vault_command",
     "Guard users' data: answer one sealed report per round on a local socket, and nothing else."),
    ("courier", "federation:courier_command",
     "Carry models to a vault and sealed reports back, as a Flower node; runs nothing that a server sends."),
    ("shuffler", "federation:shuffler_command",
     "Take sealed reports over HTTPS; release counts, once per round."),
    ("superlink", "federation:superlink_command",
     "Run Flower's SuperLink: open to nodes, and to nobody else but this machine."),
)
OF_DATA: tuple[Row, ...] = (
    ("get", "data:get_command",
     "Download a data set into the cache, checked against its checksums."),
)
OF_FEDERATION: tuple[Row, ...] = (
    ("init", "joining:init_command",
     "Make keys, certificates, policy, terms, data and start scripts for a trial on this machine."),
    ("invite", "joining:invite_command",
     "Make the folders of shuffler, SuperLink and analyzer, and an invitation, for a federation on several hosts."),
    ("join", "joining:join_command",
     "Show what joining means and ask; then make the folder of a device or silo, with keys of its own."),
    ("admit", "members:admit_command",
     "Write the shuffler's policy: exactly these cards' users may report; a running shuffler takes it by itself."),
    ("dismiss", "members:dismiss_command",
     "Take cards back: their users' reports count no longer; a running shuffler heeds it from then on."),
    ("renew", "renewing:renew_command",
     "Issue new TLS certificates for shuffler and SuperLink; the shuffler takes its own without a restart."),
    ("register", "federation:register_command",
     "Tell a SuperLink that runs here which nodes it may let in; as it starts, it knows."),
    ("spent", "federation:spent_command",
     "Show what each user of a vault has spent, and how many rounds are left; the vault may be running."),
    ("included", "federation:included_command",
     "Ask the shuffler for proofs that a vault's reports counted, and check them; fail if one is missing."),
    ("up", "federation:up_command",
     "Start shuffler, SuperLink, couriers and vaults, train, and stop them again; goes on where it stopped."),
    ("down", "federation:down_command",
     "Stop what `up` started and left running."),
)
# fmt: on

# Commands and groups inherit what asks for help.
_CONTEXT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_CONTEXT)
data_app = typer.Typer(no_args_is_help=True, help="Data sets.")
federation_app = typer.Typer(no_args_is_help=True, help="Devices, shuffler and analyzer as processes, on Flower.")
GROUPS = {"": (app, COMMANDS), "data": (data_app, OF_DATA), "federation": (federation_app, OF_FEDERATION)}
for _name, (_group, _rows) in GROUPS.items():
    for _row in _rows:
        add_later(_group, *_row)
    if _name:
        app.add_typer(_group, name=_name)


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Personalised private federated learning in the shuffle model."""
    if version:
        from apes.storage.version import __version__

        typer.echo(__version__)
        raise typer.Exit
