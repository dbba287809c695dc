"""A setting: what the page's sliders stand at, checked; and the people, terms and exposure that it comes to."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from apes.accounting.cost import MOST_ROUNDS
from apes.accounting.exposure import MOST_DIMENSIONS, Exposure
from apes.budgets import make_budgets, users_by_share
from apes.checks import one_of, positive, whole, within
from apes.defaults import default_delta
from apes.errors import ApesError, ParameterError
from apes.mathematics.arrays import F64
from apes.page.uploads import Upload, Uploads
from apes.terms.terms import Terms

T = TypeVar("T")
MOST_USERS = 1_000_000
"""People whom the page looks at; `apes account` takes more."""
_MOST_SHARES = 32
WAYS = ("apes", "s-apes-first", "one-bit")
"""Ways of reporting: 256 levels per coordinate; the same of the largest coordinates; one bit of updates in a norm."""
# Shares are told in millionths of a per cent.
_PARTS = 10**8
_LONGEST_TEXT = 40
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")


class SettingError(ApesError):
    """What is wrong with a setting, field by field."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__("; ".join(fields.values()))
        self.fields = fields


@dataclass(frozen=True)
class Setting:
    """What is asked about: people, and what they report how often.

    Attributes:
        users: People who take part in every round, in [1, 1000000].
        budgets: Shares such as ``0.1:60%,0.5:30%,1:10%``, as for ``apes train``; empty where a file has them.
        upload: Budgets of a file, one per person; or None.
        rounds: In [1, 1000000].
        dimensions: Coordinates of a report, in [1, 10^12].
        delta: Of the guarantee, in [1e-100, 0.5].
        way: One of `WAYS`.
        clip: C, bound of every coordinate.
        norm: R, bound of an update's L2 norm, for ``one-bit``.
        keep: Fraction of coordinates that are kept, in [1e-6, 1], for ``s-apes-first``.
        cap: Largest budget that is used; None for everybody's own.
    """

    users: int
    budgets: str
    upload: Upload | None
    rounds: int
    dimensions: int
    delta: float
    way: str
    clip: float
    norm: float | None = None
    keep: float | None = None
    cap: float | None = None

    @cached_property
    def terms(self) -> Terms:
        """What the people agree to."""
        framework = "s-apes-first" if self.way == "s-apes-first" else "apes"
        public = {"rounds": self.rounds, "delta": self.delta, "cap": self.cap}
        return Terms(framework, clip=self.clip, norm=self.norm, keep=self.keep, **public)  # type: ignore[arg-type]

    @property
    def exposure(self) -> Exposure:
        """What a round reveals."""
        # Rounds and delta do not matter for it: whoever drags those is not kept waiting for a million budgets.
        return _exposure(replace(self, rounds=1, delta=1e-6))

    def with_users(self, users: int) -> "Setting":
        """The same for more or fewer people of the same mixture."""
        return replace(self, users=users)


@lru_cache(maxsize=4)
def people(users: int, budgets: str, upload: Upload | None) -> F64:
    """Everybody's own budget; of a file and another number of people, evenly spaced ones in order of size."""
    if upload is None:
        return make_budgets(budgets, users, seed=1)
    if users == upload.budgets.size:
        return upload.budgets
    places = (2 * np.arange(users) + 1) * upload.budgets.size // (2 * users)
    return upload.budgets[places]


@lru_cache(maxsize=4)
def _exposure(setting: Setting) -> Exposure:
    own = people(setting.users, setting.budgets, setting.upload)
    return setting.terms.exposure(0, setting.terms.applied(own), setting.dimensions)


def read_setting(asked: Mapping[str, Any], uploads: Uploads) -> Setting:
    """A setting from what was typed, or SettingError with all that is wrong about it.

    Args:
        asked: By field, texts as typed; ``shares`` is a list of pairs of a budget and its share, ``upload`` the name of
            budgets that were brought before, if it is to be those.
        uploads: Those budgets.
    """
    wrong: dict[str, str] = {}

    def field(name: str, read: Callable[[Any], T], otherwise: T) -> T:
        try:
            return read(asked.get(name, ""))
        except ApesError as error:
            wrong[name] = str(error)
            return otherwise

    way = field("way", lambda value: one_of("way", str(value)[:_LONGEST_TEXT], WAYS), "apes")
    upload = field("upload", uploads.named, None) if asked.get("upload") else None
    budgets = field("shares", read_shares, "") if upload is None else ""
    users = field("users", _read_users, 1) if upload is None else upload.budgets.size
    setting = Setting(
        users,
        budgets,
        upload,
        field("rounds", lambda value: whole("rounds", typed_whole(value), 1, MOST_ROUNDS), 1),
        field("dimensions", lambda value: whole("dimensions", typed_whole(value), 1, MOST_DIMENSIONS), 1),
        field("delta", lambda value: _read_delta(value, users), 0.5),
        way,
        field("clip", lambda value: positive("clip", typed(value)), 1.0),
        field("norm", lambda value: positive("norm", typed(value)), 1.0) if way == "one-bit" else None,
        field("keep", _read_keep, 1.0) if way == "s-apes-first" else None,
        field("cap", lambda value: positive("cap", typed(value)), 1.0) if asked.get("cap") else None,
    )
    if not wrong:
        try:
            setting.terms  # noqa: B018 - checks how the choices fit
        except ParameterError as error:
            # Its first word is the parameter's name.
            name = str(error).split()[0]
            wrong[name if name in asked else "way"] = str(error)
    if wrong:
        raise SettingError(wrong)
    return setting


def read_target(asked: Mapping[str, Any]) -> float:
    """The target of a setting; SettingError if it is none."""
    try:
        return positive("target_epsilon", typed(asked.get("target", "")))
    except ParameterError as error:
        raise SettingError({"target": str(error)}) from None


def _read_users(value: Any) -> int:
    return whole("users", typed_whole(value), 1, MOST_USERS)


def _read_delta(value: Any, users: int) -> float:
    """Delta; where nothing was typed, what goes with so many people."""
    return default_delta(users) if value == "" else within("delta", typed(value), 1e-100, 0.5)


def _read_keep(value: Any) -> float:
    """A fraction; typed in per cent."""
    per_cent = typed(value)
    if not isinstance(per_cent, float) or not 1e-4 <= per_cent <= 100:
        raise ParameterError(f"keep must be in [0.0001, 100] %, got {per_cent!r}")
    return per_cent / 100


def read_shares(rows: Any) -> str:
    """Shares as for ``--budgets``, out of pairs of a budget and its share; shares are taken in proportion.

    >>> read_shares([["0.1", "6"], ["0.5", "3"], ["1", "1"]])
    '0.1:60%,0.5:30%,1.0:10%'
    """
    if not isinstance(rows, list) or not 1 <= len(rows) <= _MOST_SHARES:
        raise ParameterError(f"budgets must be a list of 1 to {_MOST_SHARES} rows of a budget and its share")
    weights: dict[float, Fraction] = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != 2:
            raise ParameterError(f"budgets must be rows of a budget and its share, got {str(row)[:_LONGEST_TEXT]!r}")
        budget = positive(f"budget of row {number}", typed(row[0]))
        share = within(f"share of row {number}", typed(row[1]), 0, 100)
        weights[budget] = weights.get(budget, Fraction(0)) + Fraction(share)
    total = sum(weights.values())
    if not total > 0:
        raise ParameterError("shares must add up to more than 0 %, got 0 in every row")
    ordered = sorted(weights)
    parts = users_by_share([weights[budget] / total for budget in ordered], _PARTS).tolist()
    told = (f"{budget!r}:{_per_cent(part)}%" for budget, part in zip(ordered, parts, strict=True) if part)
    return ",".join(told)


def _per_cent(part: int) -> str:
    whole_part, rest = divmod(part, _PARTS // 100)
    return f"{whole_part}.{rest:06d}".rstrip("0").rstrip(".")


def typed_whole(value: Any) -> int:
    """A whole number that was typed, perhaps as 25,000; what is none, as it is, for a check to name it."""
    if isinstance(value, str):
        text = value.strip()
        text = text.replace(",", "") if _GROUPED.fullmatch(text) else text
        if re.fullmatch(r"[+-]?[0-9]+", text) and len(text) <= _LONGEST_TEXT:
            return int(text)
        number = typed(value)
        # 1e5 is whole too.
        return int(number) if isinstance(number, float) and number == int(number) else number  # type: ignore[return-value]
    return value  # type: ignore[no-any-return]


def typed(value: Any) -> float:
    """A number that was typed; what is none, as it is, for a check to name it."""
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value[:_LONGEST_TEXT]  # type: ignore[return-value]
        return number if math.isfinite(number) else value[:_LONGEST_TEXT]  # type: ignore[return-value]
    return float(value) if isinstance(value, int) and abs(value) < 10**15 else value
