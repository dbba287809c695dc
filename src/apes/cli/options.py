"""Command-line options made from the fields of plan and simulation, so that the two cannot drift apart."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from apes.checks import one_of, shown, unused
from apes.cli.shared import parse_levels
from apes.data import NAMES
from apes.data.table.opening import is_table
from apes.data.table.spelling import absolute
from apes.errors import DataError, ParameterError
from apes.storage.settings import read_settings
from apes.terms.frameworks import FRAMEWORKS
from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.plan_file import PlanFile

_HELP = {
    "framework": f"One of {', '.join(FRAMEWORKS)}.",
    "budgets": "Local budgets: uniform1 .. mixgauss3, constant:E, grid:LOW:HIGH, file:PATH[:COLUMN], or shares of the "
    "users: 0.1:60%,0.5:30%,1:10%.",
    "users": "Number of users.",
    "rounds": "Rounds of training; everybody takes part in each (default 60; 40 if clip or levels are given).",
    "clip": "Bound C of every coordinate of an update (default: what spends the target, with a norm; else 0.1).",
    "levels": "Levels of a coded report, 2 to 256, or 'continuous' (default: 2 with a norm, else 256).",
    "norm": "Bound R of an update's L2 norm, for apes: reports are one bit per coordinate then (default 1; none if "
    "clip or levels are given).",
    "cap": "Largest local budget that is used; whoever has more uses this much (default: what helps accuracy at the "
    "target; none if clip or levels are given).",
    "data": f"Data set: {', '.join(NAMES)}; for train also an own table, a .csv, .parquet or .npz file, or "
    "a folder of .parquet files.",
    "features": "What users make of their images first, in public: oriented-gradients[:CELLS] or pixels.",
    "split": "How images are spread over users: iid, label, dirichlet:ALPHA.",
    "normalise": "pixels (in [0, 1]) or unit-norm (every image of L2 norm 1).",
    "update": "gradient (Algorithm 1) or fedprox (difference after local steps).",
    "local_epochs": "FedProx: local steps (default 10).",
    "local_learning_rate": "FedProx: local step size (default 1).",
    "mu": "FedProx: weight of the proximal term (default 0.01).",
    "learning_rate": "The server's step (default: 5 / R with a norm R; else as large as the noise allows, at most 4; "
    "FedProx at most 1).",
    "optimizer": "The server's: momentum, adam or yogi (default momentum).",
    "last_step": "Share of the step that is left in the last round; it falls evenly until then (default 1).",
    "momentum": "Running mean of the estimates, 0 to 0.999 (default 0.8; FedProx 0).",
    "decay": "Step decay: alpha / (1 + decay t) (default 0).",
    "averaging": "Hand out the average of models with weights t^a (default 0: the last model).",
    "calibration": "inverse (the paper's) or likelihood (default: whichever suits the noise).",
    "sparsifier": "S-APES: top-b, random-b, threshold, top-b-first (default: the framework's own).",
    "keep": "S-APES: fraction of coordinates kept (default 0.2; top-b-first: 0.05).",
    "delta": "Delta of the certified central guarantee (default 1 / 10 n).",
    "target_epsilon": "Certified central epsilon of all rounds together that nobody exceeds (default 1; none if clip "
    "or levels are given): no round takes place that would; or, for everybody's own, own:FACTOR (times the own budget) "
    "or file:PATH[:COLUMN]: whoever would exceed it is left out of further rounds.",
    "seed": "Seed of the simulation.",
}
_NUMBERS_OR_WORDS = ("levels", "target_epsilon")
_WORDS = {int: "a whole number", float: "a number", str: "a text"}
_TYPES = {"int": int, "float": float, "str": str}
# A mechanism of a stranger's is an object: it comes through Python only.
_FIELDS: dict[str, Field[Any]] = {f.name: f for kind in (Simulation, Plan) for f in fields(kind)}
del _FIELDS["mechanism"]
# Nobody's budget is made up silently: a law comes from whoever trains, not from a plan for others.
_OF_TABLES = {field.name for kind in (OwnTable, Plan) for field in fields(kind)} - {"budgets"}
PRIVATE, PAPER = "private", "paper"
PRESETS: dict[str, dict[str, Any]] = {PRIVATE: {}, PAPER: {"clip": 0.1, "features": "pixels"}}
"""What is chosen where nothing else is: the best we know at a total epsilon of 1, or the paper's setting."""
PlanOption = Annotated[Path | None, typer.Option("--plan", help="A file that `apes tune` wrote; options override it.")]
Preset = Annotated[str, typer.Option(help=f"Defaults of all else: {' or '.join(PRESETS)} (the paper's setting).")]


@dataclass(frozen=True)
class Choices:
    """What was chosen on the command line, or in an earlier run."""

    plan: Plan
    people: Simulation | OwnTable

    @classmethod
    def of(cls, choices: dict[str, Any]) -> "Choices":
        """Each choice goes where it belongs; the seed to both."""

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


def with_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of plan and simulation.

    The command is called with ``choices``, the options that were given, and with its own parameters.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "choices"]

    def run(**given: Any) -> None:
        choices = {name: given.pop(name) for name in _FIELDS}
        command(choices={name: value for name, value in choices.items() if value is not None}, **given)

    parameters = [option(field, _HELP[field.name]) for field in _FIELDS.values()]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run


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
        rest = rest | _of_file(plan, choices.get("data", _FIELDS["data"].default))
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
    if earlier is None:
        return Choices.of(choices)
    for name, value in choices.items():
        if value != earlier.get(name):
            before = "left out" if earlier.get(name) is None else repr(earlier[name])
            raise ParameterError(f"{name} must be {before} to resume this run, got {value!r}")
    unknown = sorted(set(earlier) - {*_FIELDS, *(field.name for field in fields(OwnTable))})
    if unknown:
        raise DataError(f"the run was started with choices that are not known here: {', '.join(unknown)}")
    return Choices.of(dict(earlier))


def _of_file(path: Path, data: str) -> dict[str, Any]:
    """Choices of a plan file, which was not found on the data that is trained on."""
    found = read_settings(path, PlanFile)
    unknown = sorted(set(found.choices) - set(_FIELDS))
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
    for name in ("user_column", "label_column") if is_own else ():
        if name not in choices:
            raise ParameterError(f"{name} must name a column of {choices['data']}, got none")
    return kind


def option(field: Field[Any], text: str) -> inspect.Parameter:
    """One option for a field."""
    # Some are a number or a word; everything else is what its annotation begins with.
    first = str(getattr(field.type, "__name__", field.type)).split(" |")[0]
    kind = str if field.name in _NUMBERS_OR_WORDS else _TYPES[first]
    if field.default is not None and field.default is not MISSING:
        text += f" (default {field.default})"
    named = typer.Option(f"--{field.name.replace('_', '-')}", help=text, show_default=False)
    annotation: Any = Annotated[kind | None, named]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
