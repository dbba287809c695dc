import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apes.data import partition
from apes.errors import ParameterError

SPLITS = ["iid", "label", "dirichlet:0.1", "dirichlet:1", "dirichlet:1e300", "dirichlet:1e-300"]


def _labels(num, seed=3):
    return np.random.Generator(np.random.Philox(seed)).integers(0, 10, num).astype(np.uint8)


@pytest.mark.parametrize("split", SPLITS)
@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_every_image_is_dealt_once_in_even_shares(split, data):
    labels = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=80)), dtype=np.uint8)
    users = data.draw(st.integers(1, len(labels)))
    order, offsets = partition(labels, users, split, data.draw(st.integers(0, 2**70)))
    assert order.dtype == offsets.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(len(labels)))
    assert (offsets[0], offsets[-1], len(offsets)) == (0, len(labels), users + 1)
    share, rest = divmod(len(labels), users)
    np.testing.assert_array_equal(np.diff(offsets), [share + 1] * rest + [share] * (users - rest))


@pytest.mark.parametrize("split", SPLITS)
def test_the_seed_decides(split):
    labels = _labels(500)
    first, again, other = (partition(labels, 50, split, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_label_split_with_equal_classes_is_exact():
    labels = np.tile(np.arange(10, dtype=np.uint8), 60)
    order, offsets = partition(labels, 100, "label", 7)
    users = np.repeat(np.arange(100), np.diff(offsets))
    within = np.arange(600) - offsets[users]
    np.testing.assert_array_equal(labels[order], (users + within) % 10)


@pytest.mark.parametrize("users", [1, 7, 100, 250])
def test_label_split_falls_back_to_the_fullest_class(users):
    labels = np.repeat(np.arange(10), [40, 5, 30, 25, 25, 25, 25, 25, 25, 25]).astype(np.uint8)
    order, offsets = partition(labels, users, "label", 7)
    left = np.bincount(labels, minlength=10)
    for user in range(users):
        for j, image in enumerate(order[offsets[user] : offsets[user + 1]]):
            wanted, got = (user + j) % 10, labels[image]
            assert got == wanted if left[wanted] else left[got] == left.max()
            left[got] -= 1


def _concentration(split, users=1_000, num=20_000):
    """The mean share of each user's commonest class."""
    labels = _labels(num)
    order, offsets = partition(labels, users, split, 11)
    dealt = labels[order]
    return np.mean([np.bincount(dealt[offsets[u] : offsets[u + 1]]).max() / (num // users) for u in range(users)])


def test_dirichlet_is_pure_at_one_end_and_iid_at_the_other():
    shares = [_concentration(f"dirichlet:{alpha}") for alpha in ("1e-9", "0.1", "1", "1e9")]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    # Standard error 0.002 each.
    assert shares[-1] == pytest.approx(_concentration("iid"), abs=0.015)


def test_dirichlet_mixtures_have_the_promised_spread():
    # While no class runs out, a user's count of a class is Dirichlet-multinomial with variance
    # n p (1 - p) (1 + (n - 1) r), where n is the user's share, p = 1/10 and r = 1 / (1 + 10 alpha).
    alpha, users, size = 0.5, 2_000, 10
    labels = np.tile(np.arange(10, dtype=np.uint8), users * size // 10)
    order, offsets = partition(labels, users, f"dirichlet:{alpha}", 5)
    counts = np.stack([np.bincount(labels[order[offsets[u] : offsets[u + 1]]], minlength=10) for u in range(users)])
    correlation = 1 / (1 + 10 * alpha)
    expected = 0.09 * size * (1 + (size - 1) * correlation)
    # 20,000 counts, correlated in tens; the relative standard error is about 2 %, alpha = 1 gives 27 % less.
    assert counts.var() == pytest.approx(expected, rel=0.1)


def test_iid_is_a_permutation_not_the_identity():
    order, _ = partition(_labels(1_000), 10, "iid", 0)
    assert np.abs(np.corrcoef(order, np.arange(1_000))[0, 1]) < 0.16  # 5 standard errors


@pytest.mark.parametrize("split", ["iid", "label", "dirichlet:0.3"])
def test_the_paper_size(split):
    order, offsets = partition(_labels(60_000), 10_000, split, 1)
    assert len(np.unique(order)) == 60_000
    assert set(np.diff(offsets)) == {6}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"users": 0}, r"users must be in \[1, 50\], got 0"),
        ({"users": 51}, r"users must be in \[1, 50\], got 51"),
        ({"users": 2.5}, "users must be a whole number, got 2.5"),
        ({"seed": -1}, r"seed must be in \[0, inf\), got -1"),
        ({"split": "even"}, "split must be iid, label or dirichlet:ALPHA, got 'even'"),
        ({"split": "iid:3"}, "split must be iid, label or dirichlet:ALPHA, got 'iid:3'"),
        ({"split": "dirichlet"}, r"ALPHA .* must be in \(0, inf\), got 'dirichlet'"),
        ({"split": "dirichlet:0"}, r"ALPHA .* must be in \(0, inf\), got 'dirichlet:0'"),
        ({"split": "dirichlet:-1"}, "ALPHA"),
        ({"split": "dirichlet:inf"}, "ALPHA"),
        ({"split": "dirichlet:nan"}, "ALPHA"),
        ({"split": "dirichlet:x"}, "ALPHA"),
        ({"labels": np.zeros(0, np.uint8)}, "labels must be a non-empty list"),
        ({"labels": np.zeros(5)}, "labels must be a non-empty list of whole numbers, got float64"),
        ({"labels": np.full(5, 10)}, r"labels must be in \[0, 9\], got 10"),
        ({"labels": np.full(5, -1)}, r"labels must be in \[0, 9\], got -1"),
    ],
)
def test_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        partition(**{"labels": _labels(50), "users": 5, "split": "iid", "seed": 0, **arguments})
