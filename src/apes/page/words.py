"""What a figure is about and whom it relies on, in words."""

import math

from apes.accounting.words import upwards
from apes.page.setting import Setting


def sentence(epsilon: float, delta: float) -> str:
    """The guarantee in one sentence.

    >>> sentence(0.5, 1e-6)
    'Whatever the analyzer does, what it learns about anybody changes its odds by a factor of 1.7 at most, but for a \
probability of 1e-06: as long as the shuffler does not help it.'
    """
    if not epsilon < math.inf:
        return "Nothing is guaranteed: no finite figure covers it. Take smaller budgets, fewer rounds or more people."
    # From above: a factor that is printed smaller than it is would not be proved.
    factor = f"e^{upwards(epsilon)}"
    if epsilon < 15:
        factor = upwards(math.exp(epsilon), 2) if epsilon < 2 else f"{math.ceil(math.exp(epsilon)):,}"
    return (
        f"Whatever the analyzer does, what it learns about anybody changes its odds by a factor of {factor} at most, "
        f"but for a probability of {delta:g}: as long as the shuffler does not help it."
    )


def trusted(setting: Setting, local: dict[str, float]) -> list[dict[str, str]]:
    """What is protected and who is trusted, as pairs of a heading and a sentence; ``local`` is `local_figures`."""
    rounds = "one round" if setting.rounds == 1 else f"all {setting.rounds:,} rounds"
    whole_round = local["user"]
    at = ""
    if local.get("user_at_delta", math.inf) < local["user"]:
        whole_round = local["user_at_delta"]
        at = f" at delta {setting.delta:g}"
    return [
        {
            "about": "What is protected",
            "is": f"All that one person contributes: every coordinate of {rounds}, their data replaced by any other. "
            "That somebody takes part, how many do, and which budgets there are is public.",
        },
        {
            "about": "Who is trusted",
            "is": "Everybody trusts the own device. The shuffler is trusted to mix reports and not to side with the "
            "analyzer. The analyzer, the organiser and the other people are not trusted, as long as they do not "
            "make up the crowd.",
        },
        {
            "about": "If the shuffler sides with the analyzer",
            "is": f"Only the own noise is left: epsilon {upwards(local['dimension'])} per coordinate and round for "
            f"whoever has the largest budget, {float(upwards(whole_round)):,.4g} for a whole round{at}.",
        },
    ]
