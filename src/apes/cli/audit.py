"""The command audit: attack the real pipeline."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from apes.cli import display, shared

if TYPE_CHECKING:
    from apes.audit.audit import AuditResult


# parameters: one per option, as typer wants it.
def audit_command(
    budgets: shared.Budgets = "uniform2",
    users: shared.Users = 1_000,
    dimensions: shared.Dimensions = 50,
    trials: Annotated[int, typer.Option(help="Repetitions of each of the two worlds.")] = 10_000,
    delta: Annotated[float, typer.Option(help="Delta of both the audit and the certificate.")] = 1e-5,
    levels: shared.Levels = None,
    clip: shared.Clip = 0.1,
    norm: shared.Norm = None,
    framework: shared.FrameworkName = "apes",
    sparsifier: shared.SparsifierName = None,
    keep: shared.Keep = None,
    seed: shared.Seed = 1,
    plot: shared.Plot = None,
    as_json: shared.Json = False,
) -> None:
    """Attack the real pipeline on a worst-case pair of datasets; fail loudly if it reveals more than is certified."""
    from apes.audit.audit import audit
    from apes.budgets import make_budgets

    choices = {"framework": framework, "sparsifier": sparsifier, "keep": keep, "clip": clip, "norm": norm}
    terms = shared.certified_terms(levels, **choices)
    began = time.perf_counter()
    with display.steps("attacking", "trials") as progress:
        own = make_budgets(budgets, users, seed)
        result = audit(terms, own, dimensions=dimensions, trials=trials, delta=delta, seed=seed, progress=progress)
    # Without what only a picture shows.
    facts = {name: value for name, value in asdict(result).items() if not name.endswith("_attack")}
    facts |= {"passed": result.passed, "seconds": time.perf_counter() - began}
    if plot is not None:
        from apes.cli.plots import draw_audit

        draw_audit(result, plot)
    shared.tell(facts, as_json, _in_words(result))
    if not result.passed:
        typer.echo("apes: AUDIT FAILED: the pipeline reveals more than is certified", err=True)
        raise typer.Exit(1)


def _in_words(result: "AuditResult") -> str:
    """One line per level, and the verdict at the end."""
    lines = [
        f"{level}: certified {certified:.4g} {'>=' if certified >= audited else '<'} audited {audited:.4g}"
        for level, certified, audited in (
            ("one coordinate", result.coordinate_certified, result.coordinate_audited),
            ("a user, one round", result.user_certified, result.user_audited),
        )
    ]
    setting = f"at delta {result.delta:g}, confidence {result.confidence:g}, {result.trials:,} trials per world"
    if result.coordinate_audited == result.user_audited == 0:
        lines.append("the attack saw nothing here: fewer users, larger budgets or more trials show more")
    verdict = "certified >= audited" if result.passed else "certified < audited"
    return "\n".join([setting, *lines, verdict])
