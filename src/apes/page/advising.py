"""The adviser on the page: the same answer as ``apes advise``, and the accuracy to expect of a setting."""

import json
from typing import Any

from apes.advice.accuracy import measured
from apes.advice.advise import advise
from apes.advice.question import Question
from apes.advice.reporting import BITS, FIRST, LEVELS
from apes.defaults import CLIP, NORM
from apes.mathematics.search import Progress
from apes.page.copies import budgets_text
from apes.page.setting import Setting, people
from apes.terms.terms import Terms

KINDS = {"one-bit": BITS, "s-apes-first": FIRST, "apes": LEVELS}
"""Ways of the page, as the adviser calls them."""


def accuracy(setting: Setting, noise: float | None) -> dict[str, Any]:
    """Expected accuracy on public data, in [0, 1], or None and why there is none."""
    # Measured were the default bounds, and the default share of coordinates.
    keep = Terms("s-apes-first").sparsification
    is_measured = setting.clip == CLIP and setting.norm in (None, NORM)
    if setting.keep is not None and keep is not None:
        is_measured = is_measured and setting.keep == keep.keep
    if noise is None or not is_measured or KINDS[setting.way] not in measured().surfaces:
        return {"expected": None, "why": "not measured for these bounds", "is": measured().basis}
    found = measured().expected(KINDS[setting.way], noise, setting.rounds, setting.dimensions)
    return {"expected": found, "why": "too far from what was measured", "is": measured().basis}


def advice(setting: Setting, target: float, progress: Progress) -> dict[str, Any]:
    """Every certified way to stay within a target, the best first; null for what is not finite."""
    question = Question(
        people(setting.users, setting.budgets, setting.upload),
        rounds=setting.rounds,
        delta=setting.delta,
        target_epsilon=target,
        dimensions=setting.dimensions,
        cap=setting.cap,
        spec=budgets_text(setting),
    )
    found: dict[str, Any] = json.loads(
        json.dumps(advise(question, progress).as_dict()), parse_constant=lambda name: None
    )
    ways = {kind: way for way, kind in KINDS.items()}
    return found | {"ways": [entry | {"way": ways[entry["kind"]]} for entry in found["ways"]]}
