"""A package as an owner might install it: models of plain NumPy, and what else a package may do."""

import sys
from contextlib import contextmanager

PACKAGE = '''"""Softmax regression by hand, and models that misbehave."""
import pathlib

import numpy as np

SCALE = 1.0
pathlib.Path(__file__).with_name("imported").touch()


class Softmax:
    """Rows of so many numbers, three classes."""

    def __init__(self, features=4, scale=None):
        self.features, self.scale = features, SCALE if scale is None else scale
        self.dimensions, self.digest = 3 * features, f"softmax {features} {self.scale}"

    def start(self):
        return np.zeros(self.dimensions)

    def _errors(self, weights, rows, labels):
        scores = self.scale * rows @ weights.reshape(3, self.features).T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True) - np.eye(3)[labels]

    def updates(self, weights, block):
        out = np.empty((block.budgets.size, self.dimensions), dtype=np.float32)
        for user, (start, stop) in enumerate(zip(block.offsets, block.offsets[1:])):
            rows = block.features[start:stop].astype(np.float64)
            errors = self._errors(weights.astype(np.float64), rows, block.labels[start:stop])
            out[user] = (self.scale * errors.T @ rows / (stop - start)).ravel()
        return out

    def evaluate(self, weights, examples):
        errors = self._errors(weights, examples.features.astype(np.float64), examples.labels)
        return float((errors.min(axis=1) > -0.5).mean()), float((errors**2).mean())


class Fragile(Softmax):
    """Fails on whoever has a row whose first number is above the first weight; meddles with budgets and weights."""

    def updates(self, weights, block):
        if (block.features[:, 0] > 1 - weights[0]).any():
            raise ArithmeticError("somebody's first number is large")
        found = super().updates(weights, block)
        block.budgets[:] = 1e9
        weights[:] = 1e9
        return found


class Misshapen(Softmax):
    """One coordinate too few."""

    def updates(self, weights, block):
        return super().updates(weights, block)[:, :-1]


def make():
    return Softmax()


def other():
    return Softmax(scale=2.0)


def fragile():
    return Fragile()


def misshapen():
    return Misshapen()


def wide():
    return Softmax(features=5)


def for_images():
    return Softmax(features=784)


def needs(parameter):
    return Softmax()


def nothing():
    return None


def fails():
    raise RuntimeError("two lines\\nof trouble")


number = 3
'''
TORCH_PACKAGE = '''"""A small network."""
import torch

import apes


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        return apes.TorchModel(torch.nn.Sequential(*layers), torch.nn.functional.cross_entropy)


def make():
    return network(1)


def other():
    return network(2)
'''


def write_package(folder, name, text):
    """Put a package where an installation would; return the folder that the interpreter looks in."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return folder


@contextmanager
def installed(folder, name, monkeypatch):
    """Have the interpreter look in a folder, and forget the package afterwards."""
    monkeypatch.syspath_prepend(folder)
    try:
        yield
    finally:
        forget(name)


def forget(name):
    """Forget that a package was imported."""
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
