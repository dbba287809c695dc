"""The choices of a training as the command that makes them."""

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation


def train_words(choices: Mapping[str, Any], **changes: Any) -> str:
    """The command that trains by these choices, with some of them changed; what is as by default is left out.

    >>> train_words({"data": "digits", "users": 500, "clip": 0.1, "seed": None}, cap=0.25)
    'apes train --users 500 --clip 0.1 --cap 0.25'
    """
    kind = OwnTable if "user_column" in choices else Simulation
    defaults = {field.name: field.default for part in (kind, Plan) for field in fields(part)}
    words = ["apes", "train"]
    for name, value in {**choices, **changes}.items():
        if value is None or value == defaults.get(name):
            continue
        option, text = f"--{name.replace('_', '-')}", str(value)
        if value is True:
            words.append(option)
        elif text.startswith("-"):
            words.append(f"{option}={text}")
        else:
            words += [option, text]
    return shlex.join(words)
