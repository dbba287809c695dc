"""Picture of an audit: what an attack achieved, against what is certified."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from apes.audit.attack import Attack, lower_bounds
from apes.audit.audit import AuditResult
from apes.paper.style import BLUE, BROWN, DARK, GREY, panels, save

Array = NDArray[np.float64]
_TINY = 1e-12
# Events seen less often than this tell more about chance than about the mechanism.
_OFTEN = 20


def draw_audit(result: AuditResult, path: Path) -> None:
    """Draw the attacks on a coordinate and on a user into a PNG file.

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
        below.set_ylim(0, 1.4 * max(certified, audited, _TINY))
        below.legend(fontsize=8, loc="upper right", ncols=2)
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


def certified_border(alarms: Array, epsilon: float, delta: float) -> Array:
    """Smallest rate of misses at each rate of false alarms that an (epsilon, delta)-private mechanism leaves.

    misses >= max(0, 1 - delta - exp(epsilon) alarms, exp(-epsilon) (1 - delta - alarms)) (Kairouz et al. 2015).

    Args:
        alarms: Rates in [0, 1].
        epsilon: At least 0.
        delta: In [0, 1).
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
        bounds = lower_bounds(hits, rare, attack.trials, delta)
        rates = np.maximum(rare, 0.5) / attack.trials
        axes.plot(rates, bounds, color=BROWN, linewidth=1, label=f"{mark}lower bound of each")
    axes.set_xscale("log")
    axes.set(xlim=(0.4 / attack.trials, 1.2), xlabel="false alarms or misses (rate)", ylabel="epsilon")
