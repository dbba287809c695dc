"""What would bring a way within the target: a cap on budgets, fewer rounds, more people. Every answer was certified.

A certificate takes seconds where there are many people, so the next place to look at is guessed: the Gaussian shift
that covers a round is about proportional to max tau / sqrt(sum(1 - tau^2)), tau = tanh(budget / 2) (docs/fitting.md).
A guess decides nothing but where to look.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from apes.accounting.composition.gaussian import largest_mu
from apes.advice.question import MOST_USERS
from apes.advice.reporting import Setting
from apes.mathematics.search import Search, bisect

# Caps and numbers of people have so many digits, and leave at most about this share of the target unused.
_DIGITS, _CLOSE = 3, 0.015
# Guesses stay away from the target by this share.
_MARGIN = 0.003
_SMALLEST_CAP = 1e-6
_MOST_GUESSES = 24
# At most so many times as many people are tried next.
_LONGEST_STEP = 8.0


@dataclass(frozen=True, eq=False)
class _Shape:
    """How the Gaussian shift of a round changes with the cap, up to a factor."""

    setting: Setting

    def at(self, cap: float) -> float:
        """Proportional to the shift, nearly."""
        values, counts = self.setting.question.different
        tau = np.tanh(np.minimum(values, cap) / 2)
        return float(tau.max() / math.sqrt(max(float(counts @ (1 - tau * tau)), 1e-300)))

    def cap(self, wanted: float, most: float) -> float:
        """The largest cap, at most ``most``, with at most this value."""
        return bisect(lambda cap: self.at(cap) <= wanted, most, _SMALLEST_CAP / 2, steps=60, tolerance=1e-4)


def capped(setting: Setting) -> Setting | None:
    """With about the largest cap on budgets that keeps within the target; None if none above a millionth does."""
    target, delta = setting.question.target_epsilon, setting.question.central_delta
    boldest = float(setting.question.budgets.max())
    low, high = 0.0, boldest if setting.cap is None else min(boldest, setting.cap)
    shape, allowed, cap, best = _Shape(setting), largest_mu(target, delta), high, None
    for _ in range(_MOST_GUESSES):
        tried = replace(setting, cap=cap)
        epsilon = tried.epsilon()
        mu = largest_mu(epsilon, delta)
        if epsilon <= target:
            low, best = cap, tried
            if mu >= (1 - _CLOSE) * allowed:
                break
        else:
            high = cap
        guess = shape.cap(shape.at(cap) * allowed / mu * (1 - _MARGIN), high)
        # Within what is known, and never the same place twice.
        middle = math.sqrt(low * high) if low else high / 2
        cap = _rounded(guess if low < guess < 0.995 * high else middle, math.floor)
        if not _SMALLEST_CAP < cap or cap <= low or high / cap < 1 + _CLOSE / 3:
            break
    return best


def shortened(setting: Setting) -> Setting | None:
    """With the most rounds that keep within the target; None if not even one does."""
    search = Search(
        lambda rounds: replace(setting, rounds=int(rounds)).epsilon(), setting.question.target_epsilon, None, _unwatched
    )
    too_many, fits = search.bracket(search.at(setting.rounds), 1)
    return None if fits is None else replace(setting, rounds=int(search.close_in(fits, too_many).place))


def crowded(setting: Setting) -> Setting | None:
    """With about the fewest people, spread over budgets as these are, who keep within the target; None beyond 10^7."""
    target, delta = setting.question.target_epsilon, setting.question.central_delta
    users, found, epsilon, allowed = setting.question.users, setting, setting.epsilon(), largest_mu(target, delta)
    while not epsilon <= target:
        # The shift falls like the square root of their number.
        growth = (largest_mu(epsilon, delta) / allowed) ** 2 * (1 + _MARGIN)
        users = int(_rounded(users * min(max(1 + 2 * _MARGIN, growth), _LONGEST_STEP), math.ceil))
        if users > MOST_USERS:
            return None
        found = replace(setting, question=setting.question.with_users(users))
        epsilon = found.epsilon()
    return found


def _rounded(value: float, to_whole: Callable[[float], int]) -> float:
    """To three digits, down or up."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{to_whole(value / unit) * unit:.{_DIGITS}g}")


def _unwatched(done: int, total: int) -> None:
    """Tell nobody."""
