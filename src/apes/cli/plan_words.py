"""Which plan an answer is about, as plain values and as a sentence."""

from typing import Any

from apes.accounting.words import upwards
from apes.terms.plan import Plan


def plan_as_dict(plan: Plan, *, is_fitted: bool) -> dict[str, Any]:
    """What matters of a settled plan for what is certified; ``is_fitted``: whether that was found for the people."""
    terms = plan.terms
    facts = {"framework": terms.framework, "levels": terms.reports.levels, "norm": terms.norm, "clip": terms.clip}
    return {**facts, "cap": terms.cap, "rounds": terms.rounds, "fitted_to": plan.target_epsilon if is_fitted else None}


def plan_in_words(plan: dict[str, Any]) -> str:
    """The plan in a sentence; whose it is, if it was found for the people."""
    target, levels = plan["fitted_to"], plan["levels"]
    whose = "The plan asked for"
    if target is not None:
        whose = f"The plan of `apes train`, fitted to these budgets and a target of {target:g}"
    reports = "continuous reports" if levels is None else f"{levels} levels per coordinate"
    if plan["norm"] is not None:
        reports = f"one bit per coordinate, updates within norm {plan['norm']:g}"
    cap = "no cap on budgets" if plan["cap"] is None else f"budgets capped at {plan['cap']:.4g}"
    rounds = f"{plan['rounds']:,} round" + ("" if plan["rounds"] == 1 else "s")
    return f"{whose}: {plan['framework']}, {reports}, clip bound {upwards(plan['clip'])}, {cap}, {rounds}."
