"""Personalised private federated learning in the shuffle model.

Users choose their own privacy budgets, perturb their updates, and hide among one another in a shuffler.

>>> import apes
>>> plan = apes.Plan(framework="apes", budgets="uniform2", users=10_000, rounds=40)
>>> plan.coded_levels
256
"""

from apes.accounting.guarantee import Guarantee, certify
from apes.budgets import make_budgets
from apes.data import Dataset, download, load, partition
from apes.errors import ApesError, BudgetExceeded, DataError, ParameterError, ProtocolError, RegimeError
from apes.mathematics.laws import ClipLaplace, Laplace
from apes.mathematics.levels import level_probabilities, level_values
from apes.mathematics.randomness import SimulationSource, SystemSource
from apes.mathematics.thresholds import acceptance_thresholds
from apes.storage.version import __version__
from apes.terms.frameworks import FRAMEWORKS, Framework
from apes.terms.plan import Plan
from apes.training.train import TrainingResult, train

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
