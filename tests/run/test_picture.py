"""Pictures: real PNG files, whole or not at all, of every kind of outcome."""

import dataclasses
import math

import numpy as np
import pytest

from apes.accounting.exposure import Exposure
from apes.accounting.planner import Answer, CostCurve, Goal
from apes.audit.attack import Attack
from apes.audit.audit import AuditResult
from apes.cli.plots import certified_border, draw_audit, draw_level_choice, draw_plan
from apes.terms.level_choice import LevelChoice, Offer

GOAL = Goal(1.0, 1e-6, 10, Exposure(np.array([1.0]), 2))
CURVE = CostCurve((1.0, 2.0, 4.0), (0.5, 1.0, 3.0))
SOME = Offer(2, 1, 0.1, 0.9, 0.3)
NONE = Offer(4, 2, None, None, math.inf, "more users")
ATTACK = Attack(100, (0, 10, 50, 100), (100, 60, 20, 0))
AUDIT = AuditResult(200, 2, 1e-5, 0.999, 0.5, 1.0, 0.5, 1.0, ATTACK, ATTACK)

PICTURES = {
    "plan": lambda path: draw_plan(CURVE, Answer(2.0, 1.0), GOAL, "cap", path),
    "plan out of reach": lambda path: draw_plan(CURVE, Answer(None, None, "fewer rounds"), GOAL, "rounds", path),
    "plan, costs of nothing": lambda path: draw_plan(
        CostCurve((1.0, 2.0), (0.0, 0.0)), Answer(2.0, 0.0), GOAL, "users", path
    ),
    "plan, one place": lambda path: draw_plan(
        CostCurve((1.0,), (900.0,)), Answer(None, None, "-"), GOAL, "users", path
    ),
    "level choice": lambda path: draw_level_choice(LevelChoice((SOME, NONE)), GOAL, [], path),
    "level choice with clips": lambda path: draw_level_choice(LevelChoice((SOME, NONE)), GOAL, [0.1, 0.2], path),
    "level choice out of reach": lambda path: draw_level_choice(LevelChoice((NONE,)), GOAL, [0.1], path),
    "audit": lambda path: draw_audit(AUDIT, path),
    "audit failed": lambda path: draw_audit(dataclasses.replace(AUDIT, user_audited=2.0), path),
    "audit of nothing": lambda path: draw_audit(
        dataclasses.replace(AUDIT, coordinate_attack=Attack(1, (1,), (0,)), coordinate_certified=0.0), path
    ),
    "audit, huge": lambda path: draw_audit(dataclasses.replace(AUDIT, user_certified=7850.0), path),
}


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_pictures_are_written_whole(draw, tmp_path):
    draw(tmp_path / "new" / "picture.png")
    content = (tmp_path / "new" / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content.endswith(b"IEND\xaeB`\x82")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["picture.png"]


def test_a_picture_that_cannot_be_written_leaves_what_was_there(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "folder.png" / "kept").touch()
    with pytest.raises(OSError, match=r"folder\.png"):
        PICTURES["plan"](tmp_path / "folder.png")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 2000.0])
def test_randomized_response_touches_the_certified_border(epsilon):
    wrong = 1 / (1 + math.exp(min(epsilon, 700)))
    alarms = np.array([0.0, wrong, 1.0])
    assert certified_border(alarms, epsilon, 0.0) == pytest.approx([1.0, wrong, 0.0], abs=1e-9)


def test_the_border_gives_way_by_delta_and_never_below_nothing():
    alarms = np.linspace(0, 1, 11)
    border = certified_border(alarms, 0.0, 0.1)
    assert border == pytest.approx(np.maximum(0, 0.9 - alarms))
    assert (certified_border(alarms, 1.0, 0.1) <= border).all()
