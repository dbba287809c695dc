"""Torch modules as models: per-user gradients, refusals, digests, bits, what comes out."""

import copy
import pickle
import re
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from levels import sampled

import apes

torch = pytest.importorskip("torch", reason="torch is not installed: make test EXTRAS=torch")
from torch import nn  # noqa: E402 - after the check that it is there
from torch.nn import functional  # noqa: E402

from apes.models.torch_layout import Layout, padded  # noqa: E402

SIZES = [6, 6, 6, 1, 5, 17, 140, 300, 6, 3]


def seeded(make):
    torch.manual_seed(7)
    return make()


def cnn():
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
        )
    )


def mlp(outputs=5, features=64):
    return seeded(lambda: nn.Sequential(nn.Linear(features, 13), nn.GELU(), nn.Linear(13, outputs)))


def block_of(sizes=SIZES, classes=5, features=64, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rows = rng.normal(0, 1, (offsets[-1], features)).astype(np.float32)
    labels = rng.integers(0, classes, offsets[-1]).astype(np.uint8) if classes else rows[:, 0] - rows[:, 1]
    return apes.UserBlock(0, np.ones(len(sizes)), rows, labels, offsets)


def pick(block, users):
    """The block of some of the users, in this order."""
    parts = [np.arange(block.offsets[user], block.offsets[user + 1]) for user in users]
    offsets = np.concatenate([[0], np.cumsum([part.size for part in parts])])
    rows = np.concatenate(parts)
    return apes.UserBlock(0, block.budgets[users], block.features[rows], block.labels[rows], offsets)


def loop(module, loss, block, shape, local=None):
    """The same updates by plain backward passes, user by user."""
    found = []
    for low, high in zip(block.offsets, block.offsets[1:], strict=False):
        net, rows = copy.deepcopy(module), torch.from_numpy(block.features[low:high]).reshape(-1, *shape)
        labels = torch.from_numpy(block.labels[low:high].astype(np.int64 if block.labels.dtype.kind == "u" else "f4"))
        before = [value.detach().clone() for value in net.parameters()]
        for _ in range(1 if local is None else local.epochs):
            net.zero_grad()
            loss(net(rows), labels).backward()
            if local is None:
                found.append([value.grad for value in net.parameters()])
                continue
            with torch.no_grad():
                for value, old in zip(net.parameters(), before, strict=True):
                    value -= local.learning_rate * (value.grad + local.mu * (value - old))
        if local is not None:
            found.append([old - value.detach() for old, value in zip(before, net.parameters(), strict=True)])
    return np.stack([torch.cat([value.reshape(-1) for value in values]).numpy() for values in found])


def updates(model, block):
    return model.updates(model.start().astype(np.float32), block)


def squares(outputs, targets):
    return functional.mse_loss(outputs, targets.reshape(outputs.shape))


CASES = {
    "cnn": (cnn, functional.cross_entropy, 5, (1, 8, 8)),
    "mlp": (mlp, nn.CrossEntropyLoss(), 5, (64,)),
    "reals": (partial(mlp, 1), squares, None, (64,)),
}


LOCAL = apes.FedProx(epochs=4, learning_rate=0.05, mu=0.2)


class TestUpdates:
    @pytest.mark.parametrize(
        ("case", "local"),
        [
            ("mlp", None),
            pytest.param("cnn", None, marks=pytest.mark.service),
            pytest.param("mlp", LOCAL, marks=pytest.mark.service),
            pytest.param("reals", LOCAL, marks=pytest.mark.service),
            pytest.param("reals", None, marks=pytest.mark.exhaustive),
            pytest.param("cnn", LOCAL, marks=pytest.mark.exhaustive),
        ],
    )
    def test_equal_those_of_a_loop_over_users(self, case, local):
        make, loss, classes, shape = CASES[case]
        block = block_of(classes=classes)
        model = apes.TorchModel(make(), loss, local=local, input_shape=shape)
        assert model.is_difference == (local is not None)
        expected = loop(make(), loss, block, shape, local)
        assert np.abs(updates(model, block) - expected).max() < 1e-6 * max(1, np.abs(expected).max())
        assert np.abs(expected).max() > 0.01

    @pytest.mark.service
    def test_rows_with_a_shape_of_their_own(self):
        block = block_of()
        shaped = apes.UserBlock(0, block.budgets, block.features.reshape(-1, 1, 8, 8), block.labels, block.offsets)
        flat = apes.TorchModel(cnn(), functional.cross_entropy, input_shape=(1, 8, 8))
        assert np.array_equal(updates(apes.TorchModel(cnn(), functional.cross_entropy), shaped), updates(flat, block))

    @pytest.mark.service
    def test_a_loss_by_any_reduction(self):
        block = block_of()
        mean, total, none = (
            updates(apes.TorchModel(mlp(), partial(functional.cross_entropy, reduction=name)), block)
            for name in ("mean", "sum", "none")
        )
        assert np.array_equal(mean, total)
        assert np.array_equal(mean, none)

    def test_only_what_is_not_frozen_is_trained(self):
        module = mlp()
        module[0].requires_grad_(False)
        model = apes.TorchModel(module, functional.cross_entropy)
        whole = apes.TorchModel(mlp(), functional.cross_entropy)
        assert model.dimensions == 13 * 5 + 5
        assert np.abs(updates(model, block_of()) - updates(whole, block_of())[:, -70:]).max() < 1e-6
        state = model.state_dict(np.zeros(70))
        assert torch.equal(state["0.weight"], module[0].weight)
        assert not state["2.weight"].any()

    def test_the_module_is_copied(self):
        module, block = mlp(), block_of()
        model = apes.TorchModel(module, functional.cross_entropy)
        before, digest = updates(model, block), model.digest
        with torch.no_grad():
            module[0].weight.zero_()
        assert np.array_equal(updates(model, block), before)
        assert model.digest == digest

    @pytest.mark.service
    def test_batch_norm_with_fixed_statistics_is_a_layer_like_any_other(self):
        module = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 5)).eval()
        block = block_of()
        model = apes.TorchModel(module, functional.cross_entropy)
        assert np.abs(updates(model, block) - loop(module, functional.cross_entropy, block, (64,))).max() < 1e-6


STEPS = apes.FedProx(epochs=3, learning_rate=0.3)


class TestBits:
    """A user's update is the same bits in whichever block, at whichever place, on however many threads."""

    @pytest.mark.parametrize(
        ("case", "local"),
        [
            pytest.param("cnn", None, marks=pytest.mark.service),
            pytest.param("mlp", STEPS, marks=pytest.mark.service),
            *(pytest.param(case, None, marks=pytest.mark.exhaustive) for case in ("mlp", "reals")),
            *(pytest.param(case, STEPS, marks=pytest.mark.exhaustive) for case in ("cnn", "reals")),
        ],
    )
    def test_whatever_the_company(self, case, local):
        make, loss, classes, shape = CASES[case]
        block = block_of(SIZES * 4, classes)
        model = apes.TorchModel(make(), loss, local=local, input_shape=shape)
        expected = updates(model, block).view(np.int32)
        users = np.random.default_rng(3).permutation(len(SIZES) * 4)
        for part in (users, users[:40], users[:9], users[:2], *users[:8, None]):
            assert np.array_equal(updates(model, pick(block, part)).view(np.int32), expected[part])

    @pytest.mark.parametrize("features", sampled([37, 30, 61], keep=1))
    def test_rows_of_odd_sizes(self, features):
        """Rows that begin anywhere in memory, for which matrix products may choose another order."""
        block = block_of([1, 2, 3, 6] * 16, features=features)
        model = apes.TorchModel(mlp(features=features), functional.cross_entropy)
        expected = updates(model, block).view(np.int32)
        users = np.random.default_rng(3).permutation(64)
        for part in (users, users[:40], users[:3], *users[:8, None]):
            assert np.array_equal(updates(model, pick(block, part)).view(np.int32), expected[part])

    @pytest.mark.parametrize(
        "workers",
        [
            pytest.param(apes.Workers(threads=2, users_at_once=16), marks=pytest.mark.service),
            pytest.param(apes.Workers(threads=2), marks=pytest.mark.exhaustive),
        ],
        ids=["other blocks", "the same blocks"],
    )
    def test_of_a_run_on_any_threads_and_blocks(self, workers):
        one_thread = trained(workers=apes.Workers(threads=1))
        assert trained(workers=workers).model_sha256 == one_thread.model_sha256

    @pytest.mark.exhaustive
    def test_of_a_run_in_other_processes(self):
        with ProcessPoolExecutor(2) as pool:
            elsewhere = trained(workers=apes.Workers(executor=pool))
        assert elsewhere.model_sha256 == trained().model_sha256

    @pytest.mark.service
    def test_a_pickled_model_is_the_same(self):
        model = apes.TorchModel(cnn(), functional.cross_entropy, input_shape=(1, 8, 8))
        twin = pickle.loads(pickle.dumps(model))
        assert twin.digest == model.digest
        assert np.array_equal(updates(twin, block_of()), updates(model, block_of()))

    def test_a_model_of_another_torch_is_another_model(self, monkeypatch):
        """Another version may compute other bits; its last number may not."""
        digests = []
        for version in ("2.6.0", "2.6.1", "2.7.0", "3.6.0"):
            monkeypatch.setattr(torch, "__version__", version)
            digests.append(apes.TorchModel(mlp(), functional.cross_entropy).digest)
        assert digests[0] == digests[1]
        assert len(set(digests)) == 3

    def test_torch_has_its_threads_back(self):
        before = torch.get_num_threads()
        updates(apes.TorchModel(mlp(), functional.cross_entropy), block_of())
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("rows", "goal"), [(1, 1), (2, 2), (3, 3), (5, 6), (6, 6), (7, 8), (9, 12), (97, 128), (300, 300)]
)
def test_padding(rows, goal):
    assert padded(rows) == goal


def test_groups_hold_everybody_once():
    layout = Layout(6, (32, 8, 2))
    for users in range(1, 100):
        groups = list(layout.groups(users))
        assert sum(count for count, _ in groups) == users
        assert all(0 < count <= size for count, size in groups)
        assert sum(size for _, size in groups) <= max(2 * users, 2)


def people_of(users=120, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, users * 4 + 300)
    centres = np.random.default_rng(9).normal(0, 1, (5, 64))
    rows = (centres[labels] + rng.normal(0, 0.5, (labels.size, 64))).astype(np.float32)
    ids = np.sort(np.concatenate([np.arange(users), rng.integers(0, users, users * 3)]))
    budgets, test = np.full(ids.size, 1.0), (rows[ids.size :], labels[ids.size :])
    return apes.People.from_arrays(rows[: ids.size], labels[: ids.size], users=ids, budgets=budgets, test=test)


PLAN = apes.Plan(framework="apes", rounds=4, norm=1.0, clip=0.2, delta=1e-4, learning_rate=0.5, seed=3)


def trained(plan=PLAN, **options):
    model = apes.TorchModel(cnn(), functional.cross_entropy, input_shape=(1, 8, 8))
    return apes.train(model, people_of(), plan, **options)


@pytest.mark.service
class TestTraining:
    def test_learns_and_is_certified(self):
        model = apes.TorchModel(mlp(), functional.cross_entropy)
        run = apes.train(model, people_of(), apes.Plan(framework="non-private", rounds=40, learning_rate=1.0, seed=1))
        assert run.accuracy > 0.9
        private = trained()
        assert 0 < private.guarantee.epsilon < np.inf
        assert private.exposures[-1].dimensions == sum(value.numel() for value in cnn().parameters())

    def test_goes_on_bit_for_bit(self):
        kept = []
        whole = trained(after_round=kept.append)
        again = trained(resume=kept[1])
        assert np.array_equal(whole.weights.view(np.int64), again.weights.view(np.int64))
        assert again.guarantee.epsilon == whole.guarantee.epsilon

    @pytest.mark.process
    def test_goes_on_after_a_kill_in_another_process(self, tmp_path):
        kept = tmp_path / "progress"
        folders = [str(folder) for folder in Path(__file__).parents[:2]]
        code = (
            f"import os, pickle, signal, sys\nsys.path[:0] = {folders!r}\n"
            "from test_torch import trained\n"
            "def keep(progress):\n"
            f"    open({str(kept)!r}, 'wb').write(pickle.dumps(progress))\n"
            "    progress.rounds < 2 or os.kill(os.getpid(), signal.SIGKILL)\n"
            "trained(after_round=keep)"
        )
        assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
        progress = pickle.loads(kept.read_bytes())
        assert progress.rounds == 2
        assert trained(resume=progress).model_sha256 == trained().model_sha256

    def test_another_start_is_not_gone_on_with(self):
        kept = []
        trained(after_round=kept.append)
        other = apes.TorchModel(torch.manual_seed(8) and nn.Linear(64, 5), functional.cross_entropy)
        with pytest.raises(apes.ParameterError, match="resume must be of the same terms"):
            apes.train(other, people_of(), PLAN, resume=kept[1])

    def test_what_comes_out_goes_into_the_module(self):
        model, people = apes.TorchModel(cnn(), functional.cross_entropy, input_shape=(1, 8, 8)), people_of()
        run = apes.train(model, people, apes.Plan(framework="non-private", rounds=20, learning_rate=1.0, seed=1))
        fitted, module = run.model, cnn()
        module.load_state_dict(fitted.state_dict())
        rows = people.test.features
        own = module(torch.from_numpy(rows).reshape(-1, 1, 8, 8)).argmax(dim=1).numpy()
        assert np.array_equal(fitted.predict(rows), own)
        assert (own == people.test.labels).mean() == pytest.approx(run.accuracy)

    def test_real_valued_targets(self):
        rows = np.random.default_rng(0).normal(0, 1, (400, 6)).astype(np.float32)
        target = rows @ np.linspace(-1, 1, 6)
        people = apes.People.from_arrays(rows, target, budgets=np.full(400, 2.0), test=(rows[:100], target[:100]))
        model = apes.TorchModel(nn.Linear(6, 1), functional.mse_loss)
        run = apes.train(model, people, apes.Plan(framework="non-private", rounds=60, learning_rate=0.1, seed=1))
        assert run.metrics[-1].accuracy is None
        assert run.metrics[-1].loss < 0.01
        fitted = run.model
        assert np.abs(fitted.predict(rows) - target).mean() < 0.1


def test_labels_beyond_the_outputs():
    model = apes.TorchModel(nn.Linear(64, 4), functional.cross_entropy)
    with pytest.raises(apes.ParameterError, match=r"labels must be in \[0, 3\], the module's outputs, got 0 to 4"):
        updates(model, block_of())


class Noisy(nn.Module):
    def forward(self, rows):
        return rows + torch.randn_like(rows)


class InPlace(nn.Module):
    def forward(self, rows):
        total = torch.zeros(1, rows.shape[1])
        total += rows
        return total


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, rows):
        self.seen += 1
        return rows


class Branches(nn.Module):
    def forward(self, rows):
        return rows if rows.sum() > 0 else -rows


class Pair(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.layer, self.scale = seeded(lambda: nn.Linear(64, 5)), scale

    def forward(self, rows):
        return self.scale * self.layer(rows), rows


def tied():
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 5))
    module[1].weight = module[0].weight
    return module


def not_finite():
    module = nn.Linear(64, 5)
    with torch.no_grad():
        module.weight[2, 3] = torch.nan
    return module


def then_linear(layer):
    return nn.Sequential(layer, nn.Linear(64, 5))


BAD = [
    (lambda: nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8)), r"layer '1' \(BatchNorm1d\) .*GroupNorm.*eval"),
    (lambda: then_linear(nn.Sequential(nn.BatchNorm1d(64, track_running_stats=False))).eval(), r"layer '0.0' \(Batch"),
    (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 64)), nn.InstanceNorm1d(1, track_running_stats=True)),
        "layer '1' .*eval",
    ),
    (lambda: then_linear(nn.Dropout(0.1)), r"layer '0' \(Dropout\) draws random numbers: remove it, or .*eval"),
    (lambda: then_linear(Noisy()), r"layer '0' \(Noisy\) draws random numbers"),
    (lambda: then_linear(InPlace()), r"layer '0' \(InPlace\) works in place"),
    (lambda: then_linear(Counts()), r"layer '0' \(Counts\) changes its buffer '0.seen'"),
    (lambda: then_linear(Branches()), r"layer '0' \(Branches\) cannot run on rows for many users at once"),
    (lambda: nn.Sequential(nn.Linear(64, 8), nn.Linear(9, 5)), r"layer '1' \(Linear\) cannot run .* shapes"),
    (Pair, "module must return a tensor, got tuple"),
    (nn.ReLU, "module must have parameters to train, got none in ReLU"),
    (lambda: nn.Linear(64, 5).requires_grad_(False), "parameters to train, got only frozen ones"),
    (lambda: nn.Linear(64, 5).double(), r"float32 parameters, got 'weight' of torch.float64: call .float\(\)"),
    (tied, "tied parameters, got '0.weight' and '1.weight'"),
    (not_finite, r"weight\[2, 3\] must be finite, got nan"),
    (lambda: nn.LazyLinear(5), "got a lazy 'weight': run one row through first"),
    (lambda: nn.Linear(64, 1), r"module must give a score per class .* got \(1, 1\)"),
    (lambda: nn.Sequential(nn.Linear(64, 6), nn.Unflatten(1, (2, 3))), r"score per class .* got \(1, 2, 3\)"),
    (lambda: nn.Sequential(nn.Linear(64, 5), nn.Flatten(0)), r"score per class .* got \(5,\)"),
    (lambda: "net", "module must be a torch.nn.Module, got str"),
]


@pytest.mark.parametrize(("make", "said"), BAD, ids=[said[:30] for _, said in BAD])
def test_a_bad_module_is_named_in_one_line(make, said):
    with pytest.raises(apes.ParameterError, match=said) as caught:
        apes.train(apes.TorchModel(make(), functional.cross_entropy), people_of(), PLAN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "cross-entropy"}, "loss must be callable"),
        ({"loss": lambda outputs, targets: outputs}, r"loss must give one number .* got shape \(1, 5\)"),
        ({"loss": lambda outputs, targets: 0.0}, "loss must give one number .* got float"),
        ({"local": 3}, "local must be None or an apes.FedProx, got int"),
        ({"input_shape": (3, 0)}, r"input_shape must be in \[1, inf\), got 0"),
        ({"input_shape": 64}, "input_shape must be a tuple of sizes"),
        ({"input_shape": (65,)}, r"layer|cannot run"),
        ({"input_shape": (1, 64)}, r"score per class .* got \(1, 1, 5\)"),
    ],
)
def test_a_bad_choice_is_named(options, said):
    chosen = {"loss": functional.cross_entropy} | options
    with pytest.raises(apes.ParameterError, match=said):
        apes.train(apes.TorchModel(mlp(), chosen.pop("loss"), **chosen), people_of(), PLAN)


def test_rows_that_do_not_fit_the_shape():
    model = apes.TorchModel(cnn(), functional.cross_entropy, input_shape=(1, 8, 8))
    with pytest.raises(apes.ParameterError, match=r"input_shape must hold the 63 numbers of a row, got \(1, 8, 8\)"):
        updates(model, block_of(features=63))


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layer, self.scale = seeded(lambda: nn.Linear(64, 5)), scale

    def forward(self, rows):
        return self.scale * self.layer(rows)


class TestDigest:
    def test_tells_models_apart(self):
        other = mlp()
        with torch.no_grad():
            other[0].bias[0] += 1
        eval_mode = mlp().eval()
        models = [
            apes.TorchModel(mlp(), functional.cross_entropy),
            apes.TorchModel(mlp(), partial(functional.cross_entropy, label_smoothing=0.1)),
            apes.TorchModel(mlp(), nn.CrossEntropyLoss()),
            apes.TorchModel(mlp(), nn.CrossEntropyLoss(label_smoothing=0.1)),
            apes.TorchModel(mlp(), lambda outputs, targets: functional.cross_entropy(outputs, targets)),
            apes.TorchModel(mlp(), lambda outputs, targets: functional.cross_entropy(2 * outputs, targets)),
            apes.TorchModel(mlp(), functional.cross_entropy, local=apes.FedProx()),
            apes.TorchModel(mlp(), functional.cross_entropy, local=apes.FedProx(mu=0.5)),
            apes.TorchModel(mlp(), functional.cross_entropy, input_shape=(64,)),
            apes.TorchModel(other, functional.cross_entropy),
            apes.TorchModel(eval_mode, functional.cross_entropy),
            apes.TorchModel(Scaled(1.0), functional.cross_entropy),
            apes.TorchModel(Scaled(2.0), functional.cross_entropy),
        ]
        assert len({model.digest for model in models}) == len(models)
        assert models[0].digest == apes.TorchModel(mlp(), functional.cross_entropy).digest

    @pytest.mark.process
    def test_is_the_same_in_every_process(self):
        """Which imports torch only when it is asked for."""
        code = (
            "import sys, apes; assert 'torch' not in sys.modules; apes.TorchModel; assert 'torch' in sys.modules\n"
            "import torch; torch.manual_seed(7); from torch import nn\n"
            "class Own(nn.Linear):\n    def forward(self, rows): return 2 * super().forward(rows)\n"
            "model = apes.TorchModel(nn.Sequential(Own(4, 3)), lambda o, t: nn.functional.cross_entropy(o, t))\n"
            "print(model.digest, apes.Frozen(Own(4, 3)).digest)"
        )
        said = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
        assert len(said) == 1
        assert re.search('"module": "[0-9a-f]{64}".*"frozen"', said.pop())
