"""Command-line options for every choice of plan and simulation; a test holds them against the fields of both.

They are written down here, since whoever asks for help is not to wait for what trains.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer

from apes.data import NAMES
from apes.defaults import (
    BUDGETS,
    CLIP,
    DATA,
    DELTA_IN_WORDS,
    FEATURES,
    FRAMEWORK,
    NORM,
    PAPER,
    PRIVATE,
    ROUNDS,
    ROUNDS_NOT_OPEN,
    TARGET_EPSILON,
    USERS,
)


class Choice(NamedTuple):
    """What a field can be chosen to be."""

    kind: type[int] | type[float] | type[str] | type[bool]
    help: str
    default: int | float | str | bool | None = None  # None: what suits the other choices, as the help says


_FRAMEWORKS = "non-private, ldp-min, pldp, unis, apes, s-apes, s-apes-threshold, s-apes-first"
# fmt: off
OF_SIMULATION: dict[str, Choice] = {
    "data": Choice(str, f"Data set: {', '.join(NAMES)}; for train also an own table, a .csv, .parquet or .npz file, or "
                   "a folder of .parquet files.", DATA),
    "normalise": Choice(str, "pixels (in [0, 1]) or unit-norm (every image of L2 norm 1).", "pixels"),
    "features": Choice(str, "What users make of their images first, in public: pixels or oriented-gradients (with :N "
                       "behind it, of N by N cells).", FEATURES),
    "split": Choice(str, "How images are spread over users: iid, label, dirichlet:ALPHA.", "iid"),
    "users": Choice(int, "Number of users.", USERS),
    "budgets": Choice(str, "Local budgets: uniform1 .. mixgauss3, constant:E, grid:LOW:HIGH, file:PATH[:COLUMN], or "
                      "shares of the users: 0.1:60%,1:40%.", BUDGETS),
    "update": Choice(str, "gradient (Algorithm 1) or fedprox (difference after local steps).", "gradient"),
    "local_epochs": Choice(int, "FedProx: local steps (default 10)."),
    "local_learning_rate": Choice(float, "FedProx: local step size (default 1)."),
    "mu": Choice(float, "FedProx: weight of the proximal term (default 0.01)."),
    "seed": Choice(int, "For reproduction: who made-up people are, and all noise, follow from it; what is certified "
                   "holds only as long as it stays secret then (default: secret noise)."),
}
OF_PLAN: dict[str, Choice] = {
    "framework": Choice(str, f"One of {_FRAMEWORKS}.", FRAMEWORK),
    "rounds": Choice(int, f"Rounds of training; everybody takes part in each (default {ROUNDS}; {ROUNDS_NOT_OPEN} if "
                     "clip or levels are given)."),
    "clip": Choice(float, "Bound C of every coordinate of an update (default: what spends the target, with a norm; "
                   f"else {CLIP:g})."),
    "levels": Choice(str, "Levels of a coded report, 2 to 256, or 'continuous' (default: 2 with a norm, else 256)."),
    "norm": Choice(float, "Bound R of an update's L2 norm, for apes: reports are one bit per coordinate then (default "
                   f"{NORM:g}; none if clip or levels are given)."),
    "cap": Choice(float, "Largest local budget that is used; whoever has more uses this much (default: what helps "
                  "accuracy at the target; none if clip or levels are given)."),
    "learning_rate": Choice(float, "The server's step (default: 5 / R with a norm R; else as large as the noise "
                            "allows, at most 4; FedProx at most 1)."),
    "momentum": Choice(float, "Running mean of the estimates, 0 to 0.999 (default 0.8; FedProx 0)."),
    "decay": Choice(float, "Step decay: alpha / (1 + decay t) (default 0)."),
    "averaging": Choice(float, "Hand out the average of models with weights t^a (default 0: the last model)."),
    "calibration": Choice(str, "inverse (the paper's) or likelihood (default: whichever suits the noise)."),
    "optimizer": Choice(str, "The server's: momentum, adam or yogi (default momentum)."),
    "last_step": Choice(float, "Share of the step that is left in the last round; it falls evenly until then (default "
                        "1)."),
    "sparsifier": Choice(str, "S-APES: top-b, random-b, threshold, top-b-first (default: the framework's own)."),
    "keep": Choice(float, "S-APES: fraction of coordinates kept (default 0.2; top-b-first: 0.05)."),
    "delta": Choice(float, f"Delta of the certified central guarantee (default {DELTA_IN_WORDS})."),
    "target_epsilon": Choice(str, "Certified central epsilon of all rounds together that nobody exceeds (default "
                             f"{TARGET_EPSILON:g}; none if clip or levels are given): no round takes place that would; "
                             "or, for everybody's own, own:FACTOR (times the own budget) or file:PATH[:COLUMN]: "
                             "whoever would exceed it is left out of further rounds."),
}
# fmt: on
CHOICES = OF_SIMULATION | OF_PLAN
PlanOption = Annotated[Path | None, typer.Option("--plan", help="A file that `apes tune` wrote; options override it.")]
Preset = Annotated[str, typer.Option(help=f"Defaults of all else: {PRIVATE} or {PAPER} (the paper's setting).")]


_NONE: Mapping[str, Choice] = MappingProxyType({})


def with_choices(command: Callable[..., None], otherwise: Mapping[str, Choice] = _NONE) -> Callable[..., None]:
    """Give a command one option for each choice of plan and simulation; some may be chosen ``otherwise`` there.

    The command is called with ``choices``, the options that were given, and with its own parameters.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "choices"]

    def run(**given: Any) -> None:
        choices = {name: given.pop(name) for name in CHOICES}
        command(choices={name: value for name, value in choices.items() if value is not None}, **given)

    parameters = [option(name, otherwise.get(name, choice)) for name, choice in CHOICES.items()]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run


def option(name: str, choice: Choice) -> inspect.Parameter:
    """One option for a choice."""
    # A flag that is not given is off: that needs no words.
    is_plain = choice.default is None or choice.kind is bool
    text = choice.help if is_plain else f"{choice.help} (default {choice.default})"
    named = typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=False)
    annotation: Any = Annotated[choice.kind | None, named]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
