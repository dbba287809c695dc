"""The exact divergence of one report among m - 1 draws from the blanket, computed from above.

f(m, t) = E[max(0, (L_1 + ... + L_m) / m)], L_k independent copies of L = (first - exp(t) second) / blanket under the
blanket. L is moved onto a lattice by mean-preserving spreads, which can only increase f; the sum is tilted so that its
mean is 0 (`lattice`), and paired with max(0, .) frequency by frequency (`spectrum`). Everything that rounding and
wrapping around could hide is bounded and added.
"""

import math

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.certificate.blanket import HiddenPair
from apes.accounting.certificate.spectrum import RampSpectrum
from apes.accounting.composition.lattice import UNIT, Lattice, Tilted, tail_bound, tilt, tilt_to_mean

# Half width of the window in standard deviations of the (tilted) sum; what lies beyond is bounded and added.
_WINDOW = 9.0
# Sums of up to a hundred thousand products, and the masses of the cells, are off by less.
_ROUNDING = 1 + 1e-9


def excess(pair: HiddenPair, t: float, sizes: Whole, cells: int) -> Array:
    """Upper bounds of f(m, t), t in nats, for several m >= 1; more cells of the lattice are tighter and slower."""
    lattice = _spread(pair, t, cells)
    points = lattice.points
    # L is a difference, off by up to `shift`; it counts as larger by that.
    shift = 512 * UNIT * float((pair.highest + math.exp(t) * pair.reverse_highest).max())
    # f decreases in m (Jensen), so f(1) bounds all of them.
    alone = float(lattice.masses @ np.maximum(points, 0)) * (1 + 4 * points.size * UNIT) + shift
    bounds = np.full(sizes.size, alone)
    many = sizes > 1
    if many.any():
        bounds[many] = np.minimum(alone, _hidden(lattice, sizes[many], shift))
    return bounds * _ROUNDING


def _hidden(lattice: Lattice, sizes: Whole, shift: float) -> Array:
    tilted = tilt(lattice, tilt_to_mean(lattice, 0.0))
    n = _length(tilted, int(sizes.max()))
    spectrum = RampSpectrum(lattice.places, tilted.weights, tilted.theta * lattice.step, n)
    totals = lattice.step * spectrum.expectations(sizes)
    # s exp(-theta s) <= W exp(l (s - W)) for s >= W and l >= 1 / W. Tails grow with m: that of the largest serves all.
    window = lattice.step * (n // 2 - 1)
    totals += window * tail_bound([(lattice.points, tilted.weights, int(sizes.max()))], window, 1 / window)
    if tilted.theta > 0:
        # A proved fallback: max(0, s) <= exp(theta s) / (e theta).
        totals = np.minimum(totals, 1 / (math.e * tilted.theta))
    # Were every L larger by `shift`, E[(S + m shift)_+] would be at most
    # M^m exp(theta m shift) (E~[S_+ exp(-theta S)] + m shift).
    exponents = sizes * (tilted.log_moment + tilted.theta * shift + tilted.error)
    grown = np.where(exponents < 700, np.exp(np.minimum(exponents, 700.0)), np.inf)
    return np.asarray(grown * (totals / sizes + shift))


def _length(tilted: Tilted, largest: int) -> int:
    """Length of the transform: a window of the sum's width, no wider than its range, no narrower than a summand's."""
    points, step = tilted.lattice.points, tilted.lattice.step
    deviation = math.sqrt(max(float(tilted.weights @ points**2) - tilted.mean**2, 0.0))
    width = 2 * _WINDOW * deviation * math.sqrt(largest) / step
    width = max(min(width, largest * 2 * float(np.abs(points).max()) / step), 2.0 * points.size)
    return 1 << math.ceil(math.log2(width + 8))


def _spread(pair: HiddenPair, t: float, cells: int) -> Lattice:
    """The law of L on a lattice: each cell's mass at lattice points around its range, its mean kept."""
    growth = math.exp(t)
    low = pair.lowest - growth * pair.reverse_highest
    high = pair.highest - growth * pair.reverse_lowest
    mean = (pair.first - growth * pair.second) / pair.blanket
    step = float(high.max() - low.min()) / cells
    below, above = np.floor(low / step), np.ceil(high / step)
    above = np.where(above == below, below + 1, above)
    share = np.clip((mean / step - below) / (above - below), 0, 1)
    first = int(below.min())
    size = int(above.max()) - first + 1
    masses = np.bincount((below - first).astype(int), pair.blanket * (1 - share), size)
    masses += np.bincount((above - first).astype(int), pair.blanket * share, size)
    return Lattice(step, first, masses / masses.sum())
