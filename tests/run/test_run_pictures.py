"""Pictures of a run: titles that fit, one round that shows, totals that are said."""

import numpy as np
import pytest
from matplotlib.image import imread

from apes.accounting.account import BudgetGroup
from apes.accounting.guarantee import Guarantee
from apes.cli import run_plots
from apes.cli.run_plots import draw_accuracy, draw_run_account
from apes.storage.pictures import BLUE
from apes.training.run import RoundMetrics

pytestmark = pytest.mark.service
LONG = "s-apes-threshold on a-table-with-a-very-long-name-of-which-nothing-may-be-cut-off-at-either-end.parquet: " * 2
GROUPS = (BudgetGroup(0.1, 5, 0.2, 0.1), BudgetGroup(1.0, 5, 2.0, 1.0))


def metrics(count):
    return tuple(
        RoundMetrics(number, 0.5 + number / 100, 2.0 / number, 0.1, number / 10) for number in range(1, count + 1)
    )


def blue(path):
    """How much of a picture is drawn in blue."""
    wanted = [int(BLUE[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return (np.abs(imread(path)[:, :, :3] - wanted).max(axis=2) < 0.02).sum()


@pytest.mark.parametrize(
    "title", ["short", LONG, "budgets file:$HOME/x$y", "x" * 300], ids=["short", "long", "dollars", "x"]
)
def test_no_title_is_cut(tmp_path, title):
    draw_accuracy(metrics(3), title, tmp_path / "accuracy.png")
    draw_run_account(GROUPS, [0.5, 1.0, 2.0], Guarantee(2.0, 1e-5), tmp_path / "account.png", title)
    for name in ("accuracy.png", "account.png"):
        edges = imread(tmp_path / name)[:60, [0, 1, -2, -1], :3]
        assert edges.min() == 1, "something reaches the edge"


@pytest.mark.parametrize("accuracy", [0.5, None])
def test_one_round_shows(tmp_path, accuracy):
    only = (RoundMetrics(1, accuracy, 1.0, 0.1, 0.5),)
    draw_accuracy(only, "one", tmp_path / "one.png")
    drawn = imread(tmp_path / "one.png")[80:-80, 120:-120, :3]
    assert (drawn.max(axis=2) < 0.8).sum() > 1000
    assert (accuracy is None) == (blue(tmp_path / "one.png") < 1000)
    draw_run_account(GROUPS[:1], [0.5], Guarantee(0.5, 1e-5), tmp_path / "account.png")
    assert blue(tmp_path / "account.png") > 20


def test_totals_are_said_and_both_panels_have_one_scale(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(run_plots, "save", lambda figure, path: drawn.append(figure))
    for epsilon in (0.4, 2.0):
        groups = [BudgetGroup(group.budget, 5, group.epsilon * epsilon / 2, 1.0) for group in GROUPS]
        draw_run_account(groups, [epsilon / 2, epsilon], Guarantee(epsilon, 1e-5), tmp_path / "x.png", "apes on digits")
    one, other = drawn
    assert one.get_suptitle() == "apes on digits: epsilon 0.4 at delta 1e-05"
    assert other.get_suptitle() == "apes on digits: epsilon 2 at delta 1e-05"
    for figure in drawn:
        personal, spent = figure.axes
        assert personal.get_ylim() == spent.get_ylim()
    assert other.axes[0].get_ylim()[1] == pytest.approx(5 * one.axes[0].get_ylim()[1])
