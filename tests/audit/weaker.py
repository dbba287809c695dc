"""Pipelines that reveal more than is certified."""

import numpy as np

import apes.client.client
import apes.client.one_bit
import apes.client.sparsifier
import apes.terms.mechanism
from apes.client.clip import norm_limit
from apes.client.draws.choice import keep_any
from apes.client.one_bit import OneBit
from apes.client.randomizer import CodedClipLaplace
from apes.client.top_b_first import top_b_first
from apes.terms.terms import Terms


def run_at(monkeypatch, budgets_run):
    """Replace the randomizer by one that runs at other budgets than it is told."""

    for kind in (CodedClipLaplace, OneBit):

        class Weaker(kind):
            def prepare(self, budgets):
                return super().prepare(budgets_run(budgets))

        monkeypatch.setattr(apes.terms.mechanism, kind.__name__, Weaker)


def lets_values_through(monkeypatch):
    """Replace the randomizer by one whose noise is that of the clip, for updates that are larger."""

    class Unclipped(CodedClipLaplace):
        def prepare(self, budgets):
            return budgets

        def draw(self, updates, tables, place, source):
            beyond = np.maximum(1.0, np.abs(updates).max(axis=1) / self.clip)
            return super().draw(updates, super().prepare(tables * beyond), place, source)

    monkeypatch.setattr(apes.terms.mechanism, "CodedClipLaplace", Unclipped)


def norm_too_large(monkeypatch):
    """Updates are three times as long as is certified."""
    monkeypatch.setattr(apes.client.one_bit, "norm_limit", lambda norm, clip: norm_limit(3 * norm, clip))


def one_coordinate_more(monkeypatch):
    """Users keep one coordinate more than is certified; where there is no choice, one is not charged for."""

    def one_more(update, b, shape, *, on_device):
        return top_b_first(update, b + 1, shape, on_device=on_device)

    monkeypatch.setattr(apes.client.client, "top_b_first", one_more)
    monkeypatch.setattr(apes.client.sparsifier, "keep_any", lambda b, *rest: keep_any(b + 1, *rest))
    exposure = Terms.exposure

    def too_few(self, number, budgets, dimensions):
        return exposure(self, number, budgets, dimensions - (self.sparsification is None and dimensions > 1))

    monkeypatch.setattr(Terms, "exposure", too_few)
