"""The client's side as a whole: every coordinate once, and the same reports whatever the block."""

from dataclasses import replace

import numpy as np
import pytest

from apes.client.client import Client
from apes.client.one_bit import OneBit
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise, NoNoise, Place
from apes.client.sparsifier import RandomB, Threshold, TopB
from apes.client.top_b_first import top_b_first
from apes.errors import ParameterError
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import FedProx, LogisticRegression
from apes.models.model import prepare_updates
from apes.people.people import People

USERS, CLASSES, CLIP = 9, 5, 0.1
SOURCE = SimulationSource(6, 3)
RANDOMIZERS = [
    CodedClipLaplace(CLIP),
    CodedClipLaplace(CLIP, 7),
    OneBit(CLIP, 1.5),
    ContinuousClipLaplace(CLIP),
    LaplaceNoise(CLIP),
    NoNoise(),
]
SPARSIFIERS = (TopB(8), RandomB(8), Threshold(0.8))
# What a client runs beside its model: local steps or none, and the stages after them.
STAGES = [
    *((None, randomizer) for randomizer in RANDOMIZERS),
    (FedProx(3, 0.1, 0.01), CodedClipLaplace(CLIP)),
    *((None, RANDOMIZERS[0], sparsifier) for sparsifier in SPARSIFIERS),
    *((None, RANDOMIZERS[3], sparsifier) for sparsifier in SPARSIFIERS),
    (None, RANDOMIZERS[0], None, 8),
]
every_client = pytest.mark.parametrize("stages", STAGES, ids=str)


def make_client(stages, features):
    local, *others = stages
    return Client(LogisticRegression(features, CLASSES, local), *others)


def make_population(features):
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 8, USERS)
    x = rng.random((sizes.sum(), features), dtype=np.float32)
    labels = rng.integers(0, CLASSES, sizes.sum()).astype(np.uint8)
    return People(x, labels, np.cumsum([0, *sizes]), rng.uniform(0.05, 3, USERS))


def make_weights(features):
    return np.random.default_rng(1).normal(0, 0.05, CLASSES * (features + 1)).astype(np.float32)


def whole_reports(client, weights, block, source=SOURCE):
    """All coordinates of a block; checks that each comes exactly once and under the right address."""
    reports = list(client.reports(weights, block, source))
    seen = np.zeros(weights.size, dtype=int)
    out = np.empty((block.budgets.size, weights.size), dtype=reports[0].values.dtype)
    for report in reports:
        stop = report.first_coordinate + report.values.shape[1]
        seen[report.first_coordinate : stop] += 1
        out[:, report.first_coordinate : stop] = report.values
        assert report.first_user == block.first_user
        assert report.budgets.tolist() == block.budgets.tolist()
    assert (seen == 1).all()
    return out


# 5 x 1,639 = 8,195 coordinates come in two parts of odd length, 5 x 4,915 = 24,575 in three.
@pytest.mark.parametrize(("features", "parts"), [(1, 1), (20, 1), (1638, 2), (4914, 3)])
@every_client
def test_every_coordinate_is_reported_once(stages, features, parts):
    block, client = make_population(features).block(0, USERS), make_client(stages, features)
    reports = whole_reports(client, make_weights(features), block)
    assert reports.shape == (USERS, CLASSES * (features + 1))
    is_coded = isinstance(client.randomizer, CodedClipLaplace | OneBit)
    assert reports.dtype == (np.uint8 if is_coded else np.float32)
    stages = (client.randomizer, client.sparsifier)
    is_whole = any(stage is not None and stage.needs_whole_update for stage in stages)
    assert len(list(client.reports(make_weights(features), block, SOURCE))) == (1 if is_whole else parts)


@pytest.mark.parametrize("features", [1638])
@every_client
def test_a_device_is_a_block_of_one(stages, features):
    people, weights, client = make_population(features), make_weights(features), make_client(stages, features)
    everybody = whole_reports(client, weights, people.block(0, USERS))
    for user in range(USERS):
        alone = whole_reports(client, weights, people.block(user, user + 1))
        assert alone.tobytes() == everybody[user].tobytes()
    middle = whole_reports(client, weights, people.block(2, 7))
    assert middle.tobytes() == everybody[2:7].tobytes()


@every_client
def test_the_parts_are_what_the_stages_give_on_the_whole(stages):
    features = 1638
    block, weights, client = (
        make_population(features).block(3, 8),
        make_weights(features),
        make_client(stages, features),
    )
    scratch = np.empty(5 * weights.size, dtype=np.float32)
    prepared = prepare_updates(client.model, weights, block)
    if client.kept_first is not None:
        prepared = top_b_first(prepared, client.kept_first, (5, weights.size))
    update = prepared.coordinates(0, weights.size, scratch)
    tables, place = client.randomizer.prepare(block.budgets), Place(3, 0)
    values = client.randomizer.draw(update, tables, place, SOURCE)
    if client.sparsifier is not None:
        values = client.sparsifier.apply(values, tables, client.randomizer, place, SOURCE)
    assert whole_reports(client, weights, block).tobytes() == values.tobytes()


@every_client
def test_seed_and_round_change_the_noise(stages):
    block, weights, client = make_population(20).block(0, USERS), make_weights(20), make_client(stages, 20)
    first = whole_reports(client, weights, block)
    assert whole_reports(client, weights, block).tobytes() == first.tobytes()
    is_random = not isinstance(client.randomizer, NoNoise)
    for source in (SimulationSource(6, 4), SimulationSource(7, 3)):
        assert (whole_reports(client, weights, block, source) != first).any() == is_random


class Greedy(LogisticRegression):
    """A model that writes larger budgets into its block while it runs."""

    def prepare(self, weights, block):
        block.budgets[:] = 500.0
        return super().prepare(weights, block)


@pytest.mark.parametrize("randomizer", RANDOMIZERS[:-1], ids=str)
def test_a_model_that_writes_into_budgets_changes_nothing(randomizer):
    honest, greedy = (Client(kind(20, CLASSES), randomizer) for kind in (LogisticRegression, Greedy))
    weights, people = make_weights(20), make_population(20)
    expected = whole_reports(honest, weights, people.block(0, USERS))
    block = people.block(0, USERS)
    own = block.budgets.copy()
    (report,) = greedy.reports(weights, replace(block, budgets=own), SOURCE)
    assert own.tolist() == [500.0] * USERS
    assert report.values.tobytes() == expected.tobytes()
    assert report.budgets.tolist() == block.budgets.tolist()


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
def test_nothing_is_reported_on_a_broken_model(randomizer):
    block, weights = make_population(20).block(0, USERS), make_weights(20)
    weights[2 * 21 + 3] = np.nan
    with pytest.raises(ParameterError, match=r"^LogisticRegression.prepare\[0, 0\] must be finite, got nan$"):
        next(make_client((None, randomizer), 20).reports(weights, block, SOURCE))
