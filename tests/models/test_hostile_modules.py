"""Torch modules and losses that keep, mix or hide something: one user's rows reach nobody else's update, and what
computes something else has another digest."""

import functools
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import apes  # noqa: E402

cross_entropy = functional.cross_entropy
SCALE = [1.0]


class Own(nn.Module):
    """A linear layer behind something that a stranger wrote."""

    def __init__(self, before=lambda own, x: x, **attributes):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 3)
        self.before = before
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.linear(self.before(self, x))


def block(rows_each=2, users=8, change=1.0):
    rows = np.random.default_rng(1).random((rows_each * users, 6)).astype(np.float32)
    rows[:rows_each] *= change
    return apes.UserBlock(0, np.full(users, 0.5), rows, np.arange(len(rows)) % 3, np.arange(users + 1) * rows_each)


def updates(model, of):
    return model.updates(model.start().astype(np.float32), of)


def running_mean(own, x):
    own.mean = x.detach() if own.mean is None else 0.9 * own.mean + 0.1 * x.detach()
    return x - own.mean


def late_buffer(own, x):
    own.count += 1
    if own.count > 2:
        own.run = 0.9 * own.run + 0.1 * x.detach()
    return x - own.run


def counted(own, x):
    own.count += 1
    return x * (1 + 0.1 * own.count)


def remembered(own, x):
    own.list.append(x.detach())
    return x


class RunningLoss:
    def __init__(self):
        self.mean = 0.0

    def __call__(self, outputs, targets):
        value = cross_entropy(outputs, targets)
        self.mean = 0.9 * self.mean + 0.1 * value.detach()
        return value - self.mean


def global_state(own, x):
    SCALE[0] = SCALE[0] * 1.01
    return x * SCALE[0]


KEEPING = {
    "attribute": (lambda: Own(running_mean, mean=None), cross_entropy),
    "buffer": (lambda: Own(late_buffer, count=0, run=nn.Buffer(torch.zeros(1, 6))), cross_entropy),
    "counter": (lambda: Own(counted, count=0), cross_entropy),
    "list": (lambda: Own(remembered, list=[]), cross_entropy),
    "loss": (Own, RunningLoss()),
    "global": (lambda: Own(global_state), cross_entropy),
}


@pytest.mark.parametrize("rows_each", [2, 200])
@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_something_between_users_is_refused(name, rows_each):
    make, loss = KEEPING[name]
    with pytest.raises(apes.ParameterError, match=r"changes as it runs|must give the same numbers|changes its buffer"):
        updates(apes.TorchModel(make(), loss), block(rows_each))


def test_chance_that_torch_does_not_see_is_refused():
    with pytest.raises(apes.ParameterError, match="must give the same numbers every time"):
        updates(apes.TorchModel(Own(lambda own, x: x * random.random()), cross_entropy), block())


class MixingScale(torch.autograd.Function):
    """Scales by the largest number of the batch, with a rule for vmap that takes all users for one batch."""

    @staticmethod
    def forward(x):
        return x / x.abs().max().clamp(min=1e-6)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, dims, x):
        return MixingScale.apply(x), dims[0]


def test_mixing_in_a_rule_for_vmap_is_refused():
    with pytest.raises(apes.ParameterError, match="must treat each user by itself"):
        updates(apes.TorchModel(Own(lambda own, x: MixingScale.apply(x)), cross_entropy), block())


def test_a_module_that_works_in_place_takes_the_same_local_steps():
    local = apes.FedProx(epochs=4, learning_rate=0.5, mu=0.0)
    found = [
        updates(apes.TorchModel(Own(before), cross_entropy, local=local), block())
        for before in (lambda own, x: x.sub_(0.5), lambda own, x: x - 0.5)
    ]
    assert np.abs(found[0] - found[1]).max() < 1e-6


class TestFrozen:
    ROWS = np.random.default_rng(2).random((64, 6)).astype(np.float32)

    def test_a_branch_on_the_batch_sees_one_row_only(self):
        """Of a backbone that asks whether its input is in bytes: one person's pixel must not scale the others'."""
        frozen = apes.Frozen(Own(lambda own, x: x / 255 if x.max() > 1 else x), norm=None)
        other = self.ROWS.copy()
        other[0, 0] = 1.01
        before, after = frozen(self.ROWS), frozen(other)
        assert np.array_equal(before[1:], after[1:])
        assert not np.array_equal(before[0], after[0])

    def test_what_keeps_the_first_real_rows_is_refused(self):
        def keep(own, x):
            if x.max() > 1 and own.mean is None:
                own.mean = x.mean(0)
            return x if own.mean is None else x - own.mean

        frozen = apes.Frozen(Own(keep, mean=None), input_shape=(6,))
        with pytest.raises(apes.ParameterError, match=r"module.mean changes as it runs"):
            frozen(3 * self.ROWS)

    def test_what_writes_real_rows_into_a_tensor_is_refused(self):
        def keep(own, x):
            if x.max() > 1:
                own.mean.copy_(x[0])
            return x - own.mean

        frozen = apes.Frozen(Own(keep, mean=torch.zeros(6)), input_shape=(6,))
        with pytest.raises(apes.ParameterError, match=r"module.mean changes as it runs"):
            frozen(3 * self.ROWS)

    @pytest.mark.parametrize(
        ("before", "match"),
        [
            (lambda own, x: x * torch.nan, "finite features"),
            (lambda own, x: own.table(x.long() * 100)[:, :, 0], "layer 'table'"),
        ],
    )
    def test_what_fails_is_said_in_a_line(self, before, match):
        with pytest.raises(apes.ParameterError, match=match):
            apes.Frozen(Own(before, table=nn.Embedding(5, 2)))(9 * self.ROWS)

    @pytest.mark.parametrize("rows", [ROWS[:0], "x", None])
    def test_rows_that_are_none(self, rows):
        with pytest.raises(apes.ParameterError, match="rows must be"):
            apes.Frozen(Own())(rows)

    def test_a_lazy_layer_is_named(self):
        with pytest.raises(apes.ParameterError, match="lazy"):
            apes.Frozen(nn.LazyLinear(3))


class Config:
    def __init__(self, value):
        self.value = value

    def loss(self, outputs, targets):
        return self.value * cross_entropy(outputs, targets)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, outputs, targets):
        return self.value * cross_entropy(outputs, targets)


def hooked(factor):
    module = Own()
    module.register_forward_hook(lambda layer, inputs, outputs: outputs * factor)
    return module


def own_forward(factor):
    module = Own()
    module.forward = types.MethodType(lambda self, x: self.linear(x) * factor, module)
    return module


def teacher(seed):
    torch.manual_seed(seed)
    layer = nn.Linear(3, 3).requires_grad_(False)
    return lambda outputs, targets: cross_entropy(layer(outputs), targets)


def weighed(factor):
    def loss(outputs, targets, *, by=factor):
        return by * cross_entropy(outputs, targets)

    return loss


def closed(factor):
    weights = np.full(3, factor, dtype=np.float32)
    return lambda outputs, targets: (torch.from_numpy(weights) * outputs).sum()


MODULES = {
    "array": lambda c: Own(mask=np.full(6, c)),
    "underscore": lambda c: Own(_scale=c),
    "number of numpy": lambda c: Own(scale=np.float32(c)),
    "object": lambda c: Own(config=Config(c)),
    "plain list": lambda c: Own(others=[Own(scale=c)]),
    "closure": lambda c: Own(lambda own, x: x * c),
    "partial": lambda c: Own(functools.partial(functional.leaky_relu, negative_slope=c)),
    "hook": hooked,
    "forward of the instance": own_forward,
}
LOSSES = {
    "method": lambda c: Config(c).loss,
    "slots": Slots,
    "module": lambda c: teacher(int(c)),
    "keyword": weighed,
    "array": closed,
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_differ_have_other_digests(name):
    first, again, second = (apes.TorchModel(MODULES[name](c), cross_entropy).digest for c in (1.0, 1.0, 2.0))
    assert first == again != second


@pytest.mark.parametrize("name", [name for name in MODULES if name != "partial"])
def test_frozen_modules_that_differ_have_other_digests(name):
    first, again, second = (apes.Frozen(MODULES[name](c)).digest for c in (1.0, 1.0, 2.0))
    assert first == again != second


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_differ_have_other_digests(name):
    first, again, second = (apes.TorchModel(Own(), LOSSES[name](c)).digest for c in (1.0, 1.0, 2.0))
    assert first == again != second


def test_lambdas_on_one_line_have_other_digests():
    first, second = Own(lambda own, x: x), Own(lambda own, x: -x)  # fmt: skip
    assert apes.TorchModel(first, cross_entropy).digest != apes.TorchModel(second, cross_entropy).digest


class Scaled(Own):
    factor = 1.0


def test_a_class_attribute_counts(monkeypatch):
    before = apes.TorchModel(Scaled(), cross_entropy).digest
    monkeypatch.setattr(Scaled, "factor", 2.0)
    assert apes.TorchModel(Scaled(), cross_entropy).digest != before


def people():
    rows = np.random.default_rng(3).random((60, 6)).astype(np.float32)
    return apes.People.from_arrays(rows, np.arange(60) % 3, users=np.arange(60) // 2, budgets="constant:0.5")


PLAN = apes.Plan(clip=0.1, levels=2, norm=0.5, rounds=3, delta=1e-3, seed=1)


def test_another_loss_does_not_resume():
    kept = []
    apes.train(apes.TorchModel(Own(), Config(1.0).loss), people(), PLAN, after_round=kept.append)
    with pytest.raises(apes.ParameterError, match="resume must be of the same terms"):
        apes.train(apes.TorchModel(Own(), Config(-1.0).loss), people(), PLAN, resume=kept[0])


def test_a_loss_that_is_changed_later_changes_nothing():
    config = Config(1.0)
    model = apes.TorchModel(Own(), config.loss)
    before = updates(model, block())
    config.value = -1.0
    assert np.array_equal(updates(model, block()), before)


class InPlace:
    digest = "in place"

    def __call__(self, rows):
        rows *= 2
        return rows


def test_a_map_that_works_in_place_cannot_change_anybodys_rows():
    them = people()
    before = them.block(0, 5).features.copy()
    with pytest.raises(ValueError, match="read-only"):
        apes.train(apes.LogisticRegression(6, 3), them, PLAN, features=InPlace())
    assert np.array_equal(them.block(0, 5).features, before)


class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs, targets):
        return cross_entropy(outputs * self.scale, targets)


def weight_normed():
    module = Own()
    with pytest.warns(FutureWarning):
        module.linear = nn.utils.weight_norm(module.linear)
    module(torch.ones(1, 6))
    return module


def raising(outputs, targets):
    raise ValueError("no such thing")


BAD = {
    "weights of classes": (Own, nn.CrossEntropyLoss(weight=torch.ones(3)), "reduction='sum'"),
    "weights bound": (Own, functools.partial(cross_entropy, weight=torch.ones(3)), "reduction='sum'"),
    "a loss to train": (Own, Temperature(), "loss must have no parameters to train"),
    "a loss that raises": (Own, raising, "^loss: .*no such thing"),
    "compiled": (lambda: torch.jit.script(nn.Linear(6, 3)), cross_entropy, r"compiled by torch.jit"),
    "cannot be copied": (weight_normed, cross_entropy, "copy"),
    "a source of chance": (lambda: Own(source=torch.Generator()), cross_entropy, r"module.source draws random numbers"),
    "rows beyond a table": (
        lambda: Own(lambda own, x: own.table((x * 5).long())[:, :, 0], table=nn.Embedding(2, 2)),
        cross_entropy,
        "layer 'table'",
    ),
    "a buffer made on the way": (
        lambda: Own(lambda own, x: own.register_buffer("cache", x.detach()) or x),
        cross_entropy,
        "changes",
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_trained_is_said_in_a_line(name):
    make, loss, match = BAD[name]
    with pytest.raises(apes.ParameterError, match=match) as caught:
        updates(apes.TorchModel(make(), loss), block())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(10**9, 10**9), (2**62, 4)])
def test_a_shape_that_no_memory_holds(shape):
    with pytest.raises(apes.ParameterError, match="input_shape must hold at most"):
        apes.TorchModel(Own(), cross_entropy, input_shape=shape)


@pytest.mark.parametrize("weights", [np.zeros(3), "x", None])
def test_a_state_of_another_size(weights):
    with pytest.raises(apes.ParameterError, match="weights must be 21 numbers"):
        apes.TorchModel(Own(), cross_entropy).state_dict(weights)
