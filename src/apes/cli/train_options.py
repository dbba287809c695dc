"""The command train, as it is called: its options, without what trains."""

from pathlib import Path
from typing import Annotated, Any

import typer

from apes.cli import shared
from apes.cli.options import PlanOption, Preset, with_choices
from apes.cli.table_options import with_table_choices
from apes.defaults import PRIVATE

_OUT = "Folder for model, report, metrics, exposures, checkpoint, pictures."
_RESUME = "Go on with the run in this folder; with more --rounds than it had, where its target covers them."
_CLUSTER = "Workers of a cluster: tcp://HOST:PORT (a Dask scheduler), ray://HOST:PORT, or ray://local (Ray, here)."
_CACHE = "Own table in many files: MB of encoded rows that are kept in memory (default 1024)."
_LOG = "Write event files too, into the run's folder: tensorboard (extra 'tensorboard')."


@with_choices
@with_table_choices
# parameters: one per option, as typer wants it.
def train_command(
    choices: dict[str, Any],
    data_dir: shared.DataDir = None,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    resume: Annotated[Path | None, typer.Option(help=_RESUME)] = None,
    preset: Preset = PRIVATE,
    plan_file: PlanOption = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads (default: one per core).")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes of this machine, instead of threads.")] = None,
    cluster: Annotated[str | None, typer.Option(help=_CLUSTER)] = None,
    cache_mb: Annotated[int | None, typer.Option(help=_CACHE)] = None,
    log: Annotated[str | None, typer.Option(help=_LOG)] = None,
    as_json: shared.Json = False,
) -> None:
    """Train a model: users, shuffler and analyzer simulated in one process."""
    from apes.cli.train import run_training

    run_training(
        choices,
        data_dir=data_dir,
        out=out,
        resume=resume,
        preset=preset,
        plan_file=plan_file,
        threads=threads,
        workers=workers,
        cluster=cluster,
        cache_mb=cache_mb,
        log=log,
        as_json=as_json,
    )
