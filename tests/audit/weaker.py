"""Pipelines that reveal more than is certified."""

import apes.client.client
import apes.client.sparsifier
import apes.terms.mechanism
from apes.client.draws.choice import keep_any
from apes.client.randomizer import CodedClipLaplace
from apes.client.top_b_first import top_b_first
from apes.terms.terms import Terms


def run_at(monkeypatch, budgets_run):
    """Replace the randomizer by one that runs at other budgets than it is told."""

    class Weaker(CodedClipLaplace):
        def prepare(self, budgets):
            return super().prepare(budgets_run(budgets))

    monkeypatch.setattr(apes.terms.mechanism, "CodedClipLaplace", Weaker)


def one_coordinate_more(monkeypatch):
    """Users keep one coordinate more than is certified; where there is no choice, one is not charged for."""
    monkeypatch.setattr(apes.client.client, "top_b_first", lambda update, b, shape: top_b_first(update, b + 1, shape))
    monkeypatch.setattr(apes.client.sparsifier, "keep_any", lambda b, *rest: keep_any(b + 1, *rest))
    charged = Terms.charged

    def too_few(self, dimensions):
        return charged(self, dimensions) - (self.sparsification is None and dimensions > 1)

    monkeypatch.setattr(Terms, "charged", too_few)
