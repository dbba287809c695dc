"""Personalised private federated learning in the shuffle model.

Users choose their own privacy budgets, perturb their updates, and hide among one another in a shuffler.

>>> import apes
>>> plan = apes.Plan(framework="apes", budgets="uniform2", users=10_000, rounds=40)
>>> plan.coded_levels
256
"""

from apes.accounting.guarantee import Guarantee, certify
from apes.budgets import make_budgets
from apes.codes import level_probabilities, level_values
from apes.data import Dataset, download, load, partition
from apes.errors import ApesError, BudgetExceeded, DataError, ParameterError, ProtocolError, RegimeError
from apes.frameworks import FRAMEWORKS, Framework
from apes.laws import ClipLaplace, Laplace
from apes.plan import Plan
from apes.randomness import SimulationSource, SystemSource
from apes.thresholds import acceptance_thresholds
from apes.training import TrainingResult, train
from apes.version import __version__

__all__ = [
    "FRAMEWORKS",
    "ApesError",
    "BudgetExceeded",
    "ClipLaplace",
    "DataError",
    "Dataset",
    "Framework",
    "Guarantee",
    "Laplace",
    "ParameterError",
    "Plan",
    "ProtocolError",
    "RegimeError",
    "SimulationSource",
    "SystemSource",
    "TrainingResult",
    "__version__",
    "acceptance_thresholds",
    "certify",
    "download",
    "level_probabilities",
    "level_values",
    "load",
    "make_budgets",
    "partition",
    "train",
]
