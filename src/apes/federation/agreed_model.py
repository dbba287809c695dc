"""The model that terms are about: one that comes with APES, by name and choices; or an installed one, by digest."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, TypeAlias

from apes.checks import one_of
from apes.errors import DataError, ParameterError
from apes.federation.installed import InstalledModel, check_named, own_installed
from apes.models.linear import LinearRegression
from apes.models.logistic import FedProx, LogisticRegression
from apes.models.model import Model, check_model, evaluated
from apes.population import Examples
from apes.storage.settings import from_plain

BuiltIn: TypeAlias = LogisticRegression | LinearRegression
AgreedModel: TypeAlias = BuiltIn | InstalledModel

BUILT_IN: Mapping[str, type[BuiltIn]] = MappingProxyType(
    {"logistic-regression": LogisticRegression, "linear-regression": LinearRegression}
)
"""Models that terms may name without anybody installing anything."""
_NAMES = {kind: name for name, kind in BUILT_IN.items()}


def plain_model(agreed: AgreedModel) -> dict[str, Any]:
    """The model as a file holds it."""
    return asdict(agreed) if isinstance(agreed, InstalledModel) else {"name": _NAMES[type(agreed)], **asdict(agreed)}


def read_model(plain: Mapping[str, Any], where: str) -> AgreedModel:
    """The model that a file names; nothing is imported."""
    if "package" in plain:
        return from_plain(dict(plain), InstalledModel, where)
    fields = dict(plain)
    try:
        kind = BUILT_IN[one_of("name", fields.pop("name", None), list(BUILT_IN))]
    except ParameterError as error:
        raise DataError(f"{where}: {error}") from None
    if fields.get("local") is not None:
        fields["local"] = from_plain(fields["local"], FedProx, f"{where}, local")
    return from_plain(fields, kind, where)


def check_own(agreed: AgreedModel, own: str | None) -> None:
    """Raise unless the party's owner named what the terms name; nothing is imported."""
    if isinstance(agreed, InstalledModel):
        check_named(agreed, own)
    elif own is not None:
        raise ParameterError(f"model must be left out: the terms name {_NAMES[type(agreed)]}, built in; got {own}")


def own_model(agreed: AgreedModel, own: str | None) -> Model:
    """The model to run: what the terms name, if it is also what the party's owner named; ``own`` is None for none."""
    check_own(agreed, own)
    return own_installed(agreed, own) if isinstance(agreed, InstalledModel) else agreed


def check_examples(model: Model, examples: Examples, where: str) -> None:
    """Raise unless the model can be judged by these public examples; ``where`` they are."""
    try:
        evaluated(model, check_model(model), examples)
    # A stranger's model may raise anything.
    except Exception as error:
        raise DataError(f"{where} does not fit the model: {error}") from None
