"""What the page opens on, as its fields have it: the training of `apes train`, of people with three budgets."""

from apes.defaults import CLIP, DIMENSIONS, NORM, ROUNDS, TARGET_EPSILON, USERS

_SHARES = (("0.1", "60"), ("0.5", "30"), ("1", "10"))
# The largest, of three digits, that keeps these people within the target; a test compares.
_CAP = 0.344
# Of the way that keeps the largest coordinates, per cent.
_KEEP = 5


def opening() -> dict[str, object]:
    """Texts by field; an empty delta is what goes with so many people."""
    sizes = {"users": USERS, "rounds": ROUNDS, "dimensions": DIMENSIONS}
    bounds = {"keep": _KEEP, "norm": NORM, "clip": CLIP, "cap": _CAP, "target": TARGET_EPSILON}
    texts = {name: f"{value:.15g}" for name, value in {**sizes, **bounds}.items()}
    return {**texts, "delta": "", "way": "one-bit", "shares": [list(row) for row in _SHARES]}
