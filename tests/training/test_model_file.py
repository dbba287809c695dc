"""The file of a trained model says what it is; files of earlier versions are read, damaged ones refused."""

import json

import numpy as np
import pytest

import apes
from apes.accounting.guarantee import Guarantee
from apes.models.model import WeightArray, layout_of
from apes.training.model_file import about_model, read_model, write_model

MODEL = apes.LogisticRegression(3, 2)
ABOUT = about_model(MODEL, Guarantee(0.5, 1e-5), "ab" * 32, rounds=7)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.npz"
    write_model(path, np.arange(8.0), ABOUT)
    return path


def test_it_says_what_it_is(file):
    weights, about = read_model(file)
    assert weights.tolist() == list(range(8))
    assert about == ABOUT
    assert about["layout"] == [{"name": "weights", "shape": [2, 4], "axes": ["class", "feature, the bias last"]}]
    assert (about["epsilon"], about["delta"], about["rounds"], about["terms_sha256"]) == (0.5, 1e-5, 7, "ab" * 32)
    # As somebody without this package reads it.
    with np.load(file) as stored:
        assert json.loads(str(stored["about"])) == ABOUT
        slopes = stored["weights"].reshape(about["layout"][0]["shape"])[:, :-1]
    assert (slopes == MODEL.coefficients(weights)[0]).all()


def test_what_is_not_certified_has_no_figure():
    about = about_model(MODEL, Guarantee(np.inf, 1e-5, why_not_certified="too bold"), "", rounds=1)
    assert (about["epsilon"], about["delta"]) == (None, None)


def test_files_of_earlier_versions(tmp_path):
    np.savez(tmp_path / "model.npz", weights=np.ones(3))
    weights, about = read_model(tmp_path / "model.npz")
    assert (weights.tolist(), about) == ([1, 1, 1], None)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.array([1.0, np.nan])},
        {"weights": np.append(np.ones(7), np.nan)},
        {"weights": np.append(np.ones(7), np.inf)},
        {"weights": np.ones((2, 4))},
        {"weights": np.ones(8, dtype=np.float32)},
        {"weights": np.ones(7)},
        {"weights": np.ones(9)},
        {"about": np.array("{")},
        {"about": np.array("[]")},
        {"about": np.array(json.dumps(ABOUT | {"format": 9}))},
        {"about": np.array(json.dumps(ABOUT | {"layout": "x"}))},
        {"about": np.array(json.dumps(ABOUT | {"layout": [{"shape": [1e400]}]}))},
        {"about": np.array([1, 2])},
        {"about": np.array("[" * 100_000)},
    ],
    ids=lambda change: str(next(iter(change.items())))[:40],
)
def test_damaged_ones_are_refused(file, change):
    arrays = {"weights": np.arange(8.0), "about": np.array(json.dumps(ABOUT))} | change
    np.savez(file, **arrays)
    with pytest.raises(apes.DataError, match=r"is damaged|is of format"):
        read_model(file)


def test_half_a_file_is_refused(file):
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(apes.DataError, match="cannot be read"):
        read_model(file)


def test_layouts_cover_all_weights():
    for model in (MODEL, apes.LinearRegression(3)):
        assert sum(int(np.prod(array.shape)) for array in layout_of(model)) == model.dimensions


class Odd(apes.LinearRegression):
    layout = ("mine",)


class Plain:
    dimensions = 5


def test_a_strangers_model_may_say_nothing_but_nothing_odd():
    assert layout_of(Plain()) == (WeightArray("weights", (5,)),)
    with pytest.raises(apes.ParameterError, match="layout must be a sequence of WeightArray"):
        layout_of(Odd(3))
