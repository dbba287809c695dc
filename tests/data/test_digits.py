import hashlib
import logging

import numpy as np
import pytest

from apes.data import digits, load
from apes.data.digits import Pixels, load_digits, make_digits, originals, split_originals


@pytest.fixture(scope="module")
def pixels(digits_cache):
    """The images at full size."""
    return load_digits(digits_cache)


@pytest.fixture(scope="module")
def few():
    """600 + 300 images in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "NUM_TRAIN", 600)
        patch.setattr(digits, "NUM_TEST", 300)
        yield make_digits(600, 300)


@pytest.fixture
def few_cached(few, tmp_path):
    folder = tmp_path / "first"
    load_digits(folder)
    return folder


def _hash(pixels):
    return hashlib.sha256(b"".join(array.tobytes() for array in pixels)).hexdigest()


@pytest.mark.service
def test_sizes_and_types(pixels):
    assert [array.shape for array in pixels] == [(60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)]
    assert all(array.dtype == np.uint8 for array in pixels)
    assert pixels.train_images.min() == 0
    assert pixels.train_images.max() == 255


@pytest.mark.service
def test_classes_are_balanced(pixels):
    for labels in (pixels.train_labels, pixels.test_labels):
        shares = np.bincount(labels, minlength=10) / len(labels)
        # The originals' own shares are 0.097 to 0.102.
        assert np.all(np.abs(shares - 0.1) < 0.005)


def test_the_same_images_every_time():
    first, second = make_digits(600, 300), make_digits(600, 300)
    assert _hash(first) == _hash(second)


@pytest.mark.service
def test_images_differ_from_one_another(pixels):
    assert len({image.tobytes() for image in pixels.train_images}) == 60_000


def test_no_original_is_in_both_parts():
    images, labels = originals()
    train, test = split_originals(labels)
    assert (len(train), len(test)) == (1_437, 360)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(1_797))
    # Nor is an equal image: the bundled digits have no doubles.
    assert not {images[i].tobytes() for i in train} & {images[i].tobytes() for i in test}
    assert set(np.bincount(labels[test])) <= {35, 36, 37}


@pytest.mark.service
def test_digits_stay_within_the_frame(pixels):
    # 20 pixels scaled by at most 1.1, turned and shifted: the ink stays off the outermost ring.
    ring = np.ones((28, 28), bool)
    ring[1:-1, 1:-1] = False
    ink = pixels.train_images[:5_000].astype(np.float64)
    assert ink[:, ring].sum() < 1e-3 * ink.sum()


@pytest.mark.service
def test_a_linear_classifier_learns_them(pixels):
    def flat(images):
        return np.c_[images.reshape(len(images), -1) / 255.0, np.ones(len(images))]

    train, test = flat(pixels.train_images[:6_000]), flat(pixels.test_images)
    wanted = np.eye(10)[pixels.train_labels[:6_000]]
    weights = np.linalg.solve(train.T @ train + 10 * np.eye(785), train.T @ wanted)
    accuracy = np.mean((test @ weights).argmax(axis=1) == pixels.test_labels)
    assert accuracy > 0.75


@pytest.mark.service
def test_second_load_reads_the_cache(digits_cache, pixels):
    calls = []
    assert _hash(load_digits(digits_cache, lambda *call: calls.append(call))) == _hash(pixels)
    assert calls == []


def test_progress_counts_the_images():
    calls = []
    make_digits(600, 300, lambda *call: calls.append(call))
    assert calls[-1] == (900, 900)
    assert calls == sorted(calls)


def _cut(path):
    path.write_bytes(path.read_bytes()[:100_000])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[200_000] ^= 0xFF
    path.write_bytes(content)


def _other_version(path):
    np.savez(path, version=np.array(0), **Pixels(*[np.zeros(3, np.uint8)] * 4)._asdict())


def _other_shape(path):
    np.savez(path, version=np.array(1), **Pixels(*[np.zeros(3, np.uint8)] * 4)._asdict())


def _other_format(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def test_what_was_made_is_read_again(few, few_cached):
    calls = []
    assert _hash(load_digits(few_cached, lambda *call: calls.append(call))) == _hash(few)
    assert calls == []


@pytest.mark.parametrize(
    "damage",
    [_cut, _flip, _other_version, _other_shape, _other_format, lambda path: path.write_bytes(b"")],
    ids=["cut", "flip", "version", "shape", "format", "empty"],
)
def test_a_cache_that_cannot_be_used_is_made_again(tmp_path, few_cached, few, caplog, damage):
    path = tmp_path / "data" / "digits" / "digits.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes((few_cached / "data" / "digits" / "digits.npz").read_bytes())
    damage(path)
    with caplog.at_level(logging.WARNING):
        assert _hash(load_digits(tmp_path)) == _hash(few)
    assert "made again" in caplog.text
    caplog.clear()
    assert _hash(load_digits(tmp_path)) == _hash(few)
    assert caplog.text == ""
    assert list(path.parent.iterdir()) == [path]


def test_an_unwritable_cache_does_not_stop_the_run(tmp_path, few, caplog):
    (tmp_path / "file").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        found = load("digits", cache=tmp_path / "file" / "cache")
    assert "not kept" in caplog.text
    np.testing.assert_array_equal(found.test_labels, few.test_labels)
