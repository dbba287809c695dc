"""Local figures: never below the exact loss, which is enumerated over all inputs, choices and outputs."""

import functools
import itertools
import math

import numpy as np
import pytest
from levels import sampled
from scipy.integrate import quad

from apes import ClipLaplace, Exposure, ParameterError
from apes.accounting.account import local_figures
from apes.accounting.local import local_user_epsilon, unchosen_epsilon
from apes.mathematics.levels import level_probabilities
from apes.mathematics.thresholds import acceptance_thresholds


def sizes_of(reports, levels):
    return tuple(abs(2 * k - (levels - 1)) for k in reports)


def choices(sizes, b):
    """All sets that top-b may keep: whatever is larger than the b-th largest, filled up with some that equal it."""
    smallest = sorted(sizes, reverse=True)[b - 1]
    sure = [i for i, size in enumerate(sizes) if size > smallest]
    tied = [i for i, size in enumerate(sizes) if size == smallest]
    return [frozenset([*sure, *more]) for more in itertools.combinations(tied, b - len(sure))]


def at_random(sizes, b):
    return [(kept, 1 / len(choices(sizes, b))) for kept in choices(sizes, b)]


def lowest_place_first(sizes, b):
    return [(choices(sizes, b)[0], 1.0)]


def by_a_table(seed):
    """Break ties by any function of all the sizes, as a selection algorithm may."""

    def rule(sizes, b):
        options = choices(sizes, b)
        return [(options[np.random.default_rng([seed, *sizes]).integers(len(options))], 1.0)]

    return rule


RULES = {"random": at_random, "place": lowest_place_first} | {f"table{seed}": by_a_table(seed) for seed in range(4)}


def product_law(laws):
    return functools.reduce(np.kron, laws)


def exact_loss(budget, dimensions, b, levels, rule, table=None):
    """Largest log ratio over all outputs and all pairs of inputs; the padding is a perturbed zero."""
    table = level_probabilities(np.array([budget]), levels)[0] if table is None else table
    padding = (table[(levels - 1) // 2] + table[levels // 2]) / 2
    outputs = []
    for reports in itertools.product(range(levels), repeat=dimensions):
        law = 0.0
        for kept, chance in rule(sizes_of(reports, levels), b):
            law = law + chance * product_law(
                [np.eye(levels)[k] if i in kept else padding for i, k in enumerate(reports)]
            )
        outputs.append(law)
    given_input = product_law([table] * dimensions) @ np.array(outputs)
    return math.log((given_input.max(axis=0) / given_input.min(axis=0)).max())


SMALL = [(2, 3, 1), (2, 4, 2), (3, 2, 1), (3, 3, 1), (3, 3, 2), (3, 4, 2), (4, 3, 1), (4, 3, 2), (5, 3, 1), (8, 2, 1)]


@pytest.mark.parametrize(
    ("levels", "dimensions", "b", "rule"),
    sampled([(*small, rule) for small, rule in itertools.product(SMALL, RULES)], keep=12),
)
def test_never_below_the_exact_loss(levels, dimensions, b, rule):
    for budget in (0.05, 1.0, 3.0, 6.0):
        bound = local_user_epsilon(budget, dimensions, b, levels)
        assert exact_loss(budget, dimensions, b, levels, RULES[rule]) <= bound <= dimensions * budget * (1 + 1e-14)


@pytest.mark.parametrize(
    ("levels", "dimensions", "b", "budget", "rule"),
    [
        (2, 3, 1, 1.0, "random"),  # all sizes are equal: the choice says nothing, b e is exact
        (4, 3, 2, 0.1, "random"),
        (3, 3, 1, 6.0, "place"),
        (4, 3, 1, 6.0, "place"),
    ],
)
def test_ten_per_cent_less_would_be_wrong(levels, dimensions, b, budget, rule):
    bound = local_user_epsilon(budget, dimensions, b, levels)
    assert 0.9 * bound < exact_loss(budget, dimensions, b, levels, RULES[rule]) <= bound


@pytest.mark.parametrize(("levels", "dimensions"), [(3, 3), (4, 3)])
def test_nearly_reached_by_the_worst_way_of_breaking_ties(levels, dimensions):
    """Over every function of the sizes: 72 of them for 4 levels, 3 coordinates, 1 kept."""
    budget = 3.0
    vectors = sorted({sizes_of(reports, levels) for reports in itertools.product(range(levels), repeat=dimensions)})
    worst = 0.0
    for chosen in itertools.product(*(choices(sizes, 1) for sizes in vectors)):
        fixed = dict(zip(vectors, chosen, strict=True))
        rule = lambda sizes, b, fixed=fixed: [(fixed[sizes], 1.0)]  # noqa: E731 one line per rule
        worst = max(worst, exact_loss(budget, dimensions, 1, levels, rule))
    assert 0.95 <= worst / local_user_epsilon(budget, dimensions, 1, levels) <= 1


def test_the_continuous_figure_does_not_cover_a_coarse_grid():
    exact = exact_loss(3.0, 3, 1, 3, lowest_place_first)
    assert exact == pytest.approx(5.100, abs=5e-4)
    assert local_user_epsilon(3.0, 3, 1, None) == pytest.approx(5.017, abs=5e-4)
    assert exact <= local_user_epsilon(3.0, 3, 1, 3)


@pytest.mark.parametrize("budget", [1e-9, 0.05, 1.0, 8.0, 43.0, 46.0])
@pytest.mark.parametrize(("levels", "dimensions", "b"), [(3, 3, 1), (4, 3, 1)])
def test_covers_the_integers_that_are_drawn_from(budget, levels, dimensions, b):
    counts = [int(threshold) + 1 for threshold in acceptance_thresholds(np.array([budget]), levels)[0]]
    rows = [[counts[abs(k - j)] for k in range(levels)] for j in range(levels)]
    table = np.array([[count / sum(row) for count in row] for row in rows])
    for rule in RULES.values():
        exact = exact_loss(budget, dimensions, b, levels, rule, table)
        assert exact <= local_user_epsilon(budget, dimensions, b, levels) + 1e-14


@pytest.mark.parametrize("budget", [0.01, 1.0, 3.0, 20.0])
def test_continuous_figure_against_integrals(budget):
    """Among intervals about the centre, the one that shrinks to it tells most, at the centre against an end."""
    half_widths = np.array([1e-6, 0.01, 0.1, 0.3, 0.49])
    laws = [ClipLaplace(location, budget, 1.0) for location in np.linspace(-1, 1, 41)]
    masses = np.array([[float(law.cdf(2 * w) - law.cdf(-2 * w)) for w in half_widths] for law in laws])
    losses = np.log(masses.max(axis=0) / masses.min(axis=0))
    bound = unchosen_epsilon(budget, None)
    assert (losses <= bound).all()
    assert losses[0] == pytest.approx(bound, rel=1e-4)
    assert masses.argmax(axis=0).tolist() == [20] * 5
    by_hand = (
        quad(lambda z: float(laws[20].pdf(z)), -0.02, 0.02)[0] / quad(lambda z: float(laws[0].pdf(z)), -0.02, 0.02)[0]
    )
    assert math.log(by_hand) == pytest.approx(losses[1], rel=1e-6)


def test_golden_values():
    assert unchosen_epsilon(1.0, 256) == pytest.approx(0.28019, abs=5e-6)
    assert local_user_epsilon(1.0, 7850) == pytest.approx(7850)
    assert round(local_user_epsilon(1.0, 7850, 1570, None)) == 3334
    # Reports all near 0 force d log((1 + exp(e/2)) / 2), more than the b e that is claimed for top-b.
    forced = 7850 * unchosen_epsilon(1.0, None)
    assert round(forced) == 2205
    assert 1570 < forced < local_user_epsilon(1.0, 7850, 1570, 256) < 7850


def test_figures_of_an_account():
    figures = local_figures(Exposure([1.0], 7850), 1.0, 1e-5)
    assert figures == {
        "dimension": 1.0,
        "user": local_user_epsilon(1.0, 7850),
        "user_top_b": local_user_epsilon(1.0, 7850, 1570),
    }
    assert local_figures(Exposure([1.0], 784, dimensions=7850, sparsifier="random-b"), 1.0, 1e-5) == figures | {
        "user": local_user_epsilon(1.0, 784)
    }
    assert local_figures(Exposure([0.5], 1, None), 0.5, 1e-5)["user_top_b"] == local_user_epsilon(
        0.5, 1
    )  # at least one is kept


@pytest.mark.parametrize("levels", [2, 3, 7, 8, 255, 256, None])
def test_between_b_and_d_budgets_and_growing(levels):
    budgets = np.geomspace(1e-6, 1000, 60)
    for kept in (1, 7, 49, 50):
        figures = np.array([local_user_epsilon(float(e), 50, kept, levels) for e in budgets])
        assert (figures >= kept * budgets).all()
        assert (figures <= 50 * budgets * (1 + 1e-14)).all()
        assert (np.diff(figures) > 0).all()
    more = [local_user_epsilon(1.0, 50, kept, levels) for kept in range(1, 51)]
    assert (np.diff(more) > 0).all()
    assert more[-1] == local_user_epsilon(1.0, 50, None, levels) >= 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 3), r"^budget must be in \(0, inf\), got 0.0$"),
        ((math.nan, 3), r"^budget must be in \(0, inf\), got nan$"),
        ((1.0, 0), r"^dimensions must be in \[1, inf\), got 0$"),
        ((1.0, 2.5), r"^dimensions must be a whole number, got 2.5$"),
        ((1.0, 3, 0), r"^kept must be in \[1, 3\], got 0$"),
        ((1.0, 3, 4), r"^kept must be in \[1, 3\], got 4$"),
        ((1.0, 3, 1, 1), r"^levels must be in \[2, 256\], got 1$"),
        ((1.0, 3, 1, 257), r"^levels must be in \[2, 256\], got 257$"),
    ],
    ids=str,
)
def test_invalid_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        local_user_epsilon(*arguments)
