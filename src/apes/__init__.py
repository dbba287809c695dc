"""Personalised private federated learning in the shuffle model.

Users choose their own privacy budgets, perturb their updates, and hide among one another in a shuffler.

>>> import apes
>>> people = apes.People.from_arrays([[0.0], [1.0]] * 500, [0, 1] * 500, budgets="uniform2")
>>> run = apes.train(apes.LogisticRegression.of(people), people, apes.Plan(rounds=2, delta=1e-5))
>>> run.guarantee.epsilon < 2
True
"""

import importlib.util
import typing

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee, certify
from apes.accounting.published import PUBLISHED
from apes.budgets import make_budgets
from apes.client.foreign import Draws
from apes.data import Dataset, download, load, partition
from apes.data.table.schema import Schema
from apes.errors import ApesError, BudgetExceeded, DataError, ParameterError, ProtocolError, RegimeError
from apes.features.feature_map import FeatureMap
from apes.features.oriented_gradients import OrientedGradients
from apes.mathematics.laws import ClipLaplace, Laplace
from apes.mathematics.levels import level_probabilities, level_values
from apes.mathematics.randomness import SimulationSource, SystemSource
from apes.mathematics.thresholds import acceptance_thresholds
from apes.messages import CountedBatch, Estimate, PermutedBatch, SummedBatch
from apes.models.linear import LinearRegression
from apes.models.logistic import FedProx, LogisticRegression
from apes.models.model import Model
from apes.models.trained import Trained
from apes.population import Examples, People, Population, UserBlock
from apes.storage.version import __version__
from apes.terms.fitting import fitted
from apes.terms.frameworks import FRAMEWORKS, Framework
from apes.terms.mechanism import Mechanism
from apes.terms.plan import Plan
from apes.terms.schedule import Schedule
from apes.terms.simulation import Simulation
from apes.terms.terms import Terms
from apes.training.private_mean import PrivateMean
from apes.training.round import Workers
from apes.training.run import Progress
from apes.training.train import TrainingResult, train

if typing.TYPE_CHECKING:
    from apes.features.frozen import Frozen as Frozen
    from apes.models.torch_model import TorchModel as TorchModel

# fmt: off
__all__ = [
    "FRAMEWORKS", "PUBLISHED", "Accountant", "ApesError", "BudgetExceeded", "ClipLaplace", "CountedBatch", "DataError",
    "Dataset", "Draws", "Estimate", "Examples", "Exposure", "FeatureMap", "FedProx", "Framework", "Guarantee",
    "Laplace", "LinearRegression", "LogisticRegression", "Mechanism", "Model", "OrientedGradients", "ParameterError",
    "People", "PermutedBatch", "Plan", "Population", "PrivateMean", "Progress", "ProtocolError", "RegimeError",
    "Schedule", "Schema", "Simulation", "SimulationSource", "SummedBatch", "SystemSource", "Terms", "Trained",
    "TrainingResult", "UserBlock", "Workers", "__version__", "acceptance_thresholds", "certify", "download", "fitted",
    "level_probabilities", "level_values", "load", "make_budgets", "partition", "train",
]
# fmt: on

# Imported when they are asked for: torch takes seconds and is an extra. So they are not among what `import *` gives.
_WITH_TORCH = {"Frozen": "apes.features.frozen", "TorchModel": "apes.models.torch_model"}


def __getattr__(name: str) -> object:
    """Names that need torch."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'apes' has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise ParameterError(f"apes.{name} needs torch, which is not installed: pip install 'apes-fl[torch]'")
    return getattr(importlib.import_module(_WITH_TORCH[name]), name)
