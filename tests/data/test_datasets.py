import dataclasses

import numpy as np
import pytest

from apes import data
from apes.data import load
from apes.data.catalogue import CATALOGUE
from apes.errors import DataError, ParameterError

MNIST_NAMES = [file.name for file in CATALOGUE["mnist"].files]
QMNIST_NAMES = [file.name for file in CATALOGUE["qmnist"].files]


def test_public_names():
    assert data.NAMES == ("digits", "mnist", "fashion-mnist", "qmnist")
    assert all(hasattr(data, name) for name in data.__all__)


@pytest.mark.service
def test_digits(digits_cache):
    found = load("digits", cache=digits_cache)
    assert found.train_images.shape == (60_000, 784)
    assert found.test_images.shape == (10_000, 784)
    assert found.train_images.dtype == np.float32
    assert found.train_labels.dtype == np.uint8
    assert (found.train_images.min(), found.train_images.max()) == (0.0, 1.0)
    assert found.classes == 10
    assert found.provenance.startswith("digits: made from scikit-learn's")


@pytest.mark.mnist
@pytest.mark.service
def test_mnist(mnist_dir, tmp_path):
    found = load("mnist", data_dir=mnist_dir, cache=tmp_path)
    assert found.train_images.shape == (60_000, 784)
    assert found.test_images.shape == (10_000, 784)
    assert found.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert found.provenance == f"mnist: idx files in {mnist_dir}"
    # The mean and standard deviation of MNIST that every tutorial gives.
    assert found.train_images.mean(dtype=np.float64) == pytest.approx(0.1307, abs=1e-4)
    assert found.train_images.std(dtype=np.float64) == pytest.approx(0.3081, abs=1e-4)


@pytest.mark.mnist
def test_another_set_under_the_same_file_names_is_refused(mnist_dir, tmp_path):
    with pytest.raises(DataError, match="belongs to mnist, not to fashion-mnist; run `apes data get fashion"):
        load("fashion-mnist", data_dir=mnist_dir, cache=tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("where", ["direct", "subfolder", "cache"])
def test_finds_files_in_every_place(tmp_path, write_set, packed, where):
    folder = {"direct": "d", "subfolder": "d/mnist", "cache": "c/data/mnist"}[where]
    (tmp_path / "d").mkdir()
    arrays = write_set(tmp_path / folder, MNIST_NAMES, packed=packed)
    found = load("mnist", data_dir=tmp_path / "d", cache=tmp_path / "c")
    np.testing.assert_array_equal(np.rint(found.train_images * 255), arrays[0].reshape(30, 784))
    np.testing.assert_array_equal(found.train_labels, arrays[1])
    np.testing.assert_array_equal(np.rint(found.test_images * 255), arrays[2].reshape(20, 784))
    np.testing.assert_array_equal(found.test_labels, arrays[3])
    assert str(tmp_path / folder) in found.provenance
    assert found.train_labels.flags.writeable
    assert found.train_images.flags.c_contiguous


def test_qmnist_takes_the_class_from_the_first_column(tmp_path, write_set):
    arrays = write_set(tmp_path, QMNIST_NAMES, rows=True)
    found = load("qmnist", data_dir=tmp_path, cache=tmp_path / "c")
    np.testing.assert_array_equal(found.train_labels, arrays[1][:, 0])
    assert found.test_labels.dtype == np.uint8


def test_unit_norm(tmp_path, write_set, idx_bytes):
    arrays = write_set(tmp_path, MNIST_NAMES, packed=False)
    arrays[0][3] = 0
    (tmp_path / MNIST_NAMES[0]).write_bytes(idx_bytes(arrays[0]))
    found = load("mnist", data_dir=tmp_path, normalise="unit-norm", cache=tmp_path / "c")
    norms = np.linalg.norm(found.train_images.astype(np.float64), axis=1)
    assert found.train_images.dtype == np.float32
    assert not found.train_images[3].any()
    np.testing.assert_allclose(np.delete(norms, 3), 1, atol=1e-6)
    # Scaled, not distorted.
    flat = arrays[0][0].ravel() / np.linalg.norm(arrays[0][0].astype(np.float64))
    np.testing.assert_allclose(found.train_images[0], flat, atol=1e-6)


def _write(at, array):
    return lambda folder, idx_bytes: (folder / MNIST_NAMES[at]).write_bytes(idx_bytes(array))


BAD_SETS = {
    "labels fewer": (_write(1, np.zeros(29, np.uint8)), "holds 30 images but .* 29 labels"),
    "test labels more": (_write(3, np.zeros(21, np.uint8)), "holds 20 images but .* 21 labels"),
    "label 10": (_write(1, np.full(30, 10, np.uint8)), "holds the label 10, expected 0 to 9"),
    "no labels": (_write(1, np.zeros(0, np.uint8)), "30 images but .* 0 labels"),
    "no images": (_write(0, np.zeros((0, 28, 28), np.uint8)), "not 28x28"),
    "8x8": (_write(0, np.zeros((30, 8, 8), np.uint8)), "not 28x28"),
    "wide": (_write(2, np.zeros((20, 28, 29), np.uint8)), "not 28x28"),
    "int images": (_write(0, np.zeros((30, 28, 28), np.int32)), "int32 .* not 28x28 images of bytes"),
    "labels as images": (_write(0, np.zeros(30, np.uint8)), "1 dimensions where 3 are expected"),
    "images as labels": (_write(1, np.zeros((30, 28, 28), np.uint8)), "3 dimensions where 1 are expected"),
    "missing": (lambda folder, _: (folder / MNIST_NAMES[2]).unlink(), "holds no t10k-images-idx3-ubyte"),
    "text": (lambda folder, _: (folder / MNIST_NAMES[1]).write_text("no"), "not an idx file"),
}


@pytest.mark.parametrize("kind", BAD_SETS)
def test_refuses_bad_sets(tmp_path, write_set, idx_bytes, kind):
    spoil, cause = BAD_SETS[kind]
    write_set(tmp_path, MNIST_NAMES, packed=False)
    spoil(tmp_path, idx_bytes)
    with pytest.raises(DataError, match=cause) as caught:
        load("mnist", data_dir=tmp_path, cache=tmp_path / "c")
    assert "apes data get mnist" in str(caught.value)
    assert "--data-dir" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_negative_class_in_qmnist(tmp_path, write_set, idx_bytes):
    write_set(tmp_path, QMNIST_NAMES, rows=True, packed=False)
    (tmp_path / QMNIST_NAMES[1]).write_bytes(idx_bytes(np.full((30, 8), -1, np.int32)))
    with pytest.raises(DataError, match="the label -1"):
        load("qmnist", data_dir=tmp_path, cache=tmp_path / "c")
    (tmp_path / QMNIST_NAMES[1]).write_bytes(idx_bytes(np.zeros((30, 0), np.int32)))
    with pytest.raises(DataError, match="no labels"):
        load("qmnist", data_dir=tmp_path, cache=tmp_path / "c")


def test_not_found_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"qmnist was not found in .*qmnist; run `apes data get qmnist`"):
        load("qmnist", cache=tmp_path)
    with pytest.raises(DataError, match="nowhere is not a folder; run `apes data get mnist`"):
        load("mnist", data_dir=tmp_path / "nowhere", cache=tmp_path)


def test_parameters(tmp_path):
    with pytest.raises(ParameterError, match="name must be one of digits, mnist, fashion-mnist, qmnist; got 'minst'"):
        load("minst", cache=tmp_path)
    with pytest.raises(ParameterError, match="normalise must be one of pixels, unit-norm; got 'l2'"):
        load("mnist", normalise="l2", cache=tmp_path)
    with pytest.raises(ParameterError, match="data_dir must be left out: the digits are embedded"):
        load("digits", data_dir=tmp_path, cache=tmp_path)


def _small(**changes):
    rng = np.random.Generator(np.random.Philox(2))
    images = rng.random((12, 6), dtype=np.float32)
    labels = rng.integers(0, 3, 12).astype(np.uint8)
    return data.Dataset(
        **{
            "name": "own",
            "train_images": images[:8],
            "train_labels": labels[:8],
            "test_images": images[8:],
            "test_labels": labels[8:],
            "provenance": "made here",
            "classes": 3,
            **changes,
        }
    )


def _other(array):
    array = array.copy()
    array.flat[-1] += 1
    return array


def test_the_digest_is_of_arrays_and_classes_alone():
    one = _small()
    assert one.digest == _small(name="other", provenance="elsewhere").digest
    # In memory in another order, the same array.
    assert one.digest == _small(train_images=np.asfortranarray(one.train_images)).digest
    assert len(bytes.fromhex(one.digest)) == 32
    assert one.digest is one.digest  # computed once


FIELDS = ("train_images", "train_labels", "test_images", "test_labels")
CHANGES = {
    **{f"a value of {field}": (field, _other) for field in FIELDS},
    "shape": ("train_images", lambda array: array.reshape(4, 12)),
    "type": ("train_labels", lambda array: array.astype(np.int8)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_the_digest_sees_every_change(kind):
    field, change = CHANGES[kind]
    one = _small()
    assert dataclasses.replace(one, **{field: change(getattr(one, field))}).digest != one.digest


def test_the_digest_sees_where_arrays_end_and_the_classes():
    one = _small()
    whole = np.concatenate([one.train_images, one.test_images])
    assert _small(train_images=whole[:7], test_images=whole[7:]).digest != one.digest
    assert _small(classes=4).digest != one.digest
    assert _small(train_images=whole[:0]).digest != one.digest
