"""Going on: more rounds than were planned, asked for after looking at what was released.

That is a choice on the way, and what was spent is no guarantee then: only a limit is that was laid down before the
first round. So all rounds, the planned ones too, are charged to a filter for the target of the run's basis, and what is
guaranteed is that target (docs/proofs.md, 13). Where there was none, or no room in it, there is no going on.
"""

from dataclasses import replace

from apes.accounting.accountant import Accountant
from apes.accounting.cost import MOST_ROUNDS
from apes.accounting.exposure import Exposure
from apes.checks import whole
from apes.errors import BudgetExceeded, ParameterError
from apes.training.basis import Basis, accountant_of

_COVERED = "rounds asked for after looking are covered by one target for everybody, laid down before the first of all"


def filter_of(basis: Basis) -> Accountant:
    """The accountant of a run with more rounds than were planned: for the same target, whoever chooses to go on."""
    return accountant_of({**basis, "settled": False, "keep_budgets": False})


def rounds_within(basis: Basis, exposure: Exposure) -> int:
    """How many such rounds the filter for the target of a basis lets through in all; 0 without a target."""
    gate, each = filter_of(basis), replace(exposure, round=0)
    if gate.target is None or not gate.allows(each):
        return 0
    most, beyond = 1, 2
    while beyond <= MOST_ROUNDS and gate.allows(each, beyond):
        most, beyond = beyond, 2 * beyond
    beyond = min(beyond, MOST_ROUNDS + 1)
    while beyond - most > 1:
        middle = (most + beyond) // 2
        most, beyond = (middle, beyond) if gate.allows(each, middle) else (most, middle)
    return most


def check_goes_on(basis: Basis, exposure: Exposure, rounds: int, released: int) -> None:
    """Raise unless a run of this basis may go on to so many rounds in all.

    Args:
        basis: What was laid down before its first round.
        exposure: What one of its rounds reveals, with everybody.
        rounds: How many are wanted; beyond those that were planned, at least one has to fit.
        released: How many are out already.

    Raises:
        ParameterError: If nothing was laid down that covers it.
        BudgetExceeded: If the target has no room for a round more than was planned.
    """
    planned = basis["rounds"]
    if rounds < (least := max(planned, released)):
        raise ParameterError(f"rounds must be at least {least} to resume this run, got {rounds}")
    if rounds == planned or exposure.why_not_certified is not None:
        return
    must = f"rounds must be at most {least} to resume this run, got {rounds}: {_COVERED}"
    anew = f"start a new run with --rounds {rounds}"
    if basis["target"] is None:
        raise ParameterError(f"{must}, and there was none; {anew} and --target-epsilon")
    most = rounds_within(basis, exposure)
    if most <= least:
        raise BudgetExceeded(f"{must}, and only {most} fit into the target {basis['target']:g} so; {anew}")


def check_wanted(rounds: int | None, has_released: bool) -> int:
    """How many rounds in all are wanted of a run that is resumed, 0 where that is not said; refuses a new run's."""
    if rounds is None:
        return 0
    if not has_released:
        why = "no run is resumed that has released a round, and a new one's rounds are its plan's"
        raise ParameterError(f"rounds must be left out: {why}; got {rounds!r}")
    return whole("rounds", rounds, 1, MOST_ROUNDS)
