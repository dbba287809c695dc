"""Plan files: choices that were found on public data, for others to train by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apes.errors import ParameterError


@dataclass(frozen=True)
class PlanFile:
    """What `apes tune` writes and `apes train --plan` takes, as JSON (`apes.storage.settings`).

    Attributes:
        choices: Fields of plan and simulation, those that differ from the defaults; never the data.
        found_on: Name of the data set that they were found on: not one to train privately on by them.
        found: How: what was tried, and how well it did.
    """

    choices: Mapping[str, Any]
    found_on: str
    found: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name in ("choices", "found"):
            if not isinstance(getattr(self, name), Mapping):
                raise ParameterError(f"{name} must be an object, got {getattr(self, name)!r}")
        if "data" in self.choices:
            raise ParameterError("choices must leave the data to whoever trains, got data")

    def check(self, data: str) -> None:
        """Raise if this is to be used on what it was found on."""
        if data == self.found_on:
            why = "what its people's data gave away there is in no guarantee"
            raise ParameterError(f"data must be other than the plan was found on ({why}), got {data!r}")
