"""Commands of the accountant: account, plan and audit."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from apes.accounting.account import Account, Question, account
from apes.accounting.planner import Goal
from apes.audit.audit import AuditResult, audit
from apes.cli import display
from apes.cli.plan import (
    LEVELS,
    answer_as_dict,
    find,
    find_levels,
    in_words,
    levels_in_words,
    make_dial,
    parse_clips,
    trade_as_dict,
)
from apes.cli.plots.audit import draw_audit
from apes.cli.plots.pictures import draw_account
from apes.cli.shared import Json, says_what_went_wrong
from apes.errors import ParameterError
from apes.terms.plan import Plan

Budgets = Annotated[str, typer.Option(help="Local budgets, as for train.")]
Users = Annotated[int, typer.Option(help="Number of users.")]
Dimensions = Annotated[int, typer.Option(help="Coordinates of a report.")]
Levels = Annotated[str, typer.Option(help="Levels of a coded report, 2 to 256, or 'continuous'.")]
FrameworkName = Annotated[str, typer.Option(help="apes, s-apes-first, s-apes-threshold, or s-apes with random-b.")]
SparsifierName = Annotated[str | None, typer.Option(help="As for train.")]
Keep = Annotated[float | None, typer.Option(help="Fraction of coordinates kept, as for train.")]
Seed = Annotated[int, typer.Option(help="Seed of the budgets.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a picture into this PNG file.")]


@says_what_went_wrong
def account_command(
    budgets: Budgets = "uniform2",
    users: Users = 10_000,
    dimensions: Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds with the same participants.")] = 40,
    delta: Annotated[float, typer.Option(help="Delta of the user-level guarantees.")] = 3.6e-5,
    levels: Levels = "256",
    delta_s: Annotated[float, typer.Option(help="Delta at which bounds a coordinate are compared.")] = 1e-8,
    colluders: Annotated[int, typer.Option(help="Users who tell the adversary what they reported.")] = 0,
    framework: FrameworkName = "apes",
    sparsifier: SparsifierName = None,
    keep: Keep = None,
    seed: Seed = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Say what is proved about the central privacy of a population, and what the literature would claim."""
    plan = _plan(budgets, users, levels, seed, framework=framework, sparsifier=sparsifier, keep=keep)
    charged = None if plan.sparsification is None else plan.coordinates_from_data(dimensions)
    chosen = plan.chosen_first(dimensions)
    question = Question(dimensions, rounds, delta, delta_s, plan.coded_levels, colluders, charged, chosen)
    began = time.perf_counter()
    with display.working() as show:
        result = account(plan.population_budgets(), question, show)
    answer = _account_as_dict(result) | {"seconds": time.perf_counter() - began}
    if plot is not None:
        draw_account(result, plot)
    display.account(answer)
    if as_json:
        typer.echo(json.dumps(answer))


def _account_as_dict(result: Account) -> dict[str, Any]:
    """The account as plain values."""
    levels = {"dimension": result.dimension, "round": result.round, "total": result.total}
    personal = zip(result.personal_local.tolist(), result.personal_central.tolist(), strict=True)
    return {
        "certified": {name: {"epsilon": part.epsilon, "delta": part.delta} for name, part in levels.items()},
        "neighbours": result.dimension.neighbours,
        "published": result.published,
        "lower": {name: part.lower for name, part in levels.items()},
        "local": result.local,
        "personal": [{"local": local, "central": central} for local, central in personal],
    }


@says_what_went_wrong
def plan_command(
    target_epsilon: Annotated[float, typer.Option(help="Largest certified epsilon of a user over all rounds.")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")],
    solve: Annotated[str, typer.Option(help="What to find: cap (on budgets), users, rounds, or levels (of reports).")],
    budgets: Budgets = "uniform2",
    users: Users = 10_000,
    dimensions: Dimensions = 7850,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 40,
    levels: Levels = "256",
    clip: Annotated[str | None, typer.Option(help="Clip bounds C[,C2,...] to state errors for, with levels.")] = None,
    framework: FrameworkName = "apes",
    sparsifier: SparsifierName = None,
    keep: Keep = None,
    seed: Seed = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Find the cap on budgets, the users, the rounds or the levels of reports that reach a target."""
    plan = _plan(budgets, users, levels, seed, framework=framework, sparsifier=sparsifier, keep=keep)
    clips = parse_clips(clip)
    charged, chosen = plan.coordinates_from_data(dimensions), plan.chosen_first(dimensions)
    goal = Goal(target_epsilon, delta, charged, rounds, plan.coded_levels, chosen)
    if clips and solve != LEVELS:
        raise ParameterError(f"clip must be left out unless levels are solved for; got {clip!r}")
    if solve == LEVELS and plan.sparsification is not None and chosen is None:
        raise ParameterError(f"framework must be one without padding to solve for levels; got {framework!r}")
    began = time.perf_counter()
    if solve == LEVELS:
        trade = find_levels(plan, goal, clips, plot)
        result, words = trade_as_dict(trade, goal, clips), levels_in_words(trade)
        display.trade(result)
    else:
        dial = make_dial(solve, plan, goal)
        answer = find(dial, solve, goal, plot)
        result = answer_as_dict(answer, solve, goal)
        words = "" if answer.value is None else dial.words.format(answer.value)
    result["seconds"] = time.perf_counter() - began
    typer.echo(json.dumps(result) if as_json else in_words(result, words))
    if not result["feasible"]:
        raise typer.Exit(1)


@says_what_went_wrong
def audit_command(
    budgets: Budgets = "uniform2",
    users: Users = 1_000,
    dimensions: Dimensions = 50,
    trials: Annotated[int, typer.Option(help="Repetitions of each of the two worlds.")] = 10_000,
    delta: Annotated[float, typer.Option(help="Delta of both the audit and the certificate.")] = 1e-5,
    levels: Levels = "256",
    seed: Seed = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Attack the real pipeline on a worst-case pair of datasets; fail loudly if it reveals more than is certified."""
    plan = _plan(budgets, users, levels, seed)
    if plan.coded_levels is None:
        raise ParameterError("levels must be in [2, 256]: the audit attacks coded reports; got 'continuous'")
    began = time.perf_counter()
    with display.steps("attacking", "coordinates") as progress:
        result = audit(
            plan.population_budgets(),
            dimensions=dimensions,
            trials=trials,
            levels=plan.coded_levels,
            delta=delta,
            seed=seed,
            progress=progress,
        )
    answer = _audit_as_dict(result) | {"seconds": time.perf_counter() - began}
    if plot is not None:
        draw_audit(result, plot)
    typer.echo(json.dumps(answer) if as_json else _audit_in_words(result))
    if not result.passed:
        typer.echo("apes: AUDIT FAILED: the pipeline reveals more than is certified", err=True)
        raise typer.Exit(1)


def _audit_as_dict(result: AuditResult) -> dict[str, Any]:
    """An audit as plain values, without what only a picture shows."""
    return {name: value for name, value in asdict(result).items() if not name.endswith("_attack")}


def _audit_in_words(result: AuditResult) -> str:
    """One line a level, and the verdict at the end."""
    lines = [
        f"{level}: certified {certified:.4g} {'>=' if certified >= audited else '<'} audited {audited:.4g}"
        for level, certified, audited in (
            ("one coordinate", result.coordinate_certified, result.coordinate_audited),
            ("a user, one round", result.user_certified, result.user_audited),
        )
    ]
    setting = f"at delta {result.delta:g}, confidence {result.confidence:g}, {result.trials:,} trials a world"
    if result.coordinate_audited == result.user_audited == 0:
        lines.append("the attack saw nothing here: fewer users, larger budgets or more trials show more")
    verdict = "certified >= audited" if result.passed else "certified < audited"
    return "\n".join([setting, *lines, verdict])


def _plan(budgets: str, users: int, levels: str, seed: int, **choices: Any) -> Plan:
    """A plan with a certificate."""
    coded = int(levels) if levels.isdigit() else levels
    plan = Plan(budgets=budgets, users=users, levels=coded, seed=seed, **choices)
    if plan.why_not_certified is not None:
        raise ParameterError(f"framework must be one with a certificate: {plan.why_not_certified}")
    return plan
