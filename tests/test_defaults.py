"""One set of defaults: what is chosen where nobody chooses is the same for every command, the page and Python."""

import inspect
import json
import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import apes
from apes import defaults
from apes.accounting.local import local_user_epsilon
from apes.advice.advise import advise
from apes.advice.question import Question
from apes.advice.reporting import BITS
from apes.cli.choices import make_choices
from apes.cli.main import GROUPS, app
from apes.page.answers import certified
from apes.page.opening import opening
from apes.page.setting import Setting, read_setting
from apes.page.uploads import Uploads
from apes.terms.fitting import fitted_to
from apes.terms.simulation import Simulation

# Commands that train, or answer about a training; those of two groups by both names.
ABOUT_A_TRAINING = ("train", "tune", "advise", "account", "plan", "poison", "federation init", "federation invite")
# What an option may be by default; None is explained by its help, where it has a value in the end.
VALUES = {
    "target_epsilon": (None, defaults.TARGET_EPSILON),
    "rounds": (None, defaults.ROUNDS),
    "delta": (None,),
    "budgets": (None, defaults.BUDGETS),
    "users": (None, defaults.USERS),
    "dimensions": (None, defaults.DIMENSIONS),
    "framework": (None, defaults.FRAMEWORK),
    "data": (None, defaults.DATA),
    "features": (None, defaults.FEATURES),
    "preset": (defaults.PRIVATE,),
    "norm": (None,),
    "clip": (None,),
    "cap": (None,),
    "levels": (None,),
}
# What the help says of an option that is left out; each command that has it says so, or shows its value.
SAID = {
    "target_epsilon": f"default {defaults.TARGET_EPSILON:g}",
    "rounds": f"default {defaults.ROUNDS}",
    "delta": f"default {defaults.DELTA_IN_WORDS}",
    "users": f"default {defaults.USERS}",
    "norm": f"default {defaults.NORM:g}",
}
# Options that say something else, since they are about something else there: how budgets of a file are counted, or
# which of many answers is left out.
OTHERWISE = {("advise", "users"), ("plan", "clip"), ("federation invite", "users"), ("federation init", "users")}


def options(command):
    """The options of a command by the names of their parameters."""
    group, _, name = command.rpartition(" ")
    loaded = typer.main.get_group(GROUPS[group][0]).commands[name].loaded()
    return {each.name: each for each in loaded.params if each.param_type_name == "option"}


@pytest.mark.parametrize("command", ABOUT_A_TRAINING)
def test_every_option_is_left_at_the_same(command):
    found = options(command)
    assert {"target_epsilon", "rounds", "delta"} & found.keys()
    for name, allowed in VALUES.items():
        if name in found:
            assert found[name].default in allowed, (command, name)


@pytest.mark.parametrize("command", ABOUT_A_TRAINING)
def test_the_help_says_the_same(command):
    for name, said in SAID.items():
        option = options(command).get(name)
        if option is not None and option.default is None and (command, name) not in OTHERWISE:
            assert said in option.help, (command, name, option.help)


def test_python_has_the_same():
    plan, terms = inspect.signature(apes.Plan).parameters, inspect.signature(apes.Terms).parameters
    assert plan["framework"].default == terms["framework"].default == defaults.FRAMEWORK
    assert (terms["clip"].default, terms["rounds"].default) == (defaults.CLIP, defaults.ROUNDS_NOT_OPEN)
    open_ones = ("rounds", "clip", "levels", "norm", "cap", "delta", "target_epsilon")
    assert [plan[name].default for name in open_ones] == [None] * len(open_ones)
    people, asked = inspect.signature(Simulation).parameters, inspect.signature(Question).parameters
    made_up = ("data", "features", "users", "budgets")
    wanted = [defaults.DATA, defaults.FEATURES, defaults.USERS, defaults.BUDGETS]
    assert [people[name].default for name in made_up] == wanted
    assert (asked["rounds"].default, asked["target_epsilon"].default) == (defaults.ROUNDS, defaults.TARGET_EPSILON)
    assert asked["dimensions"].default == defaults.DIMENSIONS
    for users in (1, 1000, 123_456):
        assert apes.Terms().central_delta(users) == defaults.default_delta(users) == 1 / (10 * users)
    assert Question(np.full(50, 0.5)).central_delta == defaults.default_delta(50)


def test_the_default_coordinates_are_those_of_what_is_trained_by_default():
    """Ten classes, of oriented gradients or of 28 x 28 pixels."""
    seen = Simulation().feature_map()(np.zeros((1, 28, 28), dtype=np.float32))
    assert 10 * (seen.shape[1] + 1) == defaults.DIMENSIONS
    assert 10 * (28 * 28 + 1) == defaults.DIMENSIONS_OF_PIXELS


def test_what_train_and_a_federation_are_planned_as():
    """Both make their plan of the options that were given by one function, and nothing is given here."""
    plan = make_choices({}).plan
    assert plan.is_open
    settled = fitted_to(plan, np.full(200, 0.5), 30)
    assert (settled.rounds, settled.norm, settled.terms.reports.levels) == (defaults.ROUNDS, defaults.NORM, 2)
    assert settled.target_epsilon == defaults.TARGET_EPSILON
    assert not make_choices({}, preset=defaults.PAPER).plan.is_open


@pytest.mark.service
def test_account_and_plan_answer_about_what_train_would_do():
    asked = ["--users", "300", "--dimensions", "40", "--json"]
    about, account = (json.loads(CliRunner().invoke(app, [name, *asked]).stdout) for name in ("plan", "account"))
    own = apes.make_budgets(defaults.BUDGETS, 300, seed=1)
    settled = fitted_to(apes.Plan(), own, 40)
    for plan in (about["plan"], account["plan"]):
        facts = {"clip": settled.clip, "norm": settled.norm, "cap": settled.cap, "rounds": settled.rounds, "levels": 2}
        assert {name: plan[name] for name in facts} == facts
        assert plan["fitted_to"] == defaults.TARGET_EPSILON
    total = account["certified"]["total"]
    assert (total["epsilon"], total["delta"]) == (about["certified"]["epsilon"], about["certified"]["delta"])
    assert 0.9 < total["epsilon"] <= defaults.TARGET_EPSILON
    assert total["delta"] == defaults.default_delta(300)
    said = CliRunner().invoke(app, ["account", *asked[:-1]]).stdout
    assert "The plan of `apes train`, fitted to these budgets" in re.sub(r"\s+", " ", said)


def test_the_papers_setting_is_a_preset_for_account():
    asked = ["--users", "30", "--preset", "paper", "--rounds", "1", "--json"]
    answer = json.loads(CliRunner().invoke(app, ["account", *asked]).stdout)
    assert (answer["plan"]["levels"], answer["plan"]["norm"], answer["plan"]["fitted_to"]) == (256, None, None)
    reports = local_user_epsilon(answer["local"]["dimension"], defaults.DIMENSIONS_OF_PIXELS, levels=256)
    assert answer["local"]["user"] == reports


@pytest.mark.service
def test_the_adviser_recommends_what_train_does():
    own = apes.make_budgets("0.1:60%,0.5:30%,1:10%", 2000, seed=1)
    best = advise(Question(own)).best
    settled = fitted_to(apes.Plan(), own, defaults.DIMENSIONS)
    assert best.kind == BITS
    assert (best.rounds, best.choices["norm"]) == (settled.rounds, settled.norm)
    assert best.choices["clip"] == pytest.approx(settled.clip, rel=5e-3)
    assert best.cap == pytest.approx(settled.cap, rel=0.03)
    assert best.epsilon <= settled.target_epsilon == defaults.TARGET_EPSILON


def page_opens_on(**changed) -> Setting:
    return read_setting({**opening(), **changed}, Uploads())


def test_the_page_opens_on_the_same():
    setting = page_opens_on()
    sizes = (setting.users, setting.rounds, setting.dimensions, setting.delta)
    wanted = (defaults.USERS, defaults.ROUNDS, defaults.DIMENSIONS, defaults.default_delta(defaults.USERS))
    assert sizes == wanted
    assert (setting.way, setting.norm, setting.clip) == ("one-bit", defaults.NORM, defaults.CLIP)
    assert opening()["target"] == f"{defaults.TARGET_EPSILON:g}"
    assert page_opens_on(users="500").delta == defaults.default_delta(500)


@pytest.mark.service
def test_the_page_opens_within_its_target():
    """Its cap is the largest of three digits that keeps these people within the target, as fitting would find it."""
    setting = page_opens_on()
    bolder = page_opens_on(cap=f"{setting.cap + 0.001:g}")
    assert certified(setting) <= defaults.TARGET_EPSILON < certified(bolder)
