"""Published bounds: the reference figures, the paper's figures, refusals, shape, and brute force for small n."""

import csv
import itertools
import math
import os
from pathlib import Path

import mpmath
import numpy as np
import pytest
from levels import sampled

from apes.accounting.published import PUBLISHED
from apes.accounting.published.clones import clone_curve, fmt22_closed, fmt22_numeric, pair_divergence
from apes.accounting.published.echoes import eon_closed, eon_delta, eon_numeric, mean_echoes
from apes.accounting.published.uniform import erlingsson19, gddtk21
from apes.accounting.published.user_level import DeltaConvention, advanced_composition, user_apes, user_s_apes
from apes.errors import ParameterError, RegimeError

CHECKOUT = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ.get("APES_REFERENCE_DIR", CHECKOUT.parent / "shared" / "reference")) / "uniform_bounds.csv"
# Name in the reference: name here, and the tolerance we hold ourselves to (the issue asks for 1e-6, 1e-4, 1 %).
METHODS = {
    "erlingsson19_closed": ("erlingsson19", 1e-6),
    "fmt22_closed": ("fmt22_closed", 1e-6),
    "fmt22_numeric": ("fmt22_numeric", 1e-7),
    "bbgn19_hoeffding_generic": ("bbgn19_hoeffding", 1e-6),
    "bbgn19_bennett_generic": ("bbgn19_bennett", 1e-6),
    "gddtk21": ("gddtk21", 2e-4),
}
ROWS = [
    ("erlingsson19_closed", 0.5, 10_000, 1e-6, 0.223015331),
    ("erlingsson19_closed", 0.05, 1_000, 1e-6, None),
    ("erlingsson19_closed", 1.0, 100_000, 1e-6, None),
    ("fmt22_closed", 0.05, 1_000, 1e-6, 0.025168902),
    ("fmt22_closed", 3.0, 10_000, 1e-6, 0.824114181),
    ("fmt22_closed", 2.0, 1_000, 1e-6, None),
    ("fmt22_numeric", 0.05, 1_000, 1e-6, 0.0046369845),
    ("fmt22_numeric", 1.0, 10_000, 1e-6, 0.0530053165),
    ("fmt22_numeric", 3.0, 1_000, 1e-6, 1.2646333),
    pytest.param("fmt22_numeric", 0.05, 1_000_000, 1e-6, 8.57676053e-05, marks=pytest.mark.exhaustive),
    ("bbgn19_hoeffding_generic", 0.05, 1_000, 1e-6, 0.0119512735),
    ("bbgn19_hoeffding_generic", 2.0, 10_000, 1e-6, 1.01708222),
    ("bbgn19_hoeffding_generic", 3.0, 1_000, 1e-6, 3.0),
    ("bbgn19_bennett_generic", 0.25, 1_000, 1e-6, 0.202026291),
    ("bbgn19_bennett_generic", 3.0, 1_000_000, 1e-6, 0.121313984),
    ("gddtk21", 0.05, 1_000, 1e-6, 0.00932300326),
    ("gddtk21", 2.0, 10_000, 1e-6, 0.525425491),
    ("gddtk21", 3.0, 1_000, 1e-6, 3.0),
]
UNIFORM2 = np.linspace(0.05, 1, 10_000)
EVERYWHERE = ["bbgn19_bennett", "bbgn19_hoeffding", "eon_numeric", "fmt22_numeric", "gddtk21"]


def everybody(epsilon0, n):
    return np.full(n, float(epsilon0))


def one_against(epsilon, n=100_000):
    """One user at epsilon, the others at 0.05: the counterexample of docs/published-bounds.md."""
    return np.append(np.full(n - 1, 0.05), float(epsilon))


def check_row(method, epsilon0, n, delta, expected):
    name, tolerance = METHODS[method]
    if expected is None:
        with pytest.raises(RegimeError, match=name):
            PUBLISHED[name](everybody(epsilon0, n), delta)
    else:
        assert PUBLISHED[name](everybody(epsilon0, n), delta) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("method", "epsilon0", "n", "delta", "expected"), ROWS)
def test_inlined_rows_of_the_reference(method, epsilon0, n, delta, expected):
    check_row(method, epsilon0, n, delta, expected)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=pytest.mark.exhaustive) if name in {"fmt22_numeric", "gddtk21"} else name
        for name in METHODS
    ],
)
def test_all_rows_of_the_reference(method):
    if not REFERENCE.exists():
        pytest.skip(f"the reference figures are not at {REFERENCE}")
    with REFERENCE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == method]
    assert len(rows) == 28
    for row in rows:
        expected = float(row["epsilon"]) if row["epsilon"] else None
        check_row(method, float(row["eps0"]), int(row["n"]), float(row["delta"]), expected)


@pytest.mark.parametrize(
    ("epsilon0", "n", "expected"), [(0.05, 100_000, 0.000797175453), (0.1, 100_000, 0.00173065593)]
)
def test_gddtk21_finds_an_order_at_least_as_good_as_the_reference(epsilon0, n, expected):
    assert expected * (1 - 2e-4) < gddtk21(everybody(epsilon0, n), 1e-6) < expected


@pytest.mark.parametrize(
    ("bound", "delta", "expected"),
    [
        (eon_numeric, 1e-8, 0.0571),
        (eon_numeric, 4.62e-9, 0.0591),
        (eon_closed, 1e-8, 0.2051),
        (fmt22_closed, 1e-8, 0.2408),
        (fmt22_numeric, 1e-8, 0.0689),
    ],
)
def test_table_3_uniform2(bound, delta, expected):
    assert round(bound(UNIFORM2, delta), 4) == expected


@pytest.mark.parametrize(
    ("epsilon0", "expected"), [(0.05, 0.001931), (0.5, 0.027238), (1, 0.068880), (2, 0.196624), (3, 0.402275)]
)
def test_fmt22_numeric_of_the_design(epsilon0, expected):
    assert fmt22_numeric(everybody(epsilon0, 10_000), 1e-8) == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize(
    ("epsilon", "numeric", "closed"),
    sampled(
        [
            (1, 0.0125, 0.0520),
            (3, 0.0253, 0.0995),
            (5, 0.0277, 0.1079),
            (8, 0.0281, 0.1093),
            (20, 0.0281, 0.1093),
            (80, 0.0281, 0.1093),
        ],
        keep=2,
    ),
)
def test_one_user_against_many(epsilon, numeric, closed):
    budgets = one_against(epsilon)
    assert round(eon_numeric(budgets, 1e-8), 4) == numeric
    assert round(eon_closed(budgets, 1e-8), 4) == closed


# From the design: exact divergence of the dataset with all others in the centre.
@pytest.mark.parametrize(
    ("epsilon", "truth"), sampled([(5, 0.03003), (8, 0.03951), (20, 0.06407), (80, 0.13249)], keep=1)
)
def test_eon_numeric_is_below_the_truth(epsilon, truth):
    assert eon_numeric(one_against(epsilon), 1e-8) < truth


def double_sum(budgets):
    """P of Theorem 4 term by term, user 1 the first of the largest budgets."""
    first = int(np.argmax(budgets))
    total = 0.0
    for (i, a), b in itertools.product(enumerate(budgets), budgets):
        if i != first:
            total += a / b * (1 - math.exp(-b)) / (1 - math.exp(-a)) * math.exp(-max(a, b))
    return total / len(budgets)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
@pytest.mark.parametrize("spread", [0.5, 3.0, 30.0])
def test_mean_echoes_is_the_double_sum(n, spread):
    budgets = np.random.default_rng(n).uniform(0.01, spread, n)
    assert mean_echoes(budgets) == pytest.approx(double_sum(budgets), rel=1e-12)


def test_mean_echoes_with_ties_and_in_any_order():
    budgets = np.array([1.0, 0.2, 1.0, 0.2, 3.0, 3.0])
    assert mean_echoes(budgets) == pytest.approx(double_sum(budgets), rel=1e-13)
    assert mean_echoes(budgets[::-1]) == mean_echoes(budgets)


def test_the_printed_law_of_echoes_is_not_what_the_tables_show():
    """Sum of n (n - 1) Bernoulli variables: within 1/n of a Poisson law, 0.0572 instead of 0.0571."""
    n, mean = UNIFORM2.size, mean_echoes(UNIFORM2)
    clones = np.arange(4600, 6000, dtype=np.float64)
    log_weights = clones * math.log(mean) - mean - np.array([math.lgamma(c + 1) for c in clones])
    weights = np.exp(log_weights)
    assert weights.sum() == pytest.approx(1, abs=1e-9)

    def printed(t):
        return float(weights @ pair_divergence(clones, t, 1.0))

    ours = clone_curve(n - 1, mean / (n - 1), 1.0, 1e-8)
    assert printed(0.05716) > 1e-8 > printed(0.05717)
    assert ours(0.05714) > 1e-8 > ours(0.05715)


@pytest.mark.parametrize("epsilon0", [0.05, 0.7, 2.0])
@pytest.mark.parametrize("n", [100, 10_000])
def test_equal_budgets_reproduce_the_uniform_bound(epsilon0, n):
    budgets = everybody(epsilon0, n)
    assert mean_echoes(budgets) == pytest.approx((n - 1) * math.exp(-epsilon0), rel=1e-12)
    assert eon_numeric(budgets, 1e-7) == pytest.approx(fmt22_numeric(budgets, 1e-7), rel=1e-9)


def test_equal_budgets_reproduce_the_closed_form_up_to_the_missing_user():
    """EoN counts the n - 1 others, Theorem 3.1 of FMT'22 all n."""
    n, budgets = 10_000, everybody(1, 10_000)
    ratio = math.expm1(eon_closed(budgets, 1e-8)) / math.expm1(fmt22_closed(budgets, 1e-8))
    assert 1 < ratio < n / (n - 1)


def brute_divergence(n, epsilon0, t):
    """Hockey-stick divergence of the clone pair by listing every outcome of C, A and D."""
    p, q = math.exp(-epsilon0), 1 / (1 + math.exp(-epsilon0))
    first, second = {}, {}
    for c in range(n):
        for a in range(c + 1):
            mass = math.comb(n - 1, c) * p**c * (1 - p) ** (n - 1 - c) * math.comb(c, a) / 2**c
            for d, chance in ((1, q), (0, 1 - q)):
                up, down = (a + d, c - a + 1 - d), (a + 1 - d, c - a + d)
                first[up] = first.get(up, 0.0) + mass * chance
                second[down] = second.get(down, 0.0) + mass * chance
    return sum(max(0.0, first[z] - math.exp(t) * second.get(z, 0.0)) for z in first)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("epsilon0", [0.1, 1.0, 4.0])
def test_clone_pair_by_brute_force(n, epsilon0):
    curve = clone_curve(n - 1, math.exp(-epsilon0), epsilon0, 1e-3)
    for t in np.linspace(0, epsilon0, 13):
        exact = brute_divergence(n, epsilon0, t)
        assert exact - 1e-15 <= curve(t) <= exact * (1 + 1e-8) + 1e-11
    epsilon = fmt22_numeric(everybody(epsilon0, n), 1e-3)
    assert brute_divergence(n, epsilon0, epsilon) <= 1e-3 * (1 + 1e-12)
    assert brute_divergence(n, epsilon0, epsilon * (1 - 1e-6)) > 1e-3


@pytest.mark.parametrize(
    ("clones", "t", "epsilon0"), sampled([(4_000, 0.1, 2), (367_000, 0.006, 3.0), (1_000_000, 0.005, 1.0)], keep=1)
)
def test_rounding_of_the_pair_stays_within_its_allowance(clones, t, epsilon0):
    value = float(pair_divergence(np.array([float(clones)]), t, epsilon0)[0])
    with mpmath.workdps(40):
        t, e0 = mpmath.mpf(t), mpmath.mpf(epsilon0)
        q = 1 / (1 + mpmath.exp(-e0))
        share = (mpmath.exp(-t) - mpmath.exp(-e0)) / ((1 - mpmath.exp(-e0)) * (1 + mpmath.exp(-t)))
        m = int(mpmath.ceil(share * (clones + 1))) - 1
        term = mpmath.binomial(clones, m) / mpmath.mpf(2) ** clones
        exact, pmf = mpmath.mpf(0), term
        for y in range(m, max(m - 20_000, 0), -1):  # b(y - 1) from b(y), down to nothing
            below = pmf * y / (clones + 1 - y)
            exact += q * pmf + (1 - q) * below - mpmath.exp(t) * ((1 - q) * pmf + q * below)
            pmf = below
    assert exact <= value <= exact * (1 + 1e-7)


@pytest.mark.parametrize("name", PUBLISHED)
def test_epsilon_falls_with_n_and_delta_and_rises_with_the_budget(name):
    bound = PUBLISHED[name]
    base = bound(everybody(0.4, 5_000), 1e-6)
    assert 0 < base <= 0.4
    assert bound(everybody(0.4, 20_000), 1e-6) < base
    assert bound(everybody(0.4, 5_000), 1e-4) < base
    assert bound(everybody(0.45, 5_000), 1e-6) > base
    assert bound(everybody(0.4, 5_000), 1e-6) == base


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - {"eon_closed", "eon_numeric"}))
def test_bounds_for_equal_budgets_take_the_largest(name):
    mixed = np.linspace(0.05, 0.5, 5_000)
    assert PUBLISHED[name](mixed, 1e-6) == PUBLISHED[name](everybody(0.5, 5_000), 1e-6)


@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("epsilon0", [80.0, 700.0, 5_000.0])
def test_large_budgets_neither_overflow_nor_gain(name, epsilon0):
    assert PUBLISHED[name](everybody(epsilon0, 1_000), 1e-8) == pytest.approx(epsilon0, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "epsilon0"), sampled(list(itertools.product(EVERYWHERE, [1e-3, 1e-9, 1e-20])), keep=8)
)
def test_small_budgets(name, epsilon0):
    assert 0 <= PUBLISHED[name](everybody(epsilon0, 1_000), 1e-8) <= epsilon0


@pytest.mark.parametrize("name", EVERYWHERE)
def test_one_user_alone_hides_behind_nobody(name):
    # (epsilon, delta)-DP of binary randomised response: delta = (exp(1) - exp(epsilon)) / (exp(1) + 1).
    expected = math.log(math.e - 1e-8 * (math.e + 1)) if name in {"eon_numeric", "fmt22_numeric"} else 1.0
    assert PUBLISHED[name](np.array([1.0]), 1e-8) == pytest.approx(expected, abs=1e-11)


def test_a_delta_above_the_total_variation_needs_no_epsilon():
    assert fmt22_numeric(everybody(0.1, 1_000), 0.5) == 0.0


@pytest.mark.parametrize(
    ("bound", "budgets", "delta", "message"),
    [
        (
            fmt22_closed,
            everybody(2, 1_000),
            1e-6,
            r"epsilon0 <= log\(n / \(16 log\(2/delta\)\)\) = 1\.46.*got 2 at n = 1",
        ),
        (eon_closed, everybody(2, 1_000), 1e-6, r"P >= 16 log\(4/delta\) = 243.*got P = 135"),
        (eon_closed, np.array([1.0]), 1e-6, "got P = 0"),
        (erlingsson19, everybody(0.6, 10_000), 1e-6, r"epsilon0 <= 0\.5, got 0\.6"),
        (erlingsson19, everybody(0.1, 999), 1e-6, "n >= 1000, got 999"),
        (erlingsson19, everybody(0.1, 10_000), 0.02, r"delta <= 0\.01, got 0\.02"),
        (erlingsson19, everybody(0.1, 1_000), 1e-6, r"epsilon <= epsilon0, got 0\.14.* > 0\.1"),
    ],
)
def test_refusals_name_the_condition_and_the_numbers(bound, budgets, delta, message):
    with pytest.raises(RegimeError, match=message):
        bound(budgets, delta)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("budgets", [[], [0.0], [-1.0], [math.nan], [math.inf], [[0.1, 0.2]], ["a"]])
def test_bad_budgets(name, budgets):
    with pytest.raises(ParameterError, match="budgets"):
        PUBLISHED[name](budgets, 1e-6)


@pytest.mark.parametrize("bound", [*PUBLISHED.values(), eon_delta])
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, math.nan, math.inf, "1e-6", None])
def test_bad_delta(bound, delta):
    with pytest.raises(ParameterError, match="delta"):
        bound(everybody(0.1, 2_000), delta)


def test_eon_delta():
    assert eon_delta(UNIFORM2, 1e-8) == pytest.approx(4.62e-9, rel=1e-3)
    assert 7850 * eon_delta(UNIFORM2, 1e-8) == pytest.approx(3.6e-5, rel=0.01)


# Table 3 prints 57.6, 25.6, 40.1 and 76.9; what the exact central epsilon gives under the convention that fits.
def test_user_level_figures_of_table_3():
    epsilon_c, delta_c = eon_numeric(UNIFORM2, 1e-8), eon_delta(UNIFORM2, 1e-8)
    apes = user_apes(epsilon_c, delta_c, 7850, DeltaConvention.COORDINATE)
    assert apes.epsilon == pytest.approx(57.6, rel=0.003)
    assert apes.delta == pytest.approx(7851 * delta_c)
    s_apes = user_s_apes(epsilon_c, delta_c, 1570, DeltaConvention.COMPOSED)
    assert s_apes.epsilon == pytest.approx(25.6, rel=0.003)
    assert s_apes.delta == pytest.approx(2 * 3140 * delta_c)
    assert user_apes(0.05, delta_c, 7850, DeltaConvention.STATED).epsilon == pytest.approx(40.1, rel=0.002)
    uni_s = user_apes(fmt22_numeric(UNIFORM2, 1e-8), delta_c, 7850, DeltaConvention.COORDINATE)
    assert 76.2 < uni_s.epsilon < 76.6  # the paper: 76.9


@pytest.mark.parametrize(
    ("figure", "wrong"),
    [(57.6, DeltaConvention.COMPOSED), (57.6, DeltaConvention.STATED), (40.1, DeltaConvention.COORDINATE)],
)
def test_other_conventions_do_not_give_the_figure(figure, wrong):
    epsilon_c = 0.05 if figure == 40.1 else eon_numeric(UNIFORM2, 1e-8)
    assert abs(user_apes(epsilon_c, eon_delta(UNIFORM2, 1e-8), 7850, wrong).epsilon - figure) > 5


def test_proposition_1_is_advanced_composition_over_2b():
    direct = 0.05 * math.sqrt(4 * 30 * math.log(1 / 3.6e-5)) + 60 * 0.05 * (math.exp(0.05) - 1)
    assert user_s_apes(0.05, 1e-9, 30, DeltaConvention.STATED).epsilon == pytest.approx(direct, rel=1e-12)
    assert advanced_composition(0.05, 3.6e-5, 60) == pytest.approx(direct, rel=1e-12)


def test_advanced_composition_does_not_overflow():
    assert advanced_composition(1e3, 1e-6, 10) == math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta_prime", "count"),
    [(0, 1e-6, 1), (math.nan, 1e-6, 1), (0.1, 0, 1), (0.1, 1, 1), (0.1, math.nan, 1), (0.1, 1e-6, 0), (0.1, 1e-6, 1.5)],
)
def test_bad_compositions(epsilon, delta_prime, count):
    with pytest.raises(ParameterError):
        advanced_composition(epsilon, delta_prime, count)


@pytest.mark.parametrize("compose", [user_apes, user_s_apes])
def test_bad_user_levels(compose):
    with pytest.raises(ParameterError, match="delta_c"):
        compose(0.1, 0.0, 10, DeltaConvention.STATED)
    with pytest.raises(ParameterError, match="convention"):
        compose(0.1, 1e-9, 10, "composed")
    with pytest.raises(ParameterError):
        compose(0.1, 1e-9, 0, DeltaConvention.STATED)
    with pytest.raises(RegimeError, match="add up"):
        compose(0.1, 0.1, 10, DeltaConvention.COORDINATE)


def test_the_table_of_bounds_is_sorted_and_says_what_it_is():
    assert list(PUBLISHED) == sorted(PUBLISHED)
    for name, bound in PUBLISHED.items():
        assert bound.__name__ == name
        assert "published: not a guarantee for different budgets (docs/published-bounds.md)" in bound.__doc__
        assert "Condition:" in bound.__doc__
    assert (CHECKOUT / "docs" / "published-bounds.md").exists()
