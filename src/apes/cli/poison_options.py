"""The command poison, as it is called: its options, without what trains."""

from typing import Annotated, Any

import typer

from apes.cli import shared
from apes.cli.options import PlanOption, Preset, with_choices
from apes.cli.table_options import with_table_choices
from apes.defaults import PRIVATE

LIARS = "1,1%,5%,10%"
_LIARS = "Who lies: numbers of people, or shares of them in per cent, with commas between them."
_CACHE = "Own table in many files: MB of encoded rows that are kept in memory (default 1024)."


@with_choices
@with_table_choices
# parameters: one per option, as typer wants it.
def poison_command(
    choices: dict[str, Any],
    liars: Annotated[str, typer.Option(help=_LIARS)] = LIARS,
    data_dir: shared.DataDir = None,
    preset: Preset = PRIVATE,
    plan_file: PlanOption = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads (default: one per core).")] = None,
    cache_mb: Annotated[int | None, typer.Option(help=_CACHE)] = None,
    as_json: shared.Json = False,
) -> None:
    """Train a plan with people who lie, and say what that does to accuracy: a report cannot be checked."""
    from apes.cli.poison import run_poison

    run_poison(
        choices,
        liars=liars,
        data_dir=data_dir,
        preset=preset,
        plan_file=plan_file,
        threads=threads,
        cache_mb=cache_mb,
        as_json=as_json,
    )
