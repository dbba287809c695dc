"""What was chosen: options, a plan file's and a preset's choices, made into a plan and people."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from apes.budgets import absolute_place
from apes.checks import one_of, shown, unused
from apes.cli.options import CHOICES
from apes.cli.shared import parse_levels
from apes.data import NAMES
from apes.data.table.opening import check_is_there, is_table
from apes.data.table.spelling import absolute
from apes.defaults import PRESETS, PRIVATE
from apes.errors import DataError, ParameterError
from apes.storage.settings import read_settings
from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.plan_file import PlanFile

# What may be a file's column.
_PLACES = ("budgets", "target_epsilon")
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
# Nobody's budget is made up silently: a law comes from whoever trains, not from a plan for others.
_OF_TABLES = {field.name for kind in (OwnTable, Plan) for field in fields(kind)} - {"budgets"}


@dataclass(frozen=True)
class Choices:
    """What was chosen on the command line, or in an earlier run."""

    plan: Plan
    people: Simulation | OwnTable

    @classmethod
    def of(cls, choices: dict[str, Any]) -> "Choices":
        """Each choice goes where it belongs; the seed, if one is given, to both."""
        # Without one the noise is secret, and who made-up people are is as by default.
        choices = {name: value for name, value in choices.items() if name != "seed" or value is not None}

        def part(kind: type[Plan] | type[Simulation] | type[OwnTable]) -> dict[str, Any]:
            return {field.name: choices[field.name] for field in fields(kind) if field.name in choices}

        kind = _kind_of_people(choices)
        _check_kinds(choices, kind, Plan)
        return cls(Plan(**part(Plan)), kind(**part(kind)))

    @property
    def simulation(self) -> Simulation:
        """Made-up people, for commands that know no others."""
        if not isinstance(self.people, Simulation):
            raise ParameterError(f"data must be one of {', '.join(NAMES)} for this command; got {self.people.data!r}")
        return self.people

    def as_dict(self) -> dict[str, Any]:
        """All choices as plain values."""
        everything = {**asdict(self.people), **self.plan.as_dict()}
        return {name: value for name, value in everything.items() if name != "mechanism"}


def make_choices(
    choices: dict[str, Any],
    earlier: Mapping[str, Any] | None = None,
    preset: str = PRIVATE,
    plan: Path | None = None,
    *,
    tables: bool = False,
) -> Choices:
    """The given choices, a plan file's and the preset's for the rest.

    With those of an earlier run, those, which none may contradict. Whoever takes no ``tables`` refuses them.
    """
    rest = PRESETS[one_of("preset", preset, list(PRESETS))] if earlier is None else {}
    if earlier is not None:
        unused({"plan": None if plan is None else str(plan)}, "a run that is resumed has its own choices")
    if plan is not None:
        rest = rest | _of_file(plan, choices.get("data", Simulation.data))
    if names_table(choices):
        rest = {name: value for name, value in rest.items() if name in _OF_TABLES}
    choices = rest | choices
    if "levels" in choices:
        choices["levels"] = parse_levels(choices["levels"])
    with suppress(ValueError):
        if isinstance(choices.get("target_epsilon"), str):
            choices["target_epsilon"] = float(choices["target_epsilon"])
    if not tables:
        one_of("data", choices.get("data", Simulation.data), NAMES)
    if names_table(choices):
        # A resumed run may be in another folder.
        choices["data"] = str(Path(choices["data"]).resolve())
        choices |= {"bounds": absolute(choices["bounds"])} if "bounds" in choices else {}
    choices |= {name: absolute_place(choices[name]) for name in _PLACES if isinstance(choices.get(name), str)}
    if earlier is None:
        return Choices.of(choices)
    for name, value in choices.items():
        if value != earlier.get(name):
            before = "left out" if earlier.get(name) is None else repr(earlier[name])
            raise ParameterError(f"{name} must be {before} to resume this run, got {value!r}")
    unknown = sorted(set(earlier) - {*CHOICES, *(field.name for field in fields(OwnTable))})
    if unknown:
        raise DataError(f"the run was started with choices that are not known here: {', '.join(unknown)}")
    return Choices.of(dict(earlier))


def _of_file(path: Path, data: str) -> dict[str, Any]:
    """Choices of a plan file, which was not found on the data that is trained on."""
    found = read_settings(path, PlanFile)
    unknown = sorted(set(found.choices) - set(CHOICES))
    if unknown:
        raise DataError(f"{path}: choices that are not known here: {', '.join(unknown)}")
    found.check(data)
    # Null means left out.
    return {name: value for name, value in found.choices.items() if value is not None}


def _check_kinds(choices: Mapping[str, Any], *kinds: type[Plan] | type[Simulation] | type[OwnTable]) -> None:
    """Raise unless every choice is of the kind that its field says: those in a file may be anything."""
    for kind in kinds:
        for name, hint in get_type_hints(kind).items():
            value, types = choices.get(name), get_args(hint) or (hint,)
            allowed = (*types, int) if float in types else types
            if name == "mechanism" or name not in choices or type(value) in allowed:
                continue
            words = " or ".join(_WORDS[each] for each in types if each in _WORDS)
            raise ParameterError(f"{name} must be {words}, got {shown(value)}")


def names_table(choices: Mapping[str, Any]) -> bool:
    """Whether the data are an own table."""
    return "data" in choices and choices["data"] not in NAMES and is_table(choices["data"])


def _kind_of_people(choices: Mapping[str, Any]) -> type[Simulation] | type[OwnTable]:
    """Whether people are made up or stand in a table; refuses what would do nothing for them."""
    if not isinstance(choices.get("data", ""), str):
        raise ParameterError(f"data must be a text, got {choices['data']!r}")
    is_own = names_table(choices)
    if is_own:
        # Before anything is asked about what is in it.
        check_is_there(choices["data"])
    kind: type[Simulation] | type[OwnTable] = OwnTable if is_own else Simulation
    why = (
        "the table says whose its rows are"
        if is_own
        else "data names no table (a .csv, .parquet or .npz file, or a folder)"
    )
    taken = {field.name for part in (kind, Plan) for field in fields(part)}
    for name, value in choices.items():
        # An earlier run's choices may name what was left out.
        if name not in taken and value is not None:
            raise ParameterError(f"{name} must be left out: {why}; got {value!r}")
    if is_own:
        _check_columns(choices)
    return kind


def _check_columns(choices: Mapping[str, Any]) -> None:
    """Raise unless it is said which columns of a table are whose rows, labels and budgets: all that are missing."""
    missing = [name for name in ("user_column", "label_column") if name not in choices]
    if not missing:
        # What is said of budgets, which need no column, is the table's own to say.
        return
    instead = ""
    if choices.get("budget_column") is None and choices.get("budgets") is None:
        missing.append("budget_column")
        instead = "; a law of budgets (budgets) needs no column"
    *others, last = missing
    names = f"{', '.join(others)} and {last}" if others else last
    columns = "columns" if others else "a column"
    raise ParameterError(f"{names} must name {columns} of {choices['data']}, got none{instead}")
