"""Pictures of what the commands find: PNG, PDF or SVG, as the file's name ends."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from apes.accounting.account import Account
from apes.accounting.planner import Answer, CostCurve, Goal
from apes.accounting.published.titles import title_of
from apes.accounting.words import counted, upwards
from apes.audit.attack import Attack, lower_bounds
from apes.audit.audit import AuditResult
from apes.cli.run_plots import draw_personal
from apes.mathematics.arrays import F64
from apes.paper.convergence.trial import ConvergenceTrial, TrialResult
from apes.storage.pictures import (
    BLUE,
    BROWN,
    DARK,
    GREEN,
    GREY,
    PURPLE,
    SAND,
    folded,
    log_ticks,
    panels,
    save,
    shortened,
)
from apes.terms.level_choice import LevelChoice

_SOLVED_FOR = {"cap": "cap on local budgets", "users": "users", "rounds": "rounds"}
_TINY = 1e-12
# Events seen less often than this tell more about chance than about the mechanism.
_OFTEN = 20


def draw_convergence(trial: ConvergenceTrial, result: TrialResult, path: Path) -> None:
    """Draw the loss gap over the rounds, on a logarithmic axis."""
    figure, (axes,) = panels(7, 4)
    rounds = np.arange(trial.rounds + 1)
    if result.published is not None:
        axes.plot(rounds, result.published, color=SAND, linestyle="--", label="published (Theorem 3; not a bound)")
    axes.plot(rounds, result.bound, color=BLUE, label="proved bound")
    measured = "measured, one run" if trial.seeds == 1 else f"measured, mean of {trial.seeds} runs"
    axes.plot(rounds, result.measured, color=DARK, label=measured)
    # Where the band would reach 0 a logarithmic axis has no place for it.
    low = np.maximum(result.measured - result.standard_error, result.measured / 10)
    axes.fill_between(rounds, low, result.measured + result.standard_error, color=DARK, alpha=0.2, linewidth=0)
    axes.set_yscale("log", nonpositive="mask")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="round", ylabel="loss above the optimum")
    axes.legend()
    who = f"{trial.users:,} users, budgets {shortened(trial.budgets)}"
    axes.set_title(f"{who}\n{counted(trial.dimensions, 'coordinate')}, C = {trial.clip:g}", fontsize=11)
    save(figure, path)


def draw_account(result: Account, path: Path, title: str = "") -> None:
    """Draw the personal guarantees, and the certified figure per coordinate beside the published ones."""
    figure, (personal, bars) = panels(11, 4.8, 2)
    draw_personal(personal, result.personal)
    # From 0, and with the total above it: two pictures differ as much as what is in them.
    personal.set_ylim(0, 1.08 * max(group.epsilon for group in result.personal) or 1)
    personal.set_ylabel(f"certified epsilon, all rounds (delta {result.total.delta:.3g})")
    personal.set_title("per user, all rounds", fontsize=11)
    total = f"epsilon {upwards(result.total.epsilon)} at delta {upwards(result.total.delta, 3)} for a user"
    figure.suptitle(folded(f"{title}: {total}" if title else total, 11), fontsize=11)
    published = {name: value for name, value in result.published.items() if value and not name.startswith("user_")}
    rows = [("cannot be below", result.dimension.lower, GREY)] if result.dimension.lower > 0 else []
    rows.append(("certified", result.dimension.epsilon, BLUE))
    rows += [(title_of(name), value, SAND) for name, value in sorted(published.items(), key=lambda item: item[1])]
    names, values, colours = zip(*rows, strict=True)
    drawn = bars.barh(names, values, color=colours)
    bars.bar_label(drawn, [f"{value:.3g}" for value in values], padding=3, fontsize=8)
    bars.invert_yaxis()
    bars.grid(visible=False)
    bars.margins(x=0.15)
    bars.set_xlabel("epsilon per coordinate, one round")
    bars.set_title("per coordinate: blue is proved, sand only published", fontsize=11)
    save(figure, path)


def draw_plan(curve: CostCurve, answer: Answer, goal: Goal, solve: str, path: Path) -> None:
    """Draw certified epsilon against what is solved for (cap, users or rounds)."""
    figure, (axes,) = panels(7.5, 4.5)
    axes.plot(curve.places, curve.epsilons, marker="o", markersize=3, color=BLUE, label="certified epsilon")
    axes.axhline(goal.epsilon, color=BROWN, linestyle="--", label=f"target: {goal.epsilon:g}")
    _scale(axes, [*curve.epsilons, goal.epsilon])
    axes.set(xlabel=_SOLVED_FOR[solve], ylabel=f"epsilon of a user, all rounds (delta {goal.delta:g})")
    if answer.value is None or answer.epsilon is None:
        axes.set_title(folded(f"out of reach: {answer.advice}", 7.5), fontsize=10)
    else:
        allowed = [epsilon <= goal.epsilon for epsilon in curve.epsilons]
        axes.fill_between(curve.places, 0, curve.epsilons, where=allowed, color=BLUE, alpha=0.12, label="reaches it")
        found = f"{answer.value:.4g}" if solve == "cap" else f"{answer.value:,.0f}"
        axes.plot([answer.value], [answer.epsilon], "o", color=BROWN, markersize=9, label=f"answer: {found}")
        axes.set_title(f"{_SOLVED_FOR[solve]}: {found}, certified epsilon {upwards(answer.epsilon)}")
    axes.legend()
    save(figure, path)


def _scale(axes: Axes, epsilons: list[float]) -> None:
    """Places on a logarithmic scale with plain labels; epsilon from 0, or logarithmic where it spans decades."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    # In full, with commas, up to where no axis has room for it.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if 1 <= x < 1e8 else f"{x:g}"))
    if max(epsilons) > 100 * min(epsilons) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.05 * max(epsilons))


def draw_level_choice(choice: LevelChoice, goal: Goal, clips: Sequence[float], path: Path) -> None:
    """Draw the error that a target leaves against the number of levels, with each one's cap."""
    figure, (axes,) = panels(7.5, 4.5)
    feasible = [offer for offer in choice.offers if offer.cap is not None]
    levels = [offer.levels for offer in feasible]
    curves = zip(clips or [1.0], LevelChoice(tuple(feasible)).errors(clips or [1.0]).T, strict=True)
    for (clip, errors), colour in zip(curves, cycle((BLUE, PURPLE, GREEN, DARK)), strict=False):
        axes.plot(levels, errors, marker="o", color=colour, label=f"clip {clip:g}" if clips else "error")
    for offer in feasible:
        place = offer.levels, offer.error * max(clips, default=1.0)
        # On white: the curve goes on behind the words, not through them.
        behind = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
        where: dict[str, Any] = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"cap {offer.cap:.3g}", place, fontsize=9, bbox=behind, **where)
    if feasible:
        # The same number of levels on every curve: errors are proportional to the clip bound.
        best = [choice.best.error * clip for clip in clips or [1.0]]
        places, label = [choice.best.levels] * len(best), f"smallest error: {choice.best.levels} levels"
        axes.plot(places, best, "o", color=BROWN, markersize=9, label=label, linestyle="none")
    log_ticks(axes, [offer.levels for offer in choice.offers], base=2)
    axes.margins(x=0.08)
    # From 0, with room for the highest label.
    axes.set_ylim(0, 1.2 * max((offer.error for offer in feasible), default=1.0) * max(clips, default=1.0) or 1)
    unit = "in the update's units" if clips else "in units of the clip bound"
    axes.set(xlabel="levels of a report", ylabel=f"standard error, {unit}")
    title = f"mean update, per coordinate and round, at epsilon {goal.epsilon:g}, delta {goal.delta:g}"
    axes.set_title(title, fontsize=11)
    axes.legend()
    save(figure, path)


def draw_audit(result: AuditResult, path: Path) -> None:
    """Draw the attacks on a coordinate and on a user.

    Above, the two error rates of the attack at every threshold: no attack on what is certified comes below the border.
    Below, the epsilon that each threshold shows, and how much of it is beyond doubt.
    """
    figure, axes = panels(11, 8, 2, rows=2)
    attacks = (
        ("one coordinate", result.coordinate_attack, result.coordinate_certified, result.coordinate_audited),
        ("a user, one round", result.user_attack, result.user_certified, result.user_audited),
    )
    for above, below, (what, attack, certified, audited) in zip(axes[:2], axes[2:], attacks, strict=True):
        _draw_errors(above, attack, certified, result.delta)
        sign = ">=" if certified >= audited else "<"
        above.set_title(f"{what}: certified {certified:.4g} {sign} audited {audited:.4g}", fontsize=11)
        _draw_epsilons(below, attack, result.delta)
        below.axhline(certified, color=BLUE, label=f"certified: {certified:.4g}")
        below.axhline(audited, color=BROWN, linestyle="--", linewidth=2, label=f"audited: {audited:.4g}")
        # A little below 0, so that what is 0 is seen; no point is above, or behind the legend.
        seen = max((float(np.max(line.get_ydata(), initial=0.0)) for line in below.get_lines()), default=0.0)
        highest = 1.2 * max(certified, audited, seen, _TINY)
        below.set_ylim(-0.04 * highest, highest)
        below.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    verdict = "passed: certified >= audited" if result.passed else "FAILED: more is revealed than is certified"
    figure.suptitle(f"Audit {verdict} (delta {result.delta:g}, {result.trials:,} trials per world)", fontweight="bold")
    save(figure, path)


def _draw_errors(axes: Axes, attack: Attack, certified: float, delta: float) -> None:
    """The trade-off between the two kinds of error, with the border of the certified region."""
    alarms = np.linspace(0, 1, 401)
    border = certified_border(alarms, certified, delta)
    axes.fill_between(alarms, border, 0, color=BROWN, alpha=0.12, label="would refute the certificate")
    axes.plot(alarms, border, color=BLUE, label="certified: no attack gets below")
    axes.plot([0, 1], [1, 0], color=GREY, linestyle=":", label="guessing")
    rates = np.array(attack.alarms) / attack.trials, np.array(attack.misses) / attack.trials
    axes.plot(*rates, color=DARK, marker=".", markersize=4, linewidth=0.8, label="the attack")
    axes.set(xlabel="false alarms (rate)", ylabel="misses (rate)", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=8, loc="upper right")


def certified_border(alarms: F64, epsilon: float, delta: float) -> F64:
    """Smallest rate of misses at each rate of false alarms that an (epsilon, delta)-private mechanism leaves.

    misses >= max(0, 1 - delta - exp(epsilon) alarms, exp(-epsilon) (1 - delta - alarms)) (Kairouz et al. 2015).
    """
    with np.errstate(divide="ignore"):  # log 0 = -inf, on purpose
        steep = 1 - delta - np.exp(np.minimum(epsilon + np.log(alarms), 700))
    return np.asarray(np.maximum(0, np.maximum(steep, np.exp(-epsilon) * (1 - delta - alarms))))


def _draw_epsilons(axes: Axes, attack: Attack, delta: float) -> None:
    """What each threshold shows in either direction: as seen, and the bound that it would give on its own."""
    alarms, misses = np.array(attack.alarms, dtype=np.int64), np.array(attack.misses, dtype=np.int64)
    # A name that begins with _ stays out of the legend.
    for rare, wrong, mark in ((alarms, misses, ""), (misses, alarms, "_")):
        hits, often = attack.trials - wrong, rare >= _OFTEN
        seen = np.log(np.maximum(hits / attack.trials - delta, _TINY) * attack.trials / np.maximum(rare, 1))
        rates, seen = rare[often] / attack.trials, seen[often]
        axes.plot(rates, seen, ".", color=DARK, markersize=4, label=f"{mark}seen, chance included")
        # No epsilon is below 0: a bound that is says no more than that.
        bounds = np.maximum(lower_bounds(hits, rare, attack.trials, delta), 0)
        rates = np.maximum(rare, 0.5) / attack.trials
        axes.plot(rates, bounds, color=PURPLE, linewidth=1, zorder=3, label=f"{mark}lower bound of each")
    axes.set_xscale("log")
    axes.set(xlim=(0.4 / attack.trials, 1.2), xlabel="false alarms or misses (rate)", ylabel="epsilon")
