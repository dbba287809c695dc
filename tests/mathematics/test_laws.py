"""Contract of every law, against its definition: exact where possible, statistical only for rvs.

The oracle works at 80 digits from the unnormalised density exp(-|z - g| / lam) and its primitives,
without any of the regroupings in the code under test.
"""

from dataclasses import FrozenInstanceError, replace
from itertools import product

import mpmath
import numpy as np
import pytest
from levels import sampled

from apes.errors import ParameterError
from apes.mathematics.laws import ClipLaplace, Laplace

mp = mpmath.mp.clone()
mp.dps = 80

# About ten times the worst error measured on the grid, and a thousandth of what the design asks for.
RTOL = 1e-12
CLIPS = (0.1, 3.0)
EPSILONS = np.array([1e-9, 1e-6, 1e-3, 0.05, 0.5, 1, 3, 8, 20, 50])
LOCATIONS = np.array([-1, -0.999, -0.5, -1e-6, 0, 1e-3, 1 / 3, 1])  # in units of clip
QUANTILES = np.array([1e-300, 1e-12, 1e-3, 0.2, 0.5, 0.8, 1 - 1e-9])


def name(law):
    bound = f", bound {law.bound:g}" if hasattr(law, "bound") else ""
    epsilon = f"{float(law.epsilon):g}" if np.ndim(law.epsilon) == 0 else "grid"
    location = f"{float(law.location):g}" if np.ndim(law.location) == 0 else "grid"
    return f"{type(law).__name__}({location}, {epsilon}, {law.clip:g}{bound})"


def grids():
    """One law per clip and bound, broadcast over all locations (rows) and budgets (columns)."""
    for clip in CLIPS:
        location = clip * LOCATIONS[:, None]
        yield Laplace(location, EPSILONS, clip)
        for factor in (1.0, 1.5, 10.0):
            yield ClipLaplace(location, EPSILONS, clip, factor * clip)


# Adding a law here adds all of its contract tests.
LAWS = [
    ClipLaplace(0.05, 1e-9, 0.1),
    ClipLaplace(-0.1, 1e-6, 0.1),
    ClipLaplace(0.1, 1e-3, 0.1, 1.0),
    ClipLaplace(0.0, 0.05, 3.0),
    ClipLaplace(-1.0, 0.5, 3.0, 4.5),
    ClipLaplace(0.1, 1.0, 0.1),
    ClipLaplace(3.0, 3.0, 3.0, 30.0),
    ClipLaplace(-0.0999, 8.0, 0.1),
    ClipLaplace(1e-4, 20.0, 0.1, 0.15),
    ClipLaplace(-3.0, 50.0, 3.0),
    Laplace(0.05, 1e-9, 0.1),
    Laplace(-0.1, 0.5, 0.1),
    Laplace(3.0, 50.0, 3.0),
]
every_law = pytest.mark.parametrize("law", LAWS, ids=name)
every_grid = pytest.mark.parametrize("grid", sampled(list(grids()), keep=3), ids=name)


class Exact:
    """The definition at 80 digits. An unbounded support is cut at 1000 scales: exp(-1000) = 1e-434."""

    def __init__(self, law):
        self.g, self.lam = mp.mpf(float(law.location)), 2 * mp.mpf(law.clip) / mp.mpf(float(law.epsilon))
        self.high = mp.mpf(law.bound) if hasattr(law, "bound") else 1000 * self.lam + abs(self.g)
        self.low = -self.high
        self.mass = self.integral(0, self.high)

    def integral(self, power, upper):
        """Integrate (z - g)^power exp(-|z - g| / lam) over [low, upper]."""
        upper = min(max(upper, self.low), self.high)
        left = self.primitive(power, self.g - self.low) - self.primitive(power, max(self.g - upper, 0))
        right = self.primitive(power, max(upper - self.g, 0)) - self.primitive(power, mp.mpf(0))
        return (-1) ** power * left + right

    def primitive(self, power, y):
        lam = self.lam
        polynomial = (lam, lam * y + lam**2, lam * y**2 + 2 * lam**2 * y + 2 * lam**3)[power]
        return -polynomial * mp.exp(-y / lam)

    def density(self, z):
        return mp.exp(-abs(z - self.g) / self.lam)

    def logpdf(self, z):
        return mp.log(self.density(mp.mpf(z)) / self.mass)

    def cdf(self, z):
        return self.integral(0, mp.mpf(z)) / self.mass

    def mean(self):
        return self.g + self.integral(1, self.high) / self.mass

    def var(self):
        return self.integral(2, self.high) / self.mass - (self.integral(1, self.high) / self.mass) ** 2


def cells(grid):
    """Yield each cell's index and oracle."""
    for index in np.ndindex(grid.shape):
        row, column = index
        location, epsilon = grid.location[row, 0], grid.epsilon[column]
        yield index, Exact(replace(grid, location=location, epsilon=epsilon))


def relative_error(value, exact):
    if exact == 0:
        return 0.0 if value == 0 else np.inf
    return float(abs(mp.mpf(float(value)) / exact - 1))


def points(grid):
    """Outputs in the support of each cell: both ends or far tails, g itself, and about one scale off."""
    low, high = grid.support()
    if np.isinf(high):
        low, high = grid.location - 600 * grid.scale, grid.location + 30 * grid.scale
    fractions = (0, 1e-12, 0.005, 0.25, 0.65, 1)
    spread = [np.broadcast_to(low + f * (high - low), grid.shape) for f in fractions]
    near = [grid.location + steps * grid.scale for steps in (-1, -1e-9, 0, 0.1)]
    return np.clip(np.stack(np.broadcast_arrays(*spread, *near)), low, high)


def test_oracle_agrees_with_quadrature_of_the_density():
    for epsilon, bound in product((0.05, 1.0, 8.0), (0.1, 0.15)):
        exact = Exact(ClipLaplace(0.03, epsilon, 0.1, bound))
        pieces = [exact.low, exact.g, exact.high]
        mass = mp.quad(exact.density, pieces)
        mean = mp.quad(lambda z: z * exact.density(z), pieces) / mass  # noqa: B023 - called at once
        var = mp.quad(lambda z: (z - mean) ** 2 * exact.density(z), pieces) / mass  # noqa: B023
        assert relative_error(mp.quad(exact.density, [exact.low, -0.02]) / mass, exact.cdf(-0.02)) < 1e-15
        assert relative_error(mean, exact.mean()) < 1e-15
        assert relative_error(var, exact.var()) < 1e-15


@every_grid
def test_density_and_cdf_match_the_definition(grid):
    z = points(grid)
    pdf, logpdf, cdf = grid.pdf(z), grid.logpdf(z), grid.cdf(z)
    for index, exact in cells(grid):
        for k in range(len(z)):
            at = (k, *index)
            reference = exact.logpdf(z[at])
            assert relative_error(pdf[at], mp.exp(reference)) < RTOL
            assert abs(logpdf[at] - reference) < RTOL * max(1, abs(reference))
            assert relative_error(cdf[at], exact.cdf(z[at])) < RTOL


@every_grid
def test_ppf_matches_the_definition(grid):
    z = grid.ppf(QUANTILES[:, None, None])
    for index, exact in cells(grid):
        for k, q in enumerate(QUANTILES):
            value = mp.mpf(float(z[(k, *index)]))
            # From the lower end (from g, if there is none), plus one rounding of the number itself,
            # which near -bound is all that a float64 can hold. The oracle need not be inverted:
            # it increases, so it has to pass q between the two sides of the tolerance.
            origin = exact.low if hasattr(grid, "bound") else exact.g
            slack = RTOL * abs(value - origin) + float(np.spacing(max(abs(float(value)), grid.clip)))
            assert exact.cdf(value - slack) <= q <= exact.cdf(value + slack)


@every_grid
def test_ppf_never_leaves_the_support(grid):
    wide = replace(grid, epsilon=np.geomspace(1e-9, 1e18, 300))
    low, high = wide.support()
    assert (wide.ppf(0.0) == low).all()
    assert (wide.ppf(1.0) == high).all()
    near = np.arange(1, 41)[:, None, None] * 2.0**-53
    for q in (near, 0.5 + near, 1 - near):
        z = wide.ppf(q)
        assert ((low <= z) & (z <= high)).all()


@every_grid
def test_moments_match_the_definition(grid):
    mean, var = grid.mean(), grid.var()
    for index, exact in cells(grid):
        assert relative_error(mean[index], exact.mean()) < RTOL
        assert relative_error(var[index], exact.var()) < RTOL


@pytest.mark.parametrize("epsilon", [1e3, 1e4, 1e6])
def test_large_budgets_do_not_overflow(epsilon):
    for location, bound in product((-0.1, 0.0, 0.07, 0.1), (0.1, 1.0)):
        law = ClipLaplace(location, epsilon, 0.1, bound)
        exact = Exact(law)
        assert relative_error(law.mean(), exact.mean()) < RTOL
        assert relative_error(law.var(), exact.var()) < 1e-9
        assert abs(law.logpdf(-0.1) - exact.logpdf(-0.1)) <= 1e-9 * abs(exact.logpdf(-0.1))
        assert np.abs(law.ppf([0.0, 1e-9, 0.5, 1.0])).max() <= bound
        assert 0 <= law.cdf(-0.05) <= 1


@pytest.mark.parametrize("epsilon", [1e-12, 1e-60, 1e-200, 1e-300])
def test_vanishing_budgets_reach_the_uniform_limit(epsilon):
    location = 3.0 * LOCATIONS
    law = ClipLaplace(location, epsilon, 3.0)
    np.testing.assert_allclose(law.mean(), location * (epsilon / 4) * (1 - location**2 / 27), rtol=1e-11)
    np.testing.assert_allclose(law.var(), 3.0, rtol=1e-11)
    np.testing.assert_allclose(law.pdf(1.0), 1 / 6, rtol=1e-11)
    np.testing.assert_allclose(law.ppf(0.25), -1.5, rtol=1e-11)


@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 1.0, 8.0])
def test_variation_between_the_ends_and_smallest_density(epsilon):
    ends = ClipLaplace(np.array([-0.1, 0.1]), epsilon, 0.1)
    variation = np.subtract(*ends.cdf(0.0))  # the likelihood ratio crosses 1 in the centre
    assert variation == pytest.approx(np.tanh(epsilon / 4), rel=1e-9)
    smallest = epsilon / np.expm1(epsilon) / 0.2  # kappa, per unit of z
    assert ends.pdf([[0.1], [-0.1]]).min() == pytest.approx(smallest, rel=1e-12)


def integrate(function, law, upper=np.inf):
    """Integrate over the support up to upper: 20 Gauss points per scale, out to 60 scales."""
    low, high = law.support()
    edges = law.location + law.scale * np.arange(-60.0, 61.0)
    edges = np.clip([low if np.isfinite(low) else edges[0], *edges, high], low, min(high, upper))
    edges = edges[np.isfinite(edges)]
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    return float((function(edges[:-1, None] + half * (1 + nodes)) * weights * half).sum())


def inner_points(law, n):
    return law.ppf(np.linspace(0.001, 0.999, n))


@every_law
def test_pdf_integrates_to_one(law):
    assert integrate(law.pdf, law) == pytest.approx(1, abs=1e-12)


@every_law
def test_cdf_is_the_integral_of_pdf(law):
    for z in inner_points(law, 9):
        assert law.cdf(z) == pytest.approx(integrate(law.pdf, law, z), abs=1e-12)


@every_law
def test_moments_by_quadrature(law):
    mean = integrate(lambda z: z * law.pdf(z), law)
    var = integrate(lambda z: (z - law.mean()) ** 2 * law.pdf(z), law)
    assert law.mean() == pytest.approx(mean, abs=1e-12 * np.sqrt(law.var()))
    assert law.var() == pytest.approx(var, rel=1e-12)


@every_law
def test_logpdf_is_the_log_of_pdf(law):
    z = inner_points(law, 101)
    np.testing.assert_allclose(np.exp(law.logpdf(z)), law.pdf(z), rtol=1e-12)


@every_law
def test_cdf_undoes_ppf(law):
    q = np.concatenate([QUANTILES, np.linspace(0, 1, 101)])
    z = law.ppf(q)
    error = np.abs(law.cdf(z) - q)
    # The quantile is itself a rounded number: half a spacing of z, times the density, moves the cdf.
    spacing = np.spacing(np.maximum(np.abs(z), law.clip), where=np.isfinite(z), out=np.zeros_like(z))
    assert (error <= 1e-12 * q + law.pdf(z) * spacing).all()
    assert (law.ppf(0), law.ppf(1)) == law.support()


@every_law
def test_cdf_and_ppf_increase(law):
    q = np.linspace(0, 1, 1001)
    assert (np.diff(law.ppf(q)[1:-1]) > 0).all()
    assert (np.diff(law.cdf(law.ppf(q))) > 0).all()


@every_law
def test_reflected_law(law):
    z, mirror = inner_points(law, 51), replace(law, location=-law.location)
    np.testing.assert_allclose(mirror.pdf(-z), law.pdf(z), rtol=1e-12)
    np.testing.assert_allclose(mirror.cdf(-z), 1 - law.cdf(z), rtol=1e-11)
    assert mirror.mean() == -law.mean()


@every_law
def test_outside_the_support(law):
    low, high = law.support()
    for z, cdf in ((np.nextafter(low, -np.inf), 0), (np.nextafter(high, np.inf), 1), (-np.inf, 0), (np.inf, 1)):
        assert (law.pdf(z), law.logpdf(z), law.cdf(z)) == (0, -np.inf, cdf)


@every_law
def test_likelihood_ratio_is_exp_epsilon_and_never_more(law):
    """Theorem 1 of the paper, both ways: tight between the ends, valid for every pair."""
    locations = law.clip * np.linspace(-1, 1, 41)
    low, high = np.clip(law.support(), -2 * law.clip, 2 * law.clip)
    z = np.union1d(np.linspace(low, high, 101), [-law.clip, 0, law.clip])
    logs = replace(law, location=locations[:, None]).logpdf(z)
    rounding = 4 * np.finfo(float).eps * np.abs(logs).max()
    assert (logs.max(axis=0) - logs.min(axis=0)).max() <= law.epsilon + rounding
    between_ends = logs[0] - logs[-1]
    assert np.abs(between_ends[z <= -law.clip] - law.epsilon).max() <= rounding
    assert np.abs(between_ends[z >= law.clip] + law.epsilon).max() <= rounding
    inside = np.abs(z) < law.clip
    expected = -law.epsilon * z[inside] / law.clip
    assert np.abs(between_ends[inside] - expected).max() <= rounding


@every_law
def test_arrays_are_the_scalars_side_by_side(law):
    locations, epsilons = law.location * np.array([[1.0], [-0.5]]), law.epsilon * np.array([1.0, 0.5, 0.25])
    whole = replace(law, location=locations, epsilon=epsilons)
    assert whole.shape == whole.mean().shape == whole.var().shape == (2, 3)
    for row, column in np.ndindex(2, 3):
        one = replace(law, location=locations[row, 0], epsilon=epsilons[column])
        for method, argument in (("pdf", 0.01), ("logpdf", 0.01), ("cdf", 0.01), ("ppf", 0.3)):
            value = getattr(whole, method)(argument)
            assert value.dtype == np.float64
            assert value[row, column] == pytest.approx(float(getattr(one, method)(argument)), rel=1e-14)
        assert whole.mean()[row, column] == pytest.approx(float(one.mean()), rel=1e-14)
        assert whole.var()[row, column] == pytest.approx(float(one.var()), rel=1e-14)


@every_law
def test_rvs_shape_seed_and_support(law):
    draw = law.rvs((2, 500), np.random.default_rng(7))
    assert draw.shape == (2, 500)
    assert law.rvs(4, np.random.default_rng(7)).tolist() == draw[0, :4].tolist()
    assert replace(law, epsilon=np.full(3, law.epsilon)).rvs(None, np.random.default_rng(7)).shape == (3,)
    low, high = law.support()
    assert np.isfinite(draw).all()
    assert low <= draw.min() < draw.max() <= high
    assert len(np.unique(draw)) == draw.size


class ConstantGenerator(np.random.Generator):
    """A generator whose uniform draws are all the same number."""

    def __init__(self, draw):
        super().__init__(np.random.PCG64(0))
        self.draw = draw

    def random(self, size):
        return np.full(size, self.draw)


@every_law
@pytest.mark.parametrize("draw", [0.0, 2.0**-53, 1 - 2.0**-53])
def test_rvs_of_extreme_draws_is_finite_and_inside(law, draw):
    low, high = law.support()
    report = law.rvs(2, ConstantGenerator(draw))
    assert (np.isfinite(report) & (low <= report) & (report <= high)).all()


SAMPLES = 200_000
# Massart 1990: P(sup |F_n - F| > t) <= 2 exp(-2 n t^2) for every n; here 1e-6.
KS_LIMIT = np.sqrt(np.log(2 / 1e-6) / (2 * SAMPLES))
SAMPLED_LAWS = [
    ClipLaplace(0.0, 8.0, 0.1),
    ClipLaplace(0.1, 1.0, 0.1),
    ClipLaplace(-0.05, 20.0, 0.1, 0.15),
    ClipLaplace(np.linspace(-1.5, 1.5, SAMPLES), np.linspace(8, 50, SAMPLES), 3.0),
    Laplace(0.03, 1.0, 0.1),
    Laplace(np.linspace(-3, 3, SAMPLES), np.linspace(0.05, 3, SAMPLES), 3.0),
]


def ks_distance(law, sample):
    """Kolmogorov-Smirnov distance of cdf(sample) from uniform; each report has its own cdf."""
    u, n = np.sort(law.cdf(sample)), len(sample)
    return max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())


@pytest.mark.parametrize("law", SAMPLED_LAWS, ids=name)
def test_rvs_follows_the_law_and_the_test_sees_ten_percent(law):
    rng = np.random.default_rng(20230607)
    assert ks_distance(law, law.rvs(SAMPLES, rng)) <= KS_LIMIT
    weaker = replace(law, epsilon=0.9 * law.epsilon)
    assert ks_distance(law, weaker.rvs(SAMPLES, rng)) > 1.2 * KS_LIMIT


@pytest.mark.parametrize("cls", [ClipLaplace, Laplace])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"location": 0.11}, r"location must be in \[-0.1, 0.1\], got 0.11"),
        ({"location": [0.0, -0.2]}, r"location must be in \[-0.1, 0.1\], got -0.2"),
        ({"location": np.nan}, r"location .* got nan"),
        ({"location": -np.inf}, r"location .* got -inf"),
        ({"location": "left"}, r"location must be numbers .* got 'left'"),
        ({"epsilon": 0.0}, r"epsilon must be in \(0, inf\), got 0.0"),
        ({"epsilon": -1.0}, r"epsilon must be in \(0, inf\), got -1.0"),
        ({"epsilon": np.inf}, r"epsilon must be in \(0, inf\), got inf"),
        ({"epsilon": [1.0, np.nan]}, r"epsilon must be in \(0, inf\), got nan"),
        ({"clip": 0.0}, r"clip must be in \(0, inf\), got 0.0"),
        ({"clip": np.nan}, r"clip .* got nan"),
        ({"clip": np.inf}, r"clip .* got inf"),
        ({"location": [0.0, 0.0], "epsilon": [1.0] * 3}, r"epsilon .* broadcasts with \(2,\), got \(3,\)"),
    ],
)
def test_invalid_parameters(cls, change, message):
    with pytest.raises(ParameterError, match=message):
        cls(**{"location": 0.0, "epsilon": 1.0, "clip": 0.1, **change})


@pytest.mark.parametrize("bound", [0.0999, -1.0, 0.0, np.nan, np.inf])
def test_invalid_bound(bound):
    with pytest.raises(ParameterError, match=rf"bound must be in \[0.1, .*\], got {bound}"):
        ClipLaplace(0.0, 1.0, 0.1, bound)


@every_law
def test_invalid_arguments(law):
    rng = np.random.default_rng(0)
    for q in (-1e-9, 1 + 1e-9, np.nan, [0.5, 2.0]):
        with pytest.raises(ParameterError, match=r"q must be in \[0, 1\], got"):
            law.ppf(q)
    for method in (law.pdf, law.logpdf, law.cdf):
        with pytest.raises(ParameterError, match=r"z must be in \[-inf, inf\], got nan"):
            method([0.0, np.nan])
    pair = replace(law, epsilon=np.array([1.0, 2.0]))
    with pytest.raises(ParameterError, match=r"z must have a shape that broadcasts with \(2,\), got \(3,\)"):
        pair.pdf([0.0, 0.0, 0.0])
    for size in (3, (2, 1), -1, 2.5):
        with pytest.raises(ParameterError, match="size must"):
            pair.rvs(size, rng)
    for not_rng in (None, 42, np.random.RandomState(0)):
        with pytest.raises(ParameterError, match=r"rng must be a numpy.random.Generator"):
            law.rvs(1, not_rng)


@pytest.mark.parametrize("cls", [ClipLaplace, Laplace])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_laws_are_immutable(cls, dtype):
    mine = np.array([0.0, 0.05], dtype=dtype)
    law = cls(mine, 1, 0.1)
    before = law.location.copy()
    mine[:] = 0.1
    assert law.location.dtype == law.epsilon.dtype == np.float64
    assert law.location.tolist() == before.tolist()
    with pytest.raises(FrozenInstanceError):
        law.clip = 1.0
    with pytest.raises(ValueError, match="read-only"):
        law.location[0] = 0.1


def test_bound_defaults_to_clip():
    assert ClipLaplace(0.0, 1.0, 0.1).support() == (-0.1, 0.1)
    assert ClipLaplace(0.0, 1.0, 0.1).bound == 0.1
