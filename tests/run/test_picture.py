"""Pictures: real PNG files, whole or not at all, of every kind of outcome."""

import dataclasses
import math

import numpy as np
import pytest

from apes.accounting.account import Question, account
from apes.accounting.exposure import Exposure
from apes.accounting.planner import Answer, CostCurve, Goal
from apes.accounting.words import upwards
from apes.audit.attack import Attack
from apes.audit.audit import AuditResult
from apes.cli import plots
from apes.cli.plots import certified_border, draw_account, draw_audit, draw_level_choice, draw_plan
from apes.terms.level_choice import LevelChoice, Offer

pytestmark = pytest.mark.service
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


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they would be written."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    return figures


def test_places_are_in_full_and_titles_fit(drawn, tmp_path):
    draw_plan(CostCurve((5e5, 4e6), (2.0, 0.5)), Answer(1e6, 1.0), GOAL, "users", tmp_path)
    assert drawn[0].axes[0].xaxis.get_major_formatter()(1e6) == "1,000,000"
    draw_plan(CURVE, Answer(None, None, "cap the budgets, " * 10), GOAL, "rounds", tmp_path)
    assert max(map(len, drawn[1].axes[0].get_title().splitlines())) <= 75


def test_the_highest_cap_is_inside_and_each_clip_has_its_colour(drawn, tmp_path):
    draw_level_choice(LevelChoice((SOME, dataclasses.replace(SOME, levels=4, error=0.1))), GOAL, [0.1, 0.2], tmp_path)
    (axes,) = drawn[0].axes
    assert axes.get_ylim() == (0, pytest.approx(1.2 * 0.2 * 0.3))
    assert len({line.get_color() for line in axes.get_lines()}) == 3


def test_the_legend_of_an_audit_hides_nothing_and_zero_is_seen(drawn, tmp_path):
    draw_audit(dataclasses.replace(AUDIT, user_audited=0.0), tmp_path)
    drawn[0].canvas.draw()
    for axes in drawn[0].axes[2:]:
        assert axes.get_ylim()[0] < 0
        seen, bounds, *_ = axes.get_lines()
        assert axes.get_ylim()[1] > max(seen.get_ydata(), default=0)
        assert min(bounds.get_ydata()) == 0
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


def test_accounts_of_two_totals_are_two_pictures(drawn, tmp_path):
    """The same per coordinate, another total: it is above the picture, and the axis begins at 0."""
    for dimensions in (10, 20):
        result = account(Question(Exposure(np.full(100, 0.5), dimensions), 2, 1e-5))
        draw_account(result, tmp_path, f"{dimensions}")
        title = drawn[-1].get_suptitle()
        assert title == f"{dimensions}: epsilon {upwards(result.total.epsilon)} at delta 1e-05 for a user"
        assert drawn[-1].axes[0].get_ylim()[0] == 0
    assert drawn[0].get_suptitle() != drawn[1].get_suptitle()


def test_a_picture_that_cannot_be_written_leaves_what_was_there(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "folder.png" / "kept").touch()
    with pytest.raises(OSError, match=r"folder\.png"):
        PICTURES["plan"](tmp_path / "folder.png")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.unit
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 2000.0])
def test_randomized_response_touches_the_certified_border(epsilon):
    wrong = 1 / (1 + math.exp(min(epsilon, 700)))
    alarms = np.array([0.0, wrong, 1.0])
    assert certified_border(alarms, epsilon, 0.0) == pytest.approx([1.0, wrong, 0.0], abs=1e-9)


@pytest.mark.unit
def test_the_border_gives_way_by_delta_and_never_below_nothing():
    alarms = np.linspace(0, 1, 11)
    border = certified_border(alarms, 0.0, 0.1)
    assert border == pytest.approx(np.maximum(0, 0.9 - alarms))
    assert (certified_border(alarms, 1.0, 0.1) <= border).all()
