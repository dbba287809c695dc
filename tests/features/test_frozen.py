"""A frozen torch module as a feature map."""

import pickle

import numpy as np
import pytest

import apes

torch = pytest.importorskip("torch", reason="torch is not installed: make test EXTRAS=torch")
from torch import nn  # noqa: E402 - after the check that it is there

ROWS = np.random.default_rng(0).normal(0, 1, (150, 64)).astype(np.float32)


def backbone():
    torch.manual_seed(7)
    layers = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2)
    return nn.Sequential(*layers, nn.Dropout(0.5))


def people_of(users=200):
    labels = np.arange(users * 3) % 3
    centres = np.random.default_rng(9).normal(0, 1, (3, 64))
    rows = (centres[labels] + np.random.default_rng(1).normal(0, 0.7, (labels.size, 64))).astype(np.float32)
    ids, test = np.arange(labels.size) // 3, (rows[:100], labels[:100])
    return apes.People.from_arrays(rows, labels, users=ids, budgets=np.ones(labels.size), test=test)


def test_features_are_the_modules_in_eval_mode():
    module = backbone()
    plain = apes.Frozen(module, norm=None)(ROWS)
    module.eval()
    expected = module(torch.from_numpy(ROWS)).detach().flatten(1).numpy()
    assert plain.shape == (150, 54)
    assert plain.dtype == np.float32
    assert np.abs(plain - expected).max() < 1e-5


def test_rows_have_a_public_norm():
    scaled, plain = (apes.Frozen(backbone(), **options)(ROWS) for options in ({}, {"norm": None}))
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.linalg.norm(scaled, axis=1) == pytest.approx(np.full(150, 9.0), rel=1e-5)
    assert np.abs(scaled - plain / lengths * 9).max() < 1e-5
    assert np.linalg.norm(apes.Frozen(backbone(), norm=2)(ROWS), axis=1) == pytest.approx(np.full(150, 2.0), rel=1e-5)


def test_a_row_of_zeros_and_a_huge_one_stay_finite():
    module = nn.Linear(64, 3, bias=False)
    rows = np.concatenate([np.zeros((1, 64)), ROWS[:1] * 1e30]).astype(np.float32)
    out = apes.Frozen(module)(rows)
    assert not out[0].any()
    assert np.linalg.norm(out[1]) == pytest.approx(9, rel=1e-5)


@pytest.mark.parametrize("make", [backbone, lambda: nn.Sequential(nn.Linear(64, 33), nn.GELU(), nn.Linear(33, 7))])
def test_a_row_is_the_same_bits_in_any_company(make):
    features = apes.Frozen(make())
    expected = features(ROWS).view(np.int32)
    order = np.random.default_rng(2).permutation(150)
    for part in (order, order[:77], order[:65], order[:2], order[5:6]):
        assert np.array_equal(features(ROWS[part]).view(np.int32), expected[part])


def test_the_module_is_copied_and_left_in_its_mode():
    module = backbone()
    features = apes.Frozen(module)
    before, digest = features(ROWS), features.digest
    assert module.training
    with torch.no_grad():
        module[1].weight.zero_()
    assert np.array_equal(features(ROWS), before)
    assert features.digest == digest


def test_the_digest_tells_maps_apart():
    changed = backbone()
    changed[2].running_mean += 1
    maps = [
        apes.Frozen(backbone()),
        apes.Frozen(backbone(), norm=None),
        apes.Frozen(backbone(), norm=8),
        apes.Frozen(backbone(), input_shape=(64,)),
        apes.Frozen(changed),
        apes.Frozen(nn.Linear(64, 5)),
    ]
    assert len({features.digest for features in maps}) == len(maps)
    assert apes.Frozen(backbone()).digest == maps[0].digest == pickle.loads(pickle.dumps(maps[0])).digest


class Noisy(nn.Module):
    def forward(self, rows):
        return rows + torch.randn_like(rows)


class Centred(nn.Module):
    def forward(self, rows):
        return rows - rows.mean(dim=0)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, rows):
        self.seen += 1
        return rows


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Sequential(nn.Linear(64, 8), Noisy()), r"layer '1' \(Noisy\) gives other outputs every time"),
        (lambda: nn.Sequential(Centred()), "module must treat each row by itself"),
        (lambda: nn.Sequential(Counts()), r"layer '0' \(Counts\) changes its buffer '0.seen'"),
        (lambda: nn.Sequential(nn.BatchNorm1d(64, track_running_stats=False)), r"layer '0' \(BatchNorm1d\) mixes rows"),
        (lambda: nn.Sequential(nn.Linear(9, 8)), r"layer '0' \(Linear\) cannot run on rows"),
        (lambda: nn.Flatten(0), r"with an entry per row, 1, got torch.float32 of shape \(64,\)"),
        (lambda: abs, "module must be a torch.nn.Module, got builtin_function_or_method"),
    ],
)
def test_a_bad_module_is_named(make, said):
    with pytest.raises(apes.ParameterError, match=said) as caught:
        apes.Frozen(make())(ROWS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("norm", [0, -1.0, float("nan"), float("inf"), "9"])
def test_a_bad_norm(norm):
    with pytest.raises(apes.ParameterError, match="norm must be"):
        apes.Frozen(backbone(), norm=norm)


@pytest.mark.service
def test_only_the_head_is_trained():
    people, features = people_of(), apes.Frozen(backbone())
    head = apes.LogisticRegression(54, 3)
    plan = apes.Plan(framework="apes", rounds=3, norm=1.0, clip=0.2, delta=1e-4, seed=1)
    ways = [apes.Workers(threads=1), apes.Workers(threads=2, users_at_once=16)]
    first, second = (apes.train(head, people, plan, features=features, workers=workers) for workers in ways)
    assert first.model_sha256 == second.model_sha256
    assert 0 < first.guarantee.epsilon < np.inf
    free = apes.train(
        head, people, apes.Plan(framework="non-private", rounds=30, learning_rate=0.5, seed=1), features=features
    )
    assert free.accuracy > 0.9
