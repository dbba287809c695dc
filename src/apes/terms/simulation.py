"""A simulation: what `apes train` makes up where a federation would have people."""

from dataclasses import dataclass
from typing import Any

from apes.budgets import MOST_USERS, PUBLIC_SEED, check_budgets
from apes.checks import one_of, unused, whole
from apes.data import NAMES, Dataset
from apes.data.datasets import NORMALISATIONS
from apes.data.split import parse_split
from apes.defaults import BUDGETS, DATA, FEATURES, USERS
from apes.features.feature_map import FeatureMap
from apes.features.named import named_features
from apes.models.logistic import FedProx, LogisticRegression
from apes.people.people import People


@dataclass(frozen=True)
class Simulation:
    """Made-up people and what they train. None means: the default of the update.

    Attributes:
        data: Name of the data set.
        normalise: ``pixels`` in [0, 1], or every image of ``unit-norm``.
        features: The public map that users apply first: ``oriented-gradients[:CELLS]``, or ``pixels`` as they are.
        split: How images are spread over users: ``iid``, ``label``, ``dirichlet:ALPHA``.
        users: Number of users n, in [1, 10^8].
        budgets: The users' local budgets per coordinate and round (`apes.make_budgets`).
        update: ``gradient`` (Algorithm 1) or ``fedprox`` (difference after local steps).
        local_epochs: Local steps of FedProx (10).
        local_learning_rate: Local step size of FedProx (1).
        mu: FedProx's proximal weight (0.01).
        seed: Of split and budgets, in [0, 2^64): public, for they are made up.
    """

    data: str = DATA
    normalise: str = "pixels"
    features: str = FEATURES
    split: str = "iid"
    users: int = USERS
    budgets: str = BUDGETS
    update: str = "gradient"
    local_epochs: int | None = None
    local_learning_rate: float | None = None
    mu: float | None = None
    seed: int = PUBLIC_SEED

    def __post_init__(self) -> None:
        one_of("data", self.data, NAMES)
        one_of("normalise", self.normalise, NORMALISATIONS)
        named_features(self.features)
        parse_split(self.split)
        whole("users", self.users, 1, MOST_USERS)
        check_budgets(self.budgets)
        whole("seed", self.seed, 0, 2**64 - 1)
        one_of("update", self.update, ("gradient", "fedprox"))
        self._local()

    def people(self, dataset: Dataset) -> People:
        """The data set's images spread over users, with budgets."""
        return People.from_dataset(dataset, users=self.users, budgets=self.budgets, split=self.split, seed=self.seed)

    def feature_map(self) -> FeatureMap | None:
        """What users apply to their images first; None for pixels."""
        return named_features(self.features)

    def model(self, dataset: Dataset) -> LogisticRegression:
        """Logistic regression on the images as the feature map shows them."""
        seen, map_ = dataset.train_images[:1], self.feature_map()
        return LogisticRegression((seen if map_ is None else map_(seen)).shape[1], dataset.classes, self._local())

    def _local(self) -> FedProx | None:
        names = ("local_epochs", "local_learning_rate", "mu")
        local: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.update == "gradient":
            unused(local, "update is 'gradient'")
            return None
        return FedProx(**{name.removeprefix("local_"): value for name, value in local.items() if value is not None})
