"""The report of a run: one page with how it went, what it cost whom, what is guaranteed, and what can be done next."""

from pathlib import Path
from typing import Any

from apes.accounting.words import judged, upwards
from apes.report.charts import Chart, Line, svg
from apes.report.facts import Certified, facts_of
from apes.report.words import citation, guaranteed, how_good, proved, to_whom, trusted
from apes.storage.documents import code, document, escaped, paragraph, section, table, words, write_document
from apes.training.run_files import REPORT
from apes.training.run_folder import RunFolder

_SHOWN = 100
# How many names are spelt out.
_PARTS = (
    ("course", "How it went"),
    ("privacy", "Privacy"),
    ("people", "Who took part"),
    ("settings", "Settings"),
    ("model", "The model"),
    ("next", "What can be done next"),
    ("cite", "How to cite"),
)


def write_report(folder: RunFolder, certified: Certified) -> Path:
    """Write ``report.html`` into the folder of a run, whole or not at all."""
    path = folder.place(REPORT)
    write_document(path, page_of(facts_of(folder, certified)))
    return path


def page_of(facts: dict[str, Any]) -> str:
    """The page: everything in the facts may be a stranger's text."""
    settings = facts["settings"]
    title = "The run of a federation"
    if not facts["is_federation"]:
        title = f"{settings.get('framework', 'apes')} on {Path(str(settings.get('data', facts['data']))).name}"
    top = [f"<h1>{escaped(title)}</h1>"]
    verdict = how_good(facts).verdict
    if facts["rounds"] and verdict is not None:
        top.append(paragraph(verdict, "lead"))
    top.append(paragraph(_in_short(facts), "lead"))
    makers = (_course, _privacy, _people, _settings, _model, _next, _cite)
    parts = [section(*part, *make(facts)) for part, make in zip(_PARTS, makers, strict=True)]
    foot = paragraph(f"Made by APES {facts['version']}. This page loads nothing and runs nothing.", "quiet")
    return document(f"{title}: a run of APES", _PARTS, "\n".join([*top, *parts, foot]))


def _in_short(facts: dict[str, Any]) -> str:
    """What it came to, in a line."""
    rounds, planned = facts["rounds"], facts["planned_rounds"]
    said = _counted(rounds, "round")
    if rounds != planned:
        said += f" of {planned:,} planned" if rounds < planned else f", {planned:,} of them planned beforehand"
    ends = {"target": ", stopped at the target", "own targets": ", until nobody's own target allowed another"}
    said += ends.get(facts["stopped"], "") if facts["state"] == "finished" else f", {facts['state']}"
    if facts["loss"] is not None:
        said += f"; {how_good(facts)}"
    if facts["accuracy_note"] is not None:
        said += f" ({facts['accuracy_note']})"
    certified = facts["certified"]
    if certified["epsilon"] is None:
        return f"{said}; nothing certified."
    condition = "" if certified["condition"] is None else f", {certified['condition']}"
    return f"{said}; certified {judged(certified['epsilon'], certified['delta'])}{condition}."


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _course(facts: dict[str, Any]) -> list[str]:
    accuracy = [None if value is None else 100 * value for value in facts["accuracy_by_round"]]
    beside, baseline = how_good(facts), facts["baseline"]
    has_classes = beside.accuracy is not None
    of_accuracy = Line(100 * baseline, "always guessing the same") if baseline is not None and has_classes else None
    of_loss = Line(baseline, "always guessing the mean") if baseline is not None and not has_classes else None
    drawn = [
        _figure(Chart("Test accuracy", accuracy, " %", line=of_accuracy)),
        _figure(Chart("Test loss", facts["loss_by_round"], line=of_loss)),
    ]
    if not any(drawn):
        return [paragraph("There was no test part to judge by." if facts["rounds"] else "Nothing was released yet.")]
    note = facts["accuracy_note"]
    noted = [] if note is None else [paragraph(f"Accuracy and loss are {note}.")]
    return [*noted, _side_by_side(drawn), _by_round(facts)]


def _privacy(facts: dict[str, Any]) -> list[str]:
    certified, target = facts["certified"], facts["target_epsilon"]
    blocks = [paragraph(guaranteed(facts), "lead"), paragraph(to_whom(facts))]
    line = None if target is None else Line(target, "target")
    if line is None and certified["epsilon"] is not None:
        line = Line(certified["epsilon"], "guaranteed")
    # From above, as all that is proved: what is written beside the curve has as many digits.
    by_round = [None if value is None else float(upwards(value)) for value in certified["epsilon_by_round"] or ()]
    spent = Chart("Epsilon spent", by_round, from_zero=True, line=line)
    if certified["epsilon"] is not None:
        figures = [("guaranteed", f"epsilon {upwards(certified['epsilon'])} at delta {upwards(certified['delta'], 3)}")]
        figures += [("target", f"{target:g}")] if target is not None else []
        figures += [("holds", escaped(certified["condition"]))] if certified["condition"] else []
        figures += [("by", escaped(certified["road"])), ("neighbours", escaped(certified["neighbours"]))]
        figures += [("invitation", code(facts["fingerprint"]))] if facts["fingerprint"] else []
        blocks += [words(figures), _side_by_side([_figure(spent)])]
    if certified["by_budget"]:
        blocks += ["<h3>By own budget</h3>", _groups(facts)]
    blocks += ["<h3>Who is trusted</h3>", words((who, escaped(what)) for who, what in trusted(facts))]
    return [*blocks, paragraph(proved(facts))]


def _groups(facts: dict[str, Any]) -> str:
    """What is certified for people by their budgets, with a bar each."""
    groups = facts["certified"]["by_budget"]
    most = max([group["epsilon"] for group in groups] + [facts["target_epsilon"] or 0.0]) or 1.0
    rows = []
    for group in groups:
        members = ", ".join(escaped(name) for name in group.get("levels", ()))
        names = f" ({members})" if members else ""
        share = 100 * group["epsilon"] / most
        bar = f'<span class="bars"><span class="bar" style="width:{share:.1f}%"></span></span>'
        rows.append((f"{group['budget']:.4g}{names}", f"{group['users']:,}", upwards(group["epsilon"]), bar))
    return table(("local budget up to", "people", "certified epsilon, all rounds", ""), rows)


def _people(facts: dict[str, Any]) -> list[str]:
    present = facts["participants_by_round"]
    if not present:
        return [paragraph("The shuffler's receipts say how many." if facts["rounds"] else "Nobody yet.")]
    least, most = min(present), max(present)
    said = f"{most:,} people in every round." if least == most else f"{least:,} to {most:,} people per round."
    rows = [("data", escaped(facts["data"]))]
    if facts["table"] is not None:
        rows += [("learned", escaped(f"{facts['table']['label']} ({facts['table']['task']})"))]
        levels = ", ".join(f"{name} {budget:g}" for name, budget in facts["table"]["budget_levels"].items())
        rows += [("levels to choose from", escaped(levels))] if levels else []
    drawn = [_figure(Chart("People who took part", present, from_zero=True))] if least != most else []
    return [paragraph(said), words(rows), *([_side_by_side(drawn)] if drawn else [])]


def _settings(facts: dict[str, Any]) -> list[str]:
    given = {**facts["settings"], **{f"{name} of a report": value for name, value in (facts["reports"] or {}).items()}}
    rows = [(name.replace("_", " "), code(value)) for name, value in given.items() if value is not None]
    made = [] if facts["command"] is None else [paragraph("Such a run is made by:"), _to_copy(facts["command"])]
    return [*made, words([*rows, ("version", code(facts["version"]))])]


def _model(facts: dict[str, Any]) -> list[str]:
    about = facts["model"]
    if about is None:
        return [paragraph("There is no model yet, or one of an earlier version that does not say what it is.")]
    rows = [("kind", escaped(about["model"])), ("stands after", _counted(int(about["rounds"]), "round"))]
    for array in about["layout"]:
        axes = "".join(f"; {axis}" for axis in array["axes"])
        rows.append((str(array["name"]), escaped(f"shape {tuple(array['shape'])}{axes}")))
    rows += [(name, _names(about[name])) for name in ("classes", "features") if about[name]]
    names = ("feature_map", "schema_sha256", "terms_sha256")
    rows += [(name.replace("_", " "), code(about[name])) for name in names if about[name] is not None]
    return [paragraph("model.npz: the array 'weights', flat, and 'about', a text of JSON that says this."), words(rows)]


def _next(facts: dict[str, Any]) -> list[str]:
    blocks = [f"<p>{escaped(each['what'].capitalize())}:</p>\n{_to_copy(each['command'])}" for each in facts["next"]]
    room, reached = facts["rounds_within_target"], max(facts["rounds"], facts["planned_rounds"])
    if facts["state"] == "finished" and not facts["is_federation"] and not (room or 0) > reached:
        why = "no target was laid down before its first round" if room is None else "its target has no room for them"
        blocks.append(paragraph(f"Rounds cannot be added to this run: {why}. More of them need a new run."))
    return blocks


def _cite(facts: dict[str, Any]) -> list[str]:
    return [f"<pre><code>{escaped_lines(citation(facts['version']))}</code></pre>"]


def escaped_lines(text: str) -> str:
    """Lines of a text, each escaped."""
    return "\n".join(escaped(line) for line in text.splitlines())


def _to_copy(command: str) -> str:
    return f"<pre><code>{escaped(command)}</code></pre>"


def _names(names: list[Any]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(escaped(name) for name in names[:_SHOWN]) + more


def _figure(chart: Chart) -> str:
    drawn = svg(chart)
    return f"<figure><figcaption>{escaped(chart.title)}</figcaption>{drawn}</figure>" if drawn else ""


def _side_by_side(figures: list[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>'


def _by_round(facts: dict[str, Any]) -> str:
    """All figures, to be read or copied."""
    spent = facts["certified"]["epsilon_by_round"] or [None] * facts["rounds"]
    columns = zip(facts["accuracy_by_round"], facts["loss_by_round"], spent, facts["seconds_by_round"], strict=True)
    shown = ("{:.4f}".format, "{:.4f}".format, upwards, "{:.3f}".format)
    rows = []
    for number, figures in enumerate(columns, 1):
        cells = ["" if value is None else show(value) for show, value in zip(shown, figures, strict=True)]
        rows.append((str(number), *cells))
    whole = table(("round", "accuracy", "loss", "epsilon spent", "seconds"), rows)
    return f"<details><summary>All rounds as a table</summary>{whole}</details>"
