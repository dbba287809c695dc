"""What a result stands beside: always guessing the most frequent class of the test examples, or their mean."""

import math
from dataclasses import dataclass

import numpy as np

from apes.models.model import Model
from apes.population import Examples

# So many standard errors of the difference count as chance.
_STANDARD_ERRORS = 3.0


def baseline_of(model: Model, examples: Examples, accuracy: float | None) -> float | None:
    """The figure that a model's accuracy, or else its loss, stands beside, of the same examples.

    Args:
        model: What is judged. Where it has no accuracy, it may say what its own loss of always answering the mean of
            the labels is: ``constant_loss(examples)``.
        examples: What it is judged by; nothing else is looked at.
        accuracy: What it gets right, or None where there is no such thing.

    Returns:
        The share of the most frequent class, in (0, 1]; without accuracy the loss of the mean; or None where that is
        not known.
    """
    if accuracy is not None:
        is_class = np.issubdtype(examples.labels.dtype, np.integer)
        return largest_share(examples) if is_class else None
    constant_loss = getattr(model, "constant_loss", None)
    loss = None if constant_loss is None else constant_loss(examples)
    return None if loss is None else float(loss)


def largest_share(examples: Examples) -> float:
    """Share of the most frequent class among examples."""
    counts = np.unique(examples.labels, return_counts=True)[1]
    return float(counts.max() / counts.sum())


@dataclass(frozen=True)
class Judged:
    """How a model did on test examples, beside what takes no model.

    Attributes:
        accuracy: Share of the examples that it gets right; None without examples or classes.
        loss: Its mean loss; None without examples.
        baseline: Beside accuracy, what always guessing the most frequent class gets right; else, beside the loss, that
            of always guessing the mean. None where it is not known.
        rows: How many examples there are; None where it is not known.
    """

    accuracy: float | None
    loss: float | None
    baseline: float | None = None
    rows: int | None = None

    @property
    def beats_baseline(self) -> bool | None:
        """Whether it is better than its baseline by more than chance may make it; None where that cannot be said."""
        if self.baseline is None or self.loss is None:
            return None
        if self.accuracy is None:
            return self.loss < self.baseline
        return self.accuracy - self.baseline > self._chance

    @property
    def _chance(self) -> float:
        """What an accuracy may differ by though the model is no better.

        Only examples that one of both gets right and the other does not tell them apart. Their share is at most
        min(a + b, 2 - a - b), and so is the variance of the difference, times the number of examples.
        """
        if self.accuracy is None or self.baseline is None or not self.rows:
            return 0.0
        both = self.accuracy + self.baseline
        return _STANDARD_ERRORS * math.sqrt(max(0.0, min(both, 2.0 - both)) / self.rows)

    @property
    def guess(self) -> str | None:
        """What it stands beside, with its figure."""
        if self.baseline is None:
            return None
        if self.accuracy is None:
            return f"always guessing the mean: loss {self.baseline:.4f}"
        return f"always guessing the most frequent class: {100 * self.baseline:.2f} %"

    @property
    def verdict(self) -> str | None:
        """What is to be said first: that there is nothing to judge by, or that the model is no better than a guess."""
        if self.loss is None:
            return "No test part: how good the model is is not known."
        if self.beats_baseline is not False or self.baseline is None:
            return None
        if self.accuracy is None:
            return f"The model is no better than always guessing the mean (loss {self.baseline:.4f})."
        guess = f"always guessing the most frequent class ({100 * self.baseline:.2f} %)"
        if self.accuracy > self.baseline:
            return f"The model may be no better than {guess}: {self.rows:,} test rows are too few to tell."
        return f"The model is no better than {guess}."

    def __str__(self) -> str:
        if self.loss is None:
            return "no test part: how good the model is is not known"
        beside = "" if self.guess is None else f" ({self.guess})"
        if self.accuracy is None:
            return f"test loss {self.loss:.4f}{beside}"
        return f"test accuracy {100 * self.accuracy:.2f} %{beside}"
