"""Options are written down apart from what they choose, so that help is quick: here one is held against the other."""

from dataclasses import MISSING, fields
from typing import get_args, get_type_hints

import pytest

from apes.cli.options import CHOICES, OF_PLAN, OF_SIMULATION
from apes.cli.table_options import TABLE_CHOICES
from apes.cli.train_options import _CACHE
from apes.data import NAMES
from apes.defaults import PAPER, PRESETS, PRIVATE
from apes.partitions.part import CACHE_MB
from apes.terms.frameworks import FRAMEWORKS
from apes.terms.own_table import OwnTable
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.tuning import FEWEST_RUNS, MOST_RUNS

# A mechanism of a stranger's is an object: it comes through Python only.
WITHOUT_OPTION = {"mechanism"}


def chosen(kind, but=()):
    return {field.name: field for field in fields(kind) if field.name not in {*WITHOUT_OPTION, *but}}


@pytest.mark.parametrize(
    ("kind", "options", "but"),
    [(Simulation, OF_SIMULATION, ()), (Plan, OF_PLAN, ("seed",)), (OwnTable, TABLE_CHOICES, tuple(OF_SIMULATION))],
    ids=["simulation", "plan", "table"],
)
def test_every_field_has_its_option(kind, options, but):
    own, hints = chosen(kind, but), get_type_hints(kind)
    assert list(options) == list(own)
    for name, choice in options.items():
        types = get_args(hints[name]) or (hints[name],)
        # What is a number or a word is read as a word.
        assert choice.kind is (str if str in types else types[0]), name
        # Of a simulation, who people are; the noise follows from a seed only where one is given.
        default = None if name == "seed" else own[name].default
        assert choice.default == (None if default is MISSING else default), name


def test_what_is_named_in_words_is_what_there_is():
    assert OF_PLAN["framework"].help == f"One of {', '.join(FRAMEWORKS)}."
    assert ", ".join(NAMES) in OF_SIMULATION["data"].help
    assert f"(default {CACHE_MB})" in _CACHE
    assert set(PRESETS) == {PRIVATE, PAPER}
    assert (FEWEST_RUNS, MOST_RUNS) == (8, 10_000)  # as `apes tune --help` says
    assert all(choice.help.endswith((".", ").")) for choice in CHOICES.values())
