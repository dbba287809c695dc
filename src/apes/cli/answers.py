"""What commands answer people, as tables on stdout."""

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from apes.accounting.words import counted, downwards, judged, upwards
from apes.cli.display import answers, groups, table_of
from apes.cli.shared import spelt_out

if TYPE_CHECKING:
    from apes.federation.inclusion import ReportStatus


def account(answer: dict[str, Any], plan: str) -> None:
    """Print of which plan this is; what is certified of a user; then of a coordinate, which is compared."""
    answers.print(plan, markup=False)
    total, rounds = answer["certified"]["total"], f"all {counted(answer['rounds'], 'round')}"
    table = table_of("[bold]Per user, certified[/] (one user's data replaced)", ("", *_FIGURES))
    for name, what in (("round", "one round"), ("total", rounds)):
        table.add_row(what, *_figures(answer, name))
    answers.print(table)
    answers.print(f"A user, {rounds}: [bold]{judged(total['epsilon'], total['delta'])}")
    groups(answer["personal"], rounds)
    answers.print(_locally(answer))
    answers.print()
    _compared(answer)
    answers.print(f"{answer['seconds']:.1f} s")


_FIGURES = ("epsilon", "delta", "cannot be below")


def _figures(answer: dict[str, Any], name: str) -> tuple[str, str, str]:
    part, lower = answer["certified"][name], answer["lower"][name]
    return f"[bold]{upwards(part['epsilon'])}[/]", upwards(part["delta"], 3), downwards(lower) if lower > 0 else "-"


def _locally(answer: dict[str, Any]) -> str:
    """What the largest budget tells whoever sees who sent a report."""
    local = answer["local"]
    said = (
        f"Without the shuffler, the largest budget, one round: {local['dimension']:.4g} per coordinate, "
        f"{local['user']:,.4g} per user ({local['user_top_b']:,.4g} if top-b keeps a fifth)"
    )
    if "user_at_delta" in local:
        delta = answer["certified"]["round"]["delta"]
        said += f"; by the norm {local['user_at_delta']:.4g} per user at delta {delta:g}"
    return said + "."


def _compared(answer: dict[str, Any]) -> None:
    """The certificate of a coordinate among what the literature prints for it; and then what it prints for a user."""
    from apes.accounting.published.titles import title_of

    of_user = {name: value for name, value in answer["published"].items() if name.startswith("user_")}
    others = {name: value for name, value in answer["published"].items() if name not in of_user}
    own, lower = answer["certified"]["dimension"], answer["lower"]["dimension"]
    table = table_of(
        "[bold]Per coordinate, one round[/] (nobody's whole privacy)",
        ("bound", "epsilon", ""),
        f"Published at delta {answer['delta_s']:.3g}, the others at {own['delta']:.3g}.",
    )
    table.add_row("cannot be below", downwards(lower) if lower > 0 else "-", "forced by some dataset")
    table.add_row("certified", f"[bold]{upwards(own['epsilon'])}", "proved")
    for name, value in sorted(others.items(), key=lambda item: (item[1] is None, item[1] or 0.0)):
        table.add_row(escape(title_of(name)), _published(value), "published")
    answers.print(table)
    table = table_of("[bold]Per user, one round[/], as published", ("bound", "epsilon", ""))
    for name, value in of_user.items():
        table.add_row(title_of(name), _published(value), "published")
    answers.print(table)
    answers.print("Published figures are not proved for different budgets: docs/published-bounds.md")


def _published(value: float | None) -> str:
    return "outside its range" if value is None else f"{value:.4g}"


def tuned(found: dict[str, Any], out: str) -> None:
    """Print what a search for a plan came to."""
    table = table_of(
        "[bold]Best of the plans tried[/]", ("", "accuracy", "runs"), "On people of the public training part."
    )
    for name, trial in (("the plan", found["best"]), ("defaults", found["default"])):
        words = ", ".join(f"{what} {value}" for what, value in trial["choices"].items()) or "nothing changed"
        figures = f"{100 * trial['accuracy']:.2f} ± {100 * trial['spread']:.2f} %", str(len(trial["runs"]))
        table.add_row(f"{name}: {words}", *figures)
    table.add_row("always guessing the most frequent class", f"{100 * found['baseline']:.2f} %", "")
    if not found["best"]["accuracy"] > found["baseline"]:
        answers.print("[bold]No plan that was tried is better than always guessing the most frequent class.[/]")
    answers.print(table)
    answers.print(f"written to {out}; train with: apes train --plan {out} --data ...", markup=False)


_USERS_SHOWN = 20


def spent(accounts: list[dict[str, Any]]) -> None:
    """Print what the users of a vault have spent, locally and centrally: the first of them if they are many."""
    delta = upwards(accounts[0]["central"]["delta"], 3)
    local = table_of(
        "[bold]Spent locally[/] (all coordinates, rounds and runs)",
        ("user", "budget", "rounds", "epsilon", "allowance", "rounds left"),
        "Holds whoever reads the reports.",
    )
    central = table_of(
        f"[bold]Spent centrally[/], epsilon at delta {delta}",
        ("user", "epsilon", "mu", "lifetime's limit"),
        "Holds against everybody but the shuffler, had every round been of the smallest cohort that it lets through; "
        "in one run, no more than that run is certified for.",
    )
    for user, account in enumerate(accounts[:_USERS_SHOWN]):
        left = "no limit" if account["rounds_left"] is None else str(account["rounds_left"])
        figures = upwards(account["spent"]), _or(account["allowance"], "no limit")
        local.add_row(str(user), f"{account['budget']:.4g}", str(account["rounds"]), *figures, left)
        own = account["central"]
        bounds = _or(own["epsilon"], "no bound"), _or(own["mu"], "no bound"), _or(own["limit"], "no limit")
        central.add_row(str(user), *bounds)
    answers.print(local)
    answers.print(central)
    if len(accounts) > _USERS_SHOWN:
        answers.print(f"{_USERS_SHOWN} of {len(accounts):,} users; --json has them all")


def _or(figure: float | None, word: str) -> str:
    return word if figure is None else upwards(figure)


def included(reports: "list[ReportStatus]") -> None:
    """Print what is known of a vault's reports in a round: the first of them if they are many."""
    table = table_of(f"[bold]Round {reports[0].round}[/] of run {reports[0].run}", ("user", "report", "among", "why"))
    for each in reports[:_USERS_SHOWN]:
        among = "-" if each.reports is None else f"{each.reports:,} reports"
        table.add_row(str(each.user), each.status, among, escape(spelt_out(each.why or "")))
    answers.print(table)
    if len(reports) > _USERS_SHOWN:
        answers.print(f"{_USERS_SHOWN} of {len(reports):,} users; --json has them all")


def federation(summary: dict[str, Any]) -> None:
    """Print what a federation's run came to, beside what `apes train` came to with the same people."""
    from apes.training.baseline import Judged

    certified, users = summary["certified"], summary["participants_by_round"]
    judged = Judged(summary["accuracy"], summary["loss"], summary.get("baseline"), summary.get("test_rows"))
    if judged.verdict is not None:
        answers.print(f"[bold]{judged.verdict}[/]", highlight=False)
    guess = "" if judged.guess is None else f" ({judged.guess})"
    answers.print(
        f"[bold]{counted(summary['rounds'], 'round')}[/] with {min(users)} to {max(users)} participants: "
        f"{_reached(summary)}{guess}, certified epsilon [bold]{upwards(certified['epsilon'])}[/] "
        f"at delta {upwards(certified['delta'], 3)} (a user, all rounds, whoever chose who takes part: the limit that "
        f"was agreed; {upwards(certified['epsilon_by_round'][-1])} was spent): {certified['meaning']}"
        f"{''.join(f'; but {escape(caveat)}' for caveat in certified['caveats'])}"
    )
    simulated = summary.get("simulated")
    if simulated is not None:
        # Of some ways to train nothing is certified.
        epsilon = simulated["epsilon"]
        costs = "nothing certified" if epsilon is None else f"certified epsilon [bold]{upwards(epsilon)}[/]"
        answers.print(
            f"`apes train`, the same people in one process, {counted(simulated['rounds'], 'round')}: "
            f"{_reached(simulated)}, {costs} at delta {upwards(simulated['delta'], 3)}"
        )


def _reached(result: dict[str, Any]) -> str:
    accuracy = result["accuracy"]
    return f"loss [bold]{result['loss']:.4f}[/]" if accuracy is None else f"accuracy [bold]{100 * accuracy:.2f} %[/]"
