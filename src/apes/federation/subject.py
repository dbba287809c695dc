"""What a federation is about: the model, how rows are encoded for it, and public examples to judge it by."""

from dataclasses import dataclass, replace

from apes.data import Dataset
from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.features.feature_map import seen_through
from apes.features.named import PIXELS, named_features
from apes.federation.agreed_model import AgreedModel, check_examples
from apes.federation.installed import InstalledModel, installed_model
from apes.people.people import People
from apes.population import Examples
from apes.terms.own_table import OwnTable
from apes.terms.simulation import Simulation


@dataclass(frozen=True, eq=False)
class Subject:
    """What is trained, and judged by what.

    Attributes:
        model: As the terms name it.
        test: Public examples.
        users: About how many take part, for the default delta; None if that is not known.
        features: The public map that users apply to their rows first, by name.
        schema: How rows of tables are encoded; None if users have numbers.
    """

    model: AgreedModel
    test: Examples
    users: int | None
    features: str = PIXELS
    schema: Schema | None = None

    @classmethod
    def of_images(cls, simulation: Simulation, dataset: Dataset) -> "Subject":
        """A named set of images, of which the test part is public."""
        test = Examples(dataset.test_images, dataset.test_labels)
        return cls(simulation.model(dataset), test, simulation.users, simulation.features)

    @classmethod
    def of_people(cls, table: OwnTable, people: People) -> "Subject":
        """People of a table, some of whom judge."""
        if people.test is None:
            raise ParameterError(f"test_share must leave somebody to judge the model, got {table.test_share!r}")
        return cls(table.model(people), people.test, people.budgets.size, schema=people.schema)

    @classmethod
    def of_public_table(cls, table: OwnTable) -> "Subject":
        """A table that is public: all of it judges, and says which columns and classes there are."""
        people = replace(table, test_share=0.0).people()
        everybody = people.block(0, people.budgets.size)
        return cls(table.model(people), Examples(everybody.features, everybody.labels), None, schema=people.schema)

    def trained_as(self, package: str | None) -> "Subject":
        """The same with an installed model, if one is named: our own word, so that it is imported here."""
        if package is None:
            return self
        model = installed_model(package)
        check_examples(model, seen_through(named_features(self.features), self.test), "the public test part")
        return replace(self, model=InstalledModel.of(package, model))
