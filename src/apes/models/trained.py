"""A trained model, to predict with: on rows as they come, or handed over to scikit-learn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apes.checks import finite_float32
from apes.data.table.opening import Source
from apes.data.table.rows import encode_table, table_in_units
from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.models.model import Model


class Predicting(Protocol):
    """A model that says something about rows: one number each, or a score for every class."""

    def outputs(self, weights: F64, rows: F32) -> F32 | F64:
        """What it says, (rows, 1) or (rows, classes)."""


class Linear(Protocol):
    """A model whose outputs are linear in a row."""

    def coefficients(self, weights: F64) -> tuple[F64, F64]:
        """Slopes (outputs, features) and intercepts (outputs,)."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A model with its weights, and with the schema of the table that it was trained on, if there was one.

    Attributes:
        model: What was trained.
        weights: Flat.
        schema: How rows of a table become numbers; None if it was trained on arrays.
        features: The feature map that these went through then, or None.
    """

    model: Model
    weights: F64
    schema: Schema | None = None
    features: Callable[[F32], F32] | None = None

    def predict(self, rows: Source) -> NDArray[Any]:
        """Predict one class or target per row, as the table had them.

        Args:
            rows: A table as for `apes.People.from_table`, of which the columns that were learned from are looked at;
                or without a schema an array of rows as they were trained on.
        """
        if self.schema is not None:
            return self.predict_encoded(encode_table(rows, self.schema))
        return self.predict_encoded(finite_float32("rows", cast("ArrayLike", rows)))

    def predict_encoded(self, rows: F32) -> NDArray[Any]:
        """Predict from rows of numbers, encoded already."""
        features = rows if self.features is None else self.features(rows)
        outputs = cast("Predicting", self._offering("outputs")).outputs(self.weights, features)
        if outputs.shape[1] > 1:
            return np.asarray(self._classes(outputs.shape[1])[outputs.argmax(axis=1)])
        middle, half = self._target
        return middle + half * outputs[:, 0]

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn ``LogisticRegression`` or ``LinearRegression`` that predicts the same.

        Its inputs are the schema's features in their own units, in the order of ``schema.columns.feature_names``:
        numbers as the table has them, which should lie within their bounds, and a 0 or 1 for every category. What
        takes raw rows, clips and encodes them is `to_pipeline`. Without a schema, or after a feature map, its inputs
        are the features that the model sees.
        """
        from sklearn import linear_model

        slopes, intercepts = self._in_units()
        if len(slopes) == 1:
            fitted = linear_model.LinearRegression()
            fitted.coef_, fitted.intercept_ = slopes[0], float(intercepts[0])
        else:
            fitted = linear_model.LogisticRegression()
            fitted.classes_, fitted.n_iter_ = self._classes(len(slopes)), np.array([0])
            # Of two classes scikit-learn keeps the difference.
            is_pair = len(slopes) == 2
            fitted.coef_ = slopes[1:] - slopes[:1] if is_pair else slopes
            fitted.intercept_ = intercepts[1:] - intercepts[:1] if is_pair else intercepts
        fitted.n_features_in_ = slopes.shape[1]
        return fitted

    def to_pipeline(self) -> Any:
        """A scikit-learn ``Pipeline`` from raw rows (a table, as for `predict`) to predictions."""
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import FunctionTransformer

        if self.features is not None:
            raise ParameterError("a pipeline must go from columns to the model, got a feature map between them")
        return Pipeline([("columns", FunctionTransformer(self.in_units)), ("model", self.to_sklearn())])

    def in_units(self, rows: Source) -> F64:
        """Features of a table's rows in their own units, clipped to their bounds: what `to_sklearn` takes."""
        if self.schema is None:
            raise ParameterError("columns need the schema of a table, and this model was trained on arrays")
        return table_in_units(rows, self.schema)

    def _in_units(self) -> tuple[F64, F64]:
        """Slopes and intercepts for features in their own units."""
        slopes, intercepts = cast("Linear", self._offering("coefficients")).coefficients(self.weights)
        if self.schema is not None and self.features is None:
            middle, unit = self.schema.columns.scales
            slopes = slopes / unit
            intercepts = intercepts - slopes @ middle
        target_middle, target_half = self._target
        return target_half * slopes, target_middle + target_half * intercepts

    def _offering(self, method: str) -> Model:
        if not hasattr(self.model, method):
            raise ParameterError(f"model must have {method} for this, got {type(self.model).__name__}")
        return self.model

    @property
    def _target(self) -> tuple[float, float]:
        """Middle and half of the target's bounds; 0 and 1 where there are none."""
        target = None if self.schema is None else self.schema.target
        return (0.0, 1.0) if target is None else (target.middle, target.half)

    def _classes(self, count: int) -> NDArray[Any]:
        return np.arange(count) if self.schema is None else self.schema.class_values()
