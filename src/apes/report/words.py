"""What is guaranteed about a run, to whom, by whose trust, where it is proved: in words that a person understands."""

import math
from collections.abc import Mapping
from typing import Any

from apes.accounting.words import meaning, upwards
from apes.training.baseline import Judged

PAPER = "Echo of Neighbors: Privacy Amplification for Personalized Private Federated Learning with Shuffle Model"
"""The paper that APES and S-APES are from."""
AUTHORS = ("Yixuan Liu", "Suyun Zhao", "Li Xiong", "Yuhan Liu", "Hong Chen")


def how_good(facts: dict[str, Any]) -> Judged:
    """How the model did on the test part, beside always guessing the same."""
    return Judged(facts["accuracy"], facts["loss"], facts["baseline"], facts["test_rows"])


def guaranteed(facts: dict[str, Any]) -> str:
    """The guarantee in a sentence."""
    certified = facts["certified"]
    if certified["epsilon"] is None:
        return f"Nothing is guaranteed about what was released: {certified['why'] or 'nothing was released yet'}."
    times = _factor(certified["epsilon"])
    return (
        "Whatever the analyzer does with what was released, and whomever it tells: had the data of any one person been "
        f"anything else, the likelihood of whatever it may conclude would differ by a factor of {times} at most, but "
        f"for a probability of {upwards(certified['delta'], 3)}. "
        f"That is {meaning(certified['epsilon'], certified['delta'])}.{_condition(certified)}"
        f"{''.join(f' But {caveat}.' for caveat in certified.get('caveats', ()))}"
    )


def _condition(certified: Mapping[str, Any]) -> str:
    """What else has to hold, as a sentence of its own; nothing where nothing has to."""
    if certified.get("condition") is None:
        return ""
    return (
        f" It holds only {certified['condition']}: the noise follows from a seed that was given, and whoever has it "
        "can draw the same noise and subtract it."
    )


def _factor(epsilon: float) -> str:
    """The factor e^epsilon, in three digits from above where that can be read."""
    if epsilon > 9:
        return f"e^{upwards(epsilon)}"
    factor = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(factor)) - 2)
    return f"{math.ceil(factor / unit) * unit:,.4g}"


def to_whom(facts: dict[str, Any]) -> str:
    """Whom the guarantee covers, and by which road."""
    certified = facts["certified"]
    if certified["epsilon"] is None:
        return "It covers nobody."
    if certified["road"] != "adaptive":
        return (
            "It covers everybody who took part, all of their data, all coordinates and all rounds together. Who took "
            "part, and how many rounds there were to be, was settled before the first one."
        )
    chosen = "by who answered and by whoever asked" if facts["is_federation"] else "after looking at the first ones"
    return (
        "It covers everybody who took part, all of their data, all coordinates and all rounds together. How it went on "
        f"was chosen on the way, {chosen}: so what is guaranteed, to everybody alike, is the limit that was laid down "
        "before the first round, not what was spent."
    )


def trusted(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Who is trusted with what."""
    if facts["is_federation"]:
        rows = [
            ("each person's own device or silo", "with that person's data, and with its randomness"),
            ("the shuffler", "not to tell the analyzer who sent what; it sees reports, no data"),
            ("the analyzer, and whoever reads the model", "with nothing"),
        ]
    else:
        rows = [
            ("whoever ran this program", "with all data: devices, shuffler and analyzer were simulated in one place"),
            ("whoever reads the model or the counts", "with nothing: that is what the guarantee is about"),
        ]
    return rows


def proved(facts: dict[str, Any]) -> str:
    """Where the proof is, and how to have the figure computed again."""
    certified, reports = facts["certified"], facts["reports"] or {}
    if certified["epsilon"] is None:
        return "Why there is no proof: docs/guarantees.md."
    sections = [0, *([14, 15] if reports.get("levels") == 2 else [1, 2, 3, 4, 5, 6])]
    sections += [16] if reports.get("norm") is not None else []
    sections += [10, 11] if reports.get("sparsifier") == "top-b-first" else []
    sections += [9] if reports.get("sparsifier") == "random-b" else []
    sections += [12, 13] if certified["road"] == "adaptive" else [7, 12]
    sections += [18] if facts["is_federation"] else []
    numbers = ", ".join(str(number) for number in sorted(sections))
    return f"Proved in docs/proofs.md of APES {facts['version']}, sections {numbers}, with the hypotheses in section 0."


def citation(version: str) -> str:
    """How to cite the paper and the software, as BibTeX."""
    authors = " and ".join(AUTHORS)
    return (
        f"@misc{{echo-of-neighbors,\n  title = {{{{{PAPER}}}}},\n  author = {{{authors}}},\n}}\n\n"
        f"@software{{apes,\n  title = {{{{APES: personalised private federated learning in the shuffle model}}}},\n"
        f"  version = {{{version}}},\n}}"
    )
