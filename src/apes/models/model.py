"""What a model has to offer to be trained; anybody's model may."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from apes.checks import finite, offering, whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.population import Examples, UserBlock

_FLOATS = "float32", "float64"


class Model(Protocol):
    """A model as a flat vector of d numbers, and what users' data says about it.

    Contract:
        Everything but `start` and `evaluate` runs on a user's side. `updates` of a user depend on that user's rows
        and on the weights alone, so that it does not matter in which block a user is, or on which thread. Updates
        need not be clipped: that is done afterwards, in one place. They point along the gradient: the analyzer steps
        against them. Nothing is certified about the model's code; the guarantee holds for any updates.

    A model may also have ``prepare(weights, block)``, which returns a `PreparedUpdate`: a fast road on which updates
    are written out some coordinates at a time. And it may have ``is_difference = True``, where updates are
    differences of models after local steps, not gradients: the default step is smaller then. And ``stride``: how far
    the model should move in a round where all updates are clipped to their norm and agree, 0.5 by default. With
    ``outputs(weights, rows)``, one number or a score for every class per row, `apes.Trained` predicts by it. With
    ``layout``, a sequence of `WeightArray`, the file of a trained model says which of its numbers is what. With
    ``constant_loss(examples)``, its mean loss of always answering the mean of real-valued labels, a result says whether
    it is better than that; beside an accuracy stands the share of the most frequent class.
    """

    @property
    def dimensions(self) -> int:
        """Number of coordinates d, at least 1."""

    @property
    def digest(self) -> str:
        """Text that tells this model from any other: part of the terms that users agree to."""

    def start(self) -> F64:
        """The model before training: d finite numbers."""

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """Updates of a block of users at the model ``weights`` (d numbers): an array (users, d) of floats."""

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """Accuracy in [0, 1], or None where there is none (real-valued targets), and mean loss on public examples."""


@dataclass(frozen=True)
class WeightArray:
    """An array among a model's weights, which follow one another."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...] = ()  # what each axis counts, where that is known

    def as_dict(self) -> dict[str, object]:
        """Plain values, for a file."""
        return {"name": self.name, "shape": list(self.shape), "axes": list(self.axes)}


def layout_of(model: Model) -> tuple[WeightArray, ...]:
    """The arrays that a model's weights are, in order; one flat one where the model does not say."""
    found = tuple(getattr(model, "layout", ()))
    if not all(isinstance(array, WeightArray) for array in found):
        raise ParameterError(f"{type(model).__name__}.layout must be a sequence of WeightArray, got {found!r}")
    return found or (WeightArray("weights", (model.dimensions,)),)


class PreparedUpdate(Protocol):
    """Updates of a block of users, to be written out part by part."""

    def coordinates(self, start: int, stop: int, scratch: F32) -> F32:
        """Coordinates start .. stop - 1 of every user, unclipped: array (users, stop - start).

        The array may lie in ``scratch`` (flat, at least as large): it is good until scratch is used again. Whoever has
        ``writes_all = True`` promises to return nothing there that was not written by this call; for others scratch is
        filled with NaN before, so that what is forgotten is an error, and not an earlier user's update.
        """


def prepare_updates(model: Model, weights: F32, block: UserBlock, *, is_checked: bool = True) -> PreparedUpdate:
    """A block's updates, by the model's fast road if it has one.

    If checked, NaN and infinities are errors here. On a device they must not show, and are replaced later.
    """
    # Before the model runs, which might change the block.
    name, shape = type(model).__name__, (block.budgets.size, weights.size)
    prepare = getattr(model, "prepare", None)
    if prepare is not None:
        prepared = prepare(weights, block)
        offering(f"{name}.prepare(...)", prepared, "coordinates")
        return _Checked(prepared, f"{name}.prepare", shape[0])
    updates = model.updates(weights, _read_only(block))
    check_floats(f"{name}.updates", updates, shape, is_finite=False)
    with np.errstate(over="ignore"):
        updates = np.ascontiguousarray(updates, dtype=np.float32)
    if is_checked:
        finite(f"{name}.updates", updates)
    return WholeUpdates(updates)


def _read_only(block: UserBlock) -> UserBlock:
    """The same block, whose rows and labels a model that works in place cannot change."""
    rows, labels = block.features.view(), block.labels.view()
    rows.flags.writeable = labels.flags.writeable = False
    return replace(block, features=rows, labels=labels)


@dataclass(frozen=True, eq=False)
class _Checked:
    """What a model's fast road writes out, as the compiled loops take it without looking: our own memory, float32."""

    update: PreparedUpdate
    name: str
    users: int

    def coordinates(self, start: int, stop: int, scratch: F32) -> F32:
        """Coordinates start .. stop - 1 of every user, in scratch: written there, or copied."""
        if getattr(self.update, "writes_all", False) is not True:
            scratch.fill(np.nan)
        values = self.update.coordinates(start, stop, scratch)
        shape = self.users, stop - start
        check_floats(self.name, values, shape, ("float32",), is_finite=False)
        # The base of a view of a view is whoever owns the memory.
        if values.base is (scratch if scratch.base is None else scratch.base) and values.flags.carray:
            return values
        out = scratch[: values.size].reshape(shape)
        out[:] = values
        return out


@dataclass(frozen=True, eq=False)
class WholeUpdates:
    """Updates that are there already, (users, d)."""

    values: F32
    writes_all: ClassVar[bool] = True

    def coordinates(self, start: int, stop: int, scratch: F32) -> F32:
        """Coordinates start .. stop - 1 of every user; a copy, since what follows may work in place."""
        out = scratch[: self.values.shape[0] * (stop - start)].reshape(-1, stop - start)
        out[:] = self.values[:, start:stop]
        return out


def check_model(model: Model) -> F64:
    """Check what can be checked before training, and return the model to start from."""
    name = type(model).__name__
    dimensions = whole(f"{name}.dimensions", model.dimensions, 1)
    if not isinstance(model.digest, str) or not model.digest:
        raise ParameterError(f"{name}.digest must be a text that tells the model from others, got {model.digest!r}")
    start = model.start()
    check_floats(f"{name}.start", start, (dimensions,))
    return start.astype(np.float64)


def evaluated(model: Model, weights: F64, examples: Examples) -> tuple[float | None, float]:
    """What the model's `evaluate` says, as plain numbers."""
    answer = model.evaluate(weights, examples)
    try:
        accuracy, loss = answer
        return None if accuracy is None else float(accuracy), float(loss)
    except (TypeError, ValueError):
        said = f"{type(model).__name__}.evaluate must return accuracy (or None) and loss, got {answer!r}"
        raise ParameterError(said) from None


def check_floats(
    name: str, values: F32 | F64, shape: tuple[int, ...], kinds: tuple[str, ...] = _FLOATS, *, is_finite: bool = True
) -> None:
    """Raise unless ``values`` are a plain array of this shape, of one of these kinds, and, if asked for, finite."""
    # A subclass (a masked array, say) may say one thing and hold another.
    if type(values) is not np.ndarray or values.dtype not in kinds:
        kind = values.dtype if type(values) is np.ndarray else type(values).__name__
        raise ParameterError(f"{name} must be an array of {' or '.join(kinds)}, got {kind}")
    if values.shape != shape:
        raise ParameterError(f"{name} must have shape {shape}, got {values.shape}")
    if is_finite:
        finite(name, values)
