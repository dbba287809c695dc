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

# For type checkers and editors. What runs loads a name when it is first asked for: compilers, which numbers are drawn
# with, take a second to start, and neither a word of help nor an error is to wait for them.
if typing.TYPE_CHECKING:
    from apes.accounting.accountant import Accountant
    from apes.accounting.exposure import Exposure
    from apes.accounting.guarantee import Guarantee, certify
    from apes.accounting.published import PUBLISHED
    from apes.budgets import make_budgets
    from apes.client.foreign import Draws
    from apes.data import Dataset, download, load, partition
    from apes.data.table.schema import Schema
    from apes.errors import (
        ApesError,
        BudgetExceeded,
        DataError,
        ParameterError,
        ProtocolError,
        RegimeError,
        WorkersError,
    )
    from apes.features.feature_map import FeatureMap
    from apes.features.frozen import Frozen as Frozen
    from apes.features.oriented_gradients import OrientedGradients
    from apes.mathematics.laws import ClipLaplace, Laplace
    from apes.mathematics.levels import level_probabilities, level_values
    from apes.mathematics.randomness import SimulationSource, StreamKey, SystemSource
    from apes.mathematics.thresholds import acceptance_thresholds
    from apes.messages import CountedBatch, Estimate, PermutedBatch, SummedBatch
    from apes.models.linear import LinearRegression
    from apes.models.logistic import FedProx, LogisticRegression
    from apes.models.model import Model
    from apes.models.torch_model import TorchModel as TorchModel
    from apes.models.trained import Trained
    from apes.partitions.partitions import Partitions
    from apes.people.people import People
    from apes.population import Examples, Population, UserBlock
    from apes.storage.version import __version__
    from apes.terms.fitting import fitted
    from apes.terms.frameworks import FRAMEWORKS, Framework
    from apes.terms.mechanism import Mechanism
    from apes.terms.plan import Plan
    from apes.terms.schedule import Schedule
    from apes.terms.simulation import Simulation
    from apes.terms.terms import Terms
    from apes.training.private_mean import PrivateMean
    from apes.training.run import Progress
    from apes.training.train import TrainingResult, train
    from apes.training.workers import Workers

# fmt: off
__all__ = [
    "FRAMEWORKS", "PUBLISHED", "Accountant", "ApesError", "BudgetExceeded", "ClipLaplace", "CountedBatch", "DataError",
    "Dataset", "Draws", "Estimate", "Examples", "Exposure", "FeatureMap", "FedProx", "Framework", "Guarantee",
    "Laplace", "LinearRegression", "LogisticRegression", "Mechanism", "Model", "OrientedGradients", "ParameterError",
    "Partitions", "People", "PermutedBatch", "Plan", "Population", "PrivateMean", "Progress", "ProtocolError",
    "RegimeError", "Schedule", "Schema", "Simulation", "SimulationSource", "StreamKey", "SummedBatch", "SystemSource",
    "Terms", "Trained", "TrainingResult", "UserBlock", "Workers", "WorkersError", "__version__",
    "acceptance_thresholds", "certify", "download", "fitted", "level_probabilities", "level_values", "load",
    "make_budgets", "partition", "train",
]
# fmt: on

# Where the names are; tests hold it against the imports above.
_HOMES = {
    "apes.accounting.accountant": "Accountant",
    "apes.accounting.exposure": "Exposure",
    "apes.accounting.guarantee": "Guarantee certify",
    "apes.accounting.published": "PUBLISHED",
    "apes.budgets": "make_budgets",
    "apes.client.foreign": "Draws",
    "apes.data": "Dataset download load partition",
    "apes.data.table.schema": "Schema",
    "apes.errors": "ApesError BudgetExceeded DataError ParameterError ProtocolError RegimeError WorkersError",
    "apes.features.feature_map": "FeatureMap",
    "apes.features.frozen": "Frozen",
    "apes.features.oriented_gradients": "OrientedGradients",
    "apes.mathematics.laws": "ClipLaplace Laplace",
    "apes.mathematics.levels": "level_probabilities level_values",
    "apes.mathematics.randomness": "SimulationSource StreamKey SystemSource",
    "apes.mathematics.thresholds": "acceptance_thresholds",
    "apes.messages": "CountedBatch Estimate PermutedBatch SummedBatch",
    "apes.models.linear": "LinearRegression",
    "apes.models.logistic": "FedProx LogisticRegression",
    "apes.models.model": "Model",
    "apes.models.torch_model": "TorchModel",
    "apes.models.trained": "Trained",
    "apes.partitions.partitions": "Partitions",
    "apes.people.people": "People",
    "apes.population": "Examples Population UserBlock",
    "apes.storage.version": "__version__",
    "apes.terms.fitting": "fitted",
    "apes.terms.frameworks": "FRAMEWORKS Framework",
    "apes.terms.mechanism": "Mechanism",
    "apes.terms.plan": "Plan",
    "apes.terms.schedule": "Schedule",
    "apes.terms.simulation": "Simulation",
    "apes.terms.terms": "Terms",
    "apes.training.private_mean": "PrivateMean",
    "apes.training.run": "Progress",
    "apes.training.train": "TrainingResult train",
    "apes.training.workers": "Workers",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
# torch is an extra and takes seconds. So these are not among what `import *` gives.
_WITH_TORCH = ("Frozen", "TorchModel")
# What can be entered without an import of its own, as in `apes.data.NAMES`.
_ROOMS = frozenset(module.split(".")[1] for module in _HOMES)


def __getattr__(name: str) -> object:
    """A public name or a room of the package, when it is first asked for."""
    if name in _ROOMS:
        return importlib.import_module(f"apes.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'apes' has no attribute {name!r}")
    if name in _WITH_TORCH and importlib.util.find_spec("torch") is None:
        from apes.errors import ParameterError

        raise ParameterError(f"apes.{name} needs torch, which is not installed: pip install 'apes-fl[torch]'")
    # Kept: whoever asks next does not come here.
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    """What can be asked for, loaded or not; without what needs an extra."""
    return sorted({*globals(), *__all__})
