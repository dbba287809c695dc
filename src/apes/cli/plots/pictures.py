"""The pictures under the names that main.py, accounting.py and plan.py import; goes with those three lines."""

from apes.cli.plots.account import draw_account
from apes.cli.plots.accuracy import draw_accuracy
from apes.cli.plots.level_choice import draw_level_choice as draw_trade
from apes.cli.plots.plan import draw_plan

__all__ = ["draw_account", "draw_accuracy", "draw_plan", "draw_trade"]
