"""Faults of what everything stands on: checks of parameters."""

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        name="check-within-lets-nan-through",
        consequence="A parameter that is not a number is accepted.",
        file="src/apes/checks.py",
        before="    if not lower <= number <= upper:\n",
        after="    if number < lower or number > upper:\n",
        caught_by=("tests/test_checks.py",),
    ),
    Fault(
        name="check-whole-takes-true-for-one",
        consequence="A boolean is accepted for a number of users.",
        file="src/apes/checks.py",
        before="    if isinstance(value, bool) or not isinstance(value, int | np.integer):\n",
        after="    if not isinstance(value, int | np.integer):\n",
        caught_by=("tests/test_checks.py",),
    ),
)
