"""Models that are code: every party has them from its own owner, as an installed package, and from nobody else."""

import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from apes.checks import hex_names, offering, whole
from apes.errors import ApesError, DataError, ParameterError
from apes.models.model import Model, check_model

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_DIGEST_BYTES = 32
_LONGEST_NAME = 200


@dataclass(frozen=True)
class InstalledModel:
    """A model as terms name it. They hold no code: a party compares this with what its own owner installed.

    Attributes:
        package: ``module:attribute``, a function without parameters that returns the model.
        digest: SHA-256 of the model's digest, 64 hexadecimal digits.
        dimensions: Number of the model's coordinates, at least 1.
    """

    package: str
    digest: str
    dimensions: int

    def __post_init__(self) -> None:
        check_package("package", self.package)
        hex_names("digest", (self.digest,), _DIGEST_BYTES)
        whole("dimensions", self.dimensions, 1, 2**31)

    @classmethod
    def of(cls, package: str, model: Model) -> "InstalledModel":
        """How terms name this model."""
        dimensions = check_model(model).size
        return cls(package, hashlib.sha256(model.digest.encode()).hexdigest(), dimensions)


def check_package(name: str, package: str) -> str:
    """Return ``package`` if it is spelt MODULE:ATTRIBUTE, else raise."""
    if not isinstance(package, str) or len(package) > _LONGEST_NAME or not _NAME.fullmatch(package):
        raise ParameterError(f"{name} must be MODULE:ATTRIBUTE of an installed package, got {package!r}")
    return package


def installed_model(package: str) -> Model:
    """Import and make the model that this process' own owner named: never on the word of anybody else.

    What lies in the folder where the process runs is not installed, and is not found.
    """
    module, _, attribute = check_package("model", package).partition(":")
    try:
        with _installed_only():
            model: Model = getattr(import_module(module), attribute)()
            offering(package, model, "start", "updates", "evaluate", "digest", "dimensions")
            check_model(model)
    except ApesError as error:
        raise DataError(f"model {package}: {error}") from None
    # A stranger's code may raise anything.
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise DataError(f"model {package} must be installed, and make a model without parameters: {said}") from None
    return model


def check_named(agreed: InstalledModel, own: str | None) -> str:
    """Return the owner's name of a model if it is the terms', else raise: two texts, and nothing is imported."""
    if own is None:
        remedy = "install it and name it yourself (--model) if you trust it"
        raise ParameterError(f"model must be {agreed.package}, which the terms name, got none: {remedy}")
    if own != agreed.package:
        raise ParameterError(f"model must be {agreed.package}, which the terms name, got {own}")
    return own


def own_installed(agreed: InstalledModel, own: str | None) -> Model:
    """The model that terms name, if it is what the owner named and installed; ``own`` is the owner's setting."""
    # Nothing is imported unless the owner asked for just this.
    own = check_named(agreed, own)
    model = installed_model(own)
    found = InstalledModel.of(own, model)
    if found != agreed:
        ours, theirs = (f"{each.digest[:16]}... with {each.dimensions} coordinates" for each in (found, agreed))
        raise ParameterError(f"model {own} is another one here than was agreed: {ours}, not {theirs}")
    return model


@contextmanager
def _installed_only() -> Iterator[None]:
    """Look for modules where they are installed, not where the process runs."""
    here, before = Path.cwd(), list(sys.path)
    sys.path[:] = [entry for entry in before if entry and Path(entry).resolve() != here]
    try:
        yield
    finally:
        sys.path[:] = before
