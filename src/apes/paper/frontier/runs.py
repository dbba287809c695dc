"""The runs of the frontier: as far as a target allows, without a trusted server and, as a yardstick, with one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from apes.errors import BudgetExceeded, ParameterError
from apes.mathematics.arrays import F64
from apes.mathematics.search import bisect
from apes.paper.frontier.trusted_server import TrustedServer
from apes.paper.task import Task
from apes.terms.fitting import fitted
from apes.terms.plan import Plan
from apes.training.train import train

# A cap on budgets is found to this relative precision; below the smallest, nothing is left to learn from.
_PRECISION, _SMALLEST_CAP = 1e-2, 1e-6


def train_within_target(task: Task, tell: Callable[[float], None], *, finds_cap: bool) -> dict[str, Any]:
    """Train under the plan's target, or without one; accuracy is None where not even one round fits.

    Args:
        task: Its plan may be open.
        tell: Called with the share of the rounds that are done.
        finds_cap: Whether to cap budgets so that all rounds fit, as high as they may be.
    """
    plan = fitted(task.plan, task.people.budgets, task.model)
    plan = capped(plan, task.people.budgets, task.model.dimensions) if finds_cap else plan
    facts = {"dimensions": task.model.dimensions, "images": task.images, "data": task.source}
    rounds = plan.terms.rounds
    try:
        result = train(
            task.model, task.people, plan, features=task.features, after_round=lambda run: tell(run.rounds / rounds)
        )
    except BudgetExceeded:
        return facts | {"accuracy": None, "rounds": 0}
    steps = [entry.accuracy for entry in result.metrics]
    found = {"accuracy": steps[-1], "accuracy_by_round": steps, "epsilon": result.guarantee.epsilon}
    return facts | found | {"rounds": len(steps), "clip": plan.terms.clip, "norm": plan.norm, "cap": plan.cap}


def train_by_trusted_server(task: Task, tell: Callable[[float], None]) -> dict[str, Any]:
    """Let the yardstick train; the task's plan names norm, rounds, target and delta."""
    plan, users = task.plan, task.people.budgets.size
    chosen = {name: getattr(plan, name) for name in ("norm", "rounds", "target_epsilon", "delta", "seed")}
    server = TrustedServer(**chosen, schedule=plan.schedule)
    steps = server.train(
        task.model, task.people, features=task.features, after_round=lambda done: tell(done / server.rounds)
    )
    return {
        "accuracy": steps[-1],
        "accuracy_by_round": list(steps),
        "rounds": server.rounds,
        "epsilon": server.epsilon(users),
        "norm": server.norm,
        "noise": server.noise(users),
        "dimensions": task.model.dimensions,
        "images": task.images,
        "data": task.source,
    }


def capped(plan: Plan, budgets: F64, dimensions: int) -> Plan:
    """The plan with about the largest cap on budgets under which all its rounds fit; itself if they do without one."""

    def fits(cap: float) -> bool:
        terms = replace(plan, cap=cap).terms
        exposure = terms.exposure(0, terms.applied(budgets), dimensions)
        return terms.accountant(budgets.size, settled=True).allows(exposure, terms.rounds)

    unsafe = float(budgets.max())
    if fits(unsafe):
        return plan
    safe = unsafe / 2
    while not fits(safe):
        unsafe, safe = safe, safe / 2
        if safe < _SMALLEST_CAP:
            raise ParameterError(f"target_epsilon must be larger: no cap reaches it; got {plan.target_epsilon!r}")
    return replace(plan, cap=bisect(fits, unsafe, safe, steps=20, tolerance=_PRECISION))
