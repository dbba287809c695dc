"""The command that reproduces the paper, and makes the frontier beyond it."""

import time
from pathlib import Path
from typing import Annotated

import typer

from apes.checks import one_of
from apes.cli import display, shared
from apes.data import NAMES

_WHAT = "table3, table4, fig2a, fig2b, fig3a, fig3b, fig4 to fig8, or all of these; or, beyond the paper, frontier."


# parameters: one per option, as typer wants it.
def reproduce_command(
    what: Annotated[str, typer.Argument(help=_WHAT)],
    data: Annotated[str, typer.Option(help=f"Data set: {', '.join(NAMES)}.")] = "digits",
    data_dir: shared.DataDir = None,
    out: Annotated[Path, typer.Option(help="Folder for results; what is there is not run again.")] = Path("results"),
    is_quick: Annotated[bool, typer.Option("--quick", help="A coarse version, everything in a few minutes.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write a Markdown page of the results, too.")] = None,
    as_json: shared.Json = False,
) -> None:
    """Make a table or figure of the paper anew: result, picture, and a report with the paper's figures beside ours."""
    from apes.paper.experiments import EXPERIMENTS
    from apes.paper.page import write_page
    from apes.paper.parts import Workshop
    from apes.paper.report import write_report
    from apes.paper.run import seconds, work, write
    from apes.paper.setting import Setting, quick

    one_of("what", what, [*EXPERIMENTS, "all"])
    one_of("data", data, NAMES)
    setting = quick(data) if is_quick else Setting(data)
    chosen = [e for e in EXPERIMENTS.values() if e.is_of_paper] if what == "all" else [EXPERIMENTS[what]]
    workshop = Workshop(out, data_dir)
    workshop.dataset(data, "pixels")
    began = time.perf_counter()
    with display.shares("reproducing") as progress:
        work(chosen, setting, workshop, progress)
    options = f"--data {data}{' --data-dir DIR' if data_dir else ''}{' --quick' if is_quick else ''}"
    results = {e.name: write(e, setting, workshop, out, f"apes reproduce {e.name} {options}") for e in chosen}
    all_seconds = seconds(chosen, setting, workshop)
    report = write_report(results, out, all_seconds)
    if page is not None:
        write_page(results, out, page, all_seconds)
    took = time.perf_counter() - began
    facts = {"report": str(report), "seconds": took, "results": results}
    made = f"{len(results)} tables and figures" if len(results) > 1 else what
    shared.tell(facts, as_json, f"{report} ({made}, {took:.0f} s)")
