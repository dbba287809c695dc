"""The command show: what a run is, what is guaranteed about it, and what can be done next."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from apes.accounting.words import upwards
from apes.checks import unused
from apes.cli import display, shared
from apes.cli.certifying import Invitation, certified_again
from apes.errors import ParameterError
from apes.training.run_files import PRIVATE

if TYPE_CHECKING:
    from apes.report.facts import Certified
    from apes.training.run_folder import RunFolder


def show_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    invitation: Invitation = None,
    html: Annotated[bool, typer.Option("--html", help="Write the run's report.html anew.")] = False,
    as_json: shared.Json = False,
) -> None:
    """Show what a run is, what is guaranteed about it, how good its model is, and what can be done next."""
    from apes.report.facts import facts_of
    from apes.report.report import write_report
    from apes.training.run_folder import RunFolder

    folder = RunFolder.open(run)
    if html and folder.is_copy:
        raise ParameterError(
            "html must be left out: the report is the owner's, and this is a copy of what may be shown"
        )
    with display.working() as say:
        say("certifying the run again")
        certified = _certified(folder, invitation)
        facts = facts_of(folder, certified)
        if html:
            facts["report"] = str(write_report(folder, certified))
    shared.tell(facts, as_json, lambda: _print(facts))


def _certified(folder: "RunFolder", invitation: Path | None) -> "Certified":
    """What is certified: by the log, or in a federation by what was signed, which takes the invitation."""
    from apes.report.facts import Certified, is_federation
    from apes.training.basis import UnfinishedError

    if folder.load() is None and not folder.is_copy:
        unused({"invitation": invitation}, "nothing was released yet")
        return Certified(None, why="nothing was released yet")
    if is_federation(folder) and invitation is None:
        why = "a federation's run is certified by what was signed: give the invitation, --invitation FOLDER"
        return Certified(None, why=why)
    try:
        by_round, guarantee, signed = certified_again(folder, invitation)
    except UnfinishedError as error:
        return Certified(None, why=str(error))
    return Certified(guarantee, by_round, participants=_participants(folder, invitation), **signed)


def _participants(folder: "RunFolder", invitation: Path | None) -> list[int] | None:
    """How many took part in each round of a federation's run, by the receipts; None where the log says so."""
    if invitation is None:
        return None
    from apes.federation.receipts import Charging

    rounds = len(folder.charged()[1])
    receipts = Charging(**folder.config["choices"]).receipts(folder.path)
    return [receipt.users for receipt in receipts.first(rounds)]


def _print(facts: dict[str, Any]) -> None:
    from apes.report.words import guaranteed, how_good, to_whom

    verdict = how_good(facts).verdict
    if facts["rounds"] and verdict is not None:
        display.answers.print(f"[bold]{_shown(verdict)}[/]", highlight=False)
    table = Table(show_header=False, box=None, title=f"[bold]{_shown(facts['run'])}", title_justify="left")
    for name, value in _rows(facts).items():
        if value is not None:
            table.add_row(name, value)
    display.answers.print(table)
    display.answers.print(_shown(f"{guaranteed(facts)} {to_whom(facts)}"), highlight=False)
    if facts["certified"]["by_budget"]:
        display.groups(facts["certified"]["by_budget"])
    for each in facts["next"]:
        display.answers.print(f"{each['what']}: {_shown(each['command'])}", highlight=False, soft_wrap=True)


def _rows(facts: dict[str, Any]) -> dict[str, str | None]:
    from apes.report.words import how_good

    certified, reports, present = facts["certified"], facts["reports"], facts["participants_by_round"]
    ends = {"target": ", stopped at the target", "own targets": ", until nobody's own target allowed another"}
    judged = None if facts["loss"] is None else f"loss {facts['loss']:.4f}"
    if facts["accuracy"] is not None:
        judged = f"[bold]accuracy {100 * facts['accuracy']:.2f} %[/], {judged}"
    guess = how_good(facts).guess
    if judged is not None and guess is not None:
        judged += f"; {guess}"
    if facts["accuracy_note"] is not None:
        judged = f"{judged}; {facts['accuracy_note']}"
    figure = "nothing certified"
    if certified["epsilon"] is not None:
        figure = f"[bold]epsilon {upwards(certified['epsilon'])}[/] at delta {upwards(certified['delta'], 3)}"
        figure += f", {certified['road']}" + ("" if certified["condition"] is None else f", {certified['condition']}")
        figure += "".join(f"; [bold]but {_shown(caveat)}[/]" for caveat in certified["caveats"])
    users = None if not present else f"{min(present):,} to {max(present):,} people per round"
    if present and min(present) == max(present):
        users = f"{max(present):,} people in every round"
    return {
        "state": f"{facts['state']}: {_rounds(facts)}{ends.get(facts['stopped'], '')}",
        "data": _shown(facts["data"]),
        "who took part": users,
        "reports": None if reports is None else _report_words(reports),
        "test part": judged,
        "central privacy": figure,
        "target": None if facts["target_epsilon"] is None else f"epsilon {facts['target_epsilon']:g}",
        "model": _model_words(facts["model"]),
        **_files(facts),
        "report": None if "report" not in facts else _shown(facts["report"]),
        "made by": None if facts["command"] is None else _shown(facts["command"]),
        "version": _shown(facts["version"]),
    }


def _files(facts: dict[str, Any]) -> dict[str, str | None]:
    """What there is, and what of it may be shown; a folder of an earlier layout is not sorted."""
    own = [name for name in facts["files"] if name.startswith(f"{PRIVATE}/")]
    rest = ", ".join(name for name in facts["files"] if name not in own)
    if not own and not facts["is_copy"]:
        return {"files": rest}
    return {"may be shown": rest, "its owner's": ", ".join(own) or None}


def _rounds(facts: dict[str, Any]) -> str:
    done, planned = facts["rounds"], facts["planned_rounds"]
    if done > planned:
        return f"{done:,} rounds, {planned:,} of them planned beforehand"
    return f"{done:,} of {planned:,} planned rounds"


def _report_words(reports: dict[str, Any]) -> str:
    levels = "continuous" if reports["levels"] is None else f"{reports['levels']} levels"
    norm = "" if reports["norm"] is None else f", norm {reports['norm']:g}"
    return f"{reports['dimensions']:,} coordinates, {levels}, clip {reports['clip']:g}{norm}"


def _model_words(about: dict[str, Any] | None) -> str | None:
    if about is None:
        return None
    arrays = ", ".join(f"{array['name']} {tuple(array['shape'])}" for array in about["layout"])
    return _shown(f"{about['model']}: {arrays}")


def _shown(text: str) -> str:
    """A stranger's text, as it is: neither markup nor anything that would move a terminal's cursor."""
    return escape(shared.spelt_out(text))
