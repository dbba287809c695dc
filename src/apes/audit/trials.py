"""Trials of an attack: the real pipeline on the worst pair of datasets, and how likely what comes out is in each world.

In one world the victim, who has the largest budget, is beyond the clip bound in every coordinate; in the other world
the same with the opposite sign; everybody else is at 0, or at the two ends where updates have a bounded norm. What the
terms do to an update (choose, clip, perturb, pad) is left to the client that they come with.

Every trial has people of its own, who report as the terms say; the shuffler, which treats coordinates alike and
independently, then takes the trials side by side as coordinates of wide reports.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apes.analyzer.expected import Channel, law_at_zero, pooled_channel
from apes.client.client import Client
from apes.client.randomizer import NoNoise
from apes.errors import ProtocolError
from apes.mathematics.arrays import Bools
from apes.mathematics.randomness import SimulationSource
from apes.mathematics.search import Progress
from apes.messages import CountedBatch, Report
from apes.population import UserBlock
from apes.terms.terms import Terms
from apes.training.private_mean import Vectors

Array = NDArray[np.float64]
MOST_TRIALS = 2**23
"""Of each world: rounds of the first one are numbered up to it, those of the second from there, up to 2^24."""

# The worst updates lie beyond the clip bound, so that clipping is audited too.
_BEYOND = 2.0
# A coordinate takes 2.5 kB in the shuffler, somebody's tables 2 kB: 20 MB and 32 MB for trials side by side.
_COORDINATES_AT_ONCE = 8192
_PEOPLE_AT_ONCE = 16_384
_ROWS_IN_A_BLOCK = 256
# Scores of single coordinates that are kept per world: 32 MB.
_MOST_SCORES = 2**22
_TINY = 1e-300
# A law below it is taken as this; the score is then not quite the best one, and as valid.
_RARE = 1e-12


@dataclass(frozen=True, eq=False)
class Attacked:
    """A population under attack, whose reports are coded on so many levels."""

    terms: Terms
    levels: int
    budgets: Array
    dimensions: int
    seed: int

    @property
    def at_once(self) -> int:
        """How many trials stand side by side."""
        return max(1, min(_COORDINATES_AT_ONCE // self.dimensions, _PEOPLE_AT_ONCE // self.budgets.size))

    @cached_property
    def likelihoods(self) -> Array:
        """Weights (levels, 2) of a report in the likelihood of each world, in a coordinate that the victim kept.

        With the others' reports drawn from a law rho, counts c have a likelihood proportional to
        sum_k c_k p(k) / rho(k), p the victim's law. Exact if the others have equal budgets; else rho is their mean
        law, and the attack is the best one to first order in 1 / n.
        """
        ends = self._channel(self.budgets[[self._victim]])[[-1, 0]]
        if self.terms.norm is not None:
            # The norm is spread over all coordinates: each is as far out as it may be, and rounded to an end at random.
            out = min(1.0, self.terms.norm / self.terms.clip / math.sqrt(self.dimensions))
            ends = np.array([[1 + out, 1 - out], [1 - out, 1 + out]]) / 2 @ ends
        others = np.delete(self.budgets, self._victim)
        rho = law_at_zero(self._channel(others)) if others.size else np.ones(ends.shape[1])
        return np.asarray((ends / np.maximum(rho, _RARE)).T)

    def run(self, world: int, number: int, trials: int) -> tuple[CountedBatch, Bools]:
        """Run some trials of a world as round ``number``.

        Returns:
            What the analyzer sees, trial after trial, and which coordinates the victim kept (trials, dimensions).
        """
        model, source = Vectors(self.dimensions), SimulationSource(self.seed, world * MOST_TRIALS + number)
        n, client = self.budgets.size, self.terms.client(model, self.dimensions)
        weights, at_once = model.start().astype(np.float32), max(1, _ROWS_IN_A_BLOCK // trials)
        collector = self.terms.collector(n, trials * self.dimensions, source)

        def gather(people: slice) -> None:
            # A report comes in parts only if it is too long for a second trial beside it.
            for report in client.reports(weights, self._block(people, trials, world), source):
                side_by_side = report.values.reshape(people.stop - people.start, -1)
                collector.add(Report(side_by_side, self.budgets[people], people.start, report.first_coordinate))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(gather, (slice(start, min(start + at_once, n)) for start in range(0, n, at_once))))
        batch = collector.release()
        if not isinstance(batch, CountedBatch):
            raise ProtocolError("the audit attacks counts; the shuffler released something else")
        return batch, self._kept(client, self._block(slice(self._victim, self._victim + 1), trials, world), source)

    def _kept(self, client: Client, victims: UserBlock, source: SimulationSource) -> Bools:
        """Coordinates that are not zero where nobody perturbs: choices draw from the source what they drew before."""
        open_client = replace(client, randomizer=NoNoise(self.terms.clip))
        weights = np.zeros(self.dimensions, dtype=np.float32)
        return np.hstack([report.values != 0 for report in open_client.reports(weights, victims, source)])

    def _block(self, people: slice, trials: int, world: int) -> UserBlock:
        """Some people of every trial: one after another, each with all the trials."""
        updates = np.zeros(self.budgets.size, dtype=np.float32)
        if self.terms.norm is not None:
            # A bit is least uncertain at the ends: there the others hide worst, as many at one as at the other.
            updates[:] = _BEYOND * self.terms.clip * (1 - 2 * (np.arange(self.budgets.size) % 2))
        updates[self._victim] = _BEYOND * self.terms.clip * (1 - 2 * world)
        rows = np.repeat(updates[people], trials)[:, None]
        budgets = np.repeat(self.budgets[people], trials)
        labels, offsets = np.zeros(len(rows), dtype=np.uint8), np.arange(len(rows) + 1)
        return UserBlock(people.start * trials, budgets, rows, labels, offsets)

    def _channel(self, budgets: Array) -> Channel:
        """Laws of a report that was kept; below a threshold it is padded nevertheless."""
        thin, plain = self.terms.sparsification, pooled_channel(budgets, self.levels)
        return plain if thin is None or thin.strategy != "threshold" else thin.channel(plain)

    @property
    def _victim(self) -> int:
        return int(np.argmax(self.budgets))


def scores(attacked: Attacked, world: int, trials: int, progress: Progress) -> tuple[Array, Array]:
    """Log-likelihood ratios of the first world to the second: of coordinates (trials, some of those kept), of users."""
    coordinates, users, at_once = [], [], attacked.at_once
    most = max(1, _MOST_SCORES // trials)
    for first in range(0, trials, at_once):
        count = min(at_once, trials - first)
        batch, kept = attacked.run(world, first // at_once, count)
        one, other = np.log(np.maximum(batch.counts @ attacked.likelihoods, _TINY)).T
        ratios = (one - other).reshape(kept.shape)
        # Everybody keeps as many coordinates as everybody else.
        coordinates.append(ratios[kept].reshape(count, -1)[:, :most].copy())
        users.append(ratios.sum(axis=1, where=kept))
        progress(world * trials + first + count, 2 * trials)
    return np.concatenate(coordinates), np.concatenate(users)
