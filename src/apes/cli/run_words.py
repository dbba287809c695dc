"""What a training run came to, for a person: printed where answers go."""

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from apes.accounting.words import upwards
from apes.cli.display import answers, groups
from apes.cli.shared import spelt_out

if TYPE_CHECKING:
    from apes.training.baseline import Judged

_COLUMNS_SHOWN = 6


def summary(result: dict[str, Any]) -> None:
    """Print what a training run came to."""
    from apes.training.crews.crew import Facts

    verdict = _how_good(result).verdict
    if verdict is not None:
        answers.print(f"[bold]{escape(verdict)}[/]", highlight=False)
    table = Table(show_header=False, box=None, title="[bold]Result", title_justify="left")
    proved, memory = result["certified"], result["peak_memory_mb"]
    peak = "" if memory is None else f"{memory:.0f} MB at the peak; "
    rows = {
        **_judged(result),
        "trained": f"{result['framework']} on {escape(spelt_out(result['data']))}: {result['users']:,} users, "
        f"{result['dimensions']:,} coordinates, {_rounds(result)}",
        "stopped": _stopped(result),
        "time": f"{result['seconds']:.1f} s, {result['seconds_per_round']:.3f} s per round, "
        f"{peak}{Facts(**result['workers']).told}",
        "central privacy": _central(proved),
        "local privacy": _local(result),
        "written to": None if result["out"] is None else escape(spelt_out(result["out"])),
    }
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    answers.print(table)
    if proved["epsilon"] is not None:
        groups(proved["by_budget"])


def _how_good(result: dict[str, Any]) -> "Judged":
    from apes.training.baseline import Judged

    return Judged(result["accuracy"], result["loss"], result["baseline"], result["test_rows"])


def _rounds(result: dict[str, Any]) -> str:
    done, planned = result["rounds"], result["planned_rounds"]
    words = f"{done:,} round" if done == 1 else f"{done:,} rounds"
    return words if done == planned else f"{words} ({planned:,} were planned)"


def _stopped(result: dict[str, Any]) -> str | None:
    """Why there were no more rounds, where somebody may have expected some, and what would allow them."""
    if result["stopped"] == "own targets":
        return "nobody is left whose own target allows another round"
    if result["stopped"] != "target":
        return None
    more = result["more_rounds"]
    said = f"at the target: a further round would bring epsilon to {more['epsilon_after_next']:.4g}, beyond "
    said += f"{more['target']:g}"
    if more["command"] is not None:
        said += f". All {more['rounds']:,} keep within it with: [bold]{escape(spelt_out(more['command']))}[/]"
    return said + f"\nor with --target-epsilon {upwards(more['epsilon_of_all'])}"


def _central(proved: dict[str, Any]) -> str:
    if proved["epsilon"] is None:
        return f"nothing certified: {proved['why']}"
    sure = "certified" if proved["road"] != "adaptive" else "the target: rounds were added after looking"
    figure = f"[bold]epsilon {upwards(proved['epsilon'])}[/] at delta {upwards(proved['delta'], 3)} for a user"
    condition = "" if proved["condition"] is None else f"; only {proved['condition']}"
    caveats = "".join(f"; [bold]but {escape(spelt_out(caveat))}[/]" for caveat in proved["caveats"])
    return f"{figure}, {sure}: {proved['meaning']}{condition}{caveats}"


def _local(result: dict[str, Any]) -> str:
    if result["framework"] == "non-private":
        return "none: updates are averaged as they are"
    budgets = result["local_epsilon"]
    (low, high), (user_low, user_high) = budgets["coordinate"], budgets["user"]
    of_user = f"({user_low:,.4g} to {user_high:,.4g} per user and round)"
    said = f"epsilon {low:.3g} to {high:.3g} per coordinate and round, by each user's budget {of_user}"
    if "user_at_delta" in budgets:
        low, high = budgets["user_at_delta"]
        said += f"; by the norm {low:.3g} to {high:.3g} per user and round at delta {result['certified']['delta']:.3g}"
    return said


def _judged(result: dict[str, Any]) -> dict[str, str]:
    """How good the model is on the test part, if there is one; and what was read of an own table."""
    table, guess = result.get("table"), _how_good(result).guess
    if result["loss"] is None:
        said = {"test part": "none"}
    elif result["accuracy"] is not None:
        beside = "" if guess is None else f"; {guess}"
        said = {"test accuracy": f"[bold]{100 * result['accuracy']:.2f} %[/] (loss {result['loss']:.3f}{beside})"}
    else:
        error = "" if table is None else f"[bold]{table['root_mean_square_error']:.4g}[/] in the label's unit "
        beside = "" if guess is None else f"; {guess}"
        of_mean = None if table is None else table["baseline_root_mean_square_error"]
        if of_mean is not None:
            beside = f"; always guessing the mean: {of_mean:.4g}, loss {result['baseline']:.4f}"
        said = {"test error": f"root mean square {error}(loss {result['loss']:.4f}{beside})"}
    if result["accuracy_note"] is not None:
        said = {name: f"{figure}; {result['accuracy_note']}" for name, figure in said.items()}
    if table is not None:
        most = sorted((table["clipped"] or {}).items(), key=lambda item: -item[1])
        clipped = ", ".join(f"{escape(name)} {100 * share:.3g} %" for name, share in most[:_COLUMNS_SHOWN])
        nothing = "not looked at" if table["clipped"] is None else "none"
        more = f" and {len(most) - _COLUMNS_SHOWN} columns more" if len(most) > _COLUMNS_SHOWN else ""
        said["table"] = (
            f"{table['rows']:,} rows of {table['users']:,} people who train and {table['test_users']:,} who judge, "
            f"{table['left_out']:,} left out; outside the bounds: {clipped or nothing}{more}"
        )
    return said
