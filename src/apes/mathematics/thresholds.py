"""Acceptance thresholds of the coded mechanism: integers whose privacy ratio is exact.

A report of level k for an input of level j is drawn by rejection: propose k uniformly, accept with probability
A_s / 2^64, s = |k - j|. The law that comes out has p(k | j) = A_s / Z_j, Z_j the row sum, and it is *these integers*
that have to be epsilon-LDP, not the real numbers they stand for. The table holds A_s >= 2^64 exp(-epsilon s / (K - 1)),
rounded up, with A_0 = 2^64. See docs/reports.md.

Theorem. If (i) A is non-increasing, (ii) A_{K-1} >= A_0 exp(-epsilon), and (iii) A_{K-1} Z_j <= A_{max(j, K-1-j)} Z_0
for every j, then p(k | j) <= exp(epsilon) p(k | i) for all k, i, j.
Proof. By (i) Z grows towards the centre (Z_{j+1} - Z_j = A_{j+1} - A_{K-1-j} >= 0 there), so Z_j >= Z_0.
    A_{|k-j|} Z_i exp(-epsilon) <= A_0 exp(-epsilon) Z_i <= A_{K-1} Z_i          by (i), (ii)
                                <= A_{max(i, K-1-i)} Z_0 <= A_{|k-i|} Z_j        by (iii), (i).  QED
For epsilon >= 46 there is nothing to check: 1 <= A_s <= 2^64 and Z_i <= 2 Z_j always (both sides of the centre are
parts of row 0), so no ratio exceeds 2^65 < exp(46). (i) and (iii) are integer comparisons, made whenever a table is
built; (ii) holds since every step of the computation of A_{K-1} rounds up.

A threshold is stored as T_s = A_s - 1, which fits 64 bits: accept when a uniform 64-bit draw is <= T_s.

Reports of one bit need no rejection: the bit is flipped with probability F / 2^64, F >= 2^64 / (1 + exp(epsilon)), and
(2^64 - F) / F <= exp(epsilon) is all that epsilon-LDP asks for.
"""

import math
from decimal import Decimal, localcontext

import numpy as np

from apes.checks import positive_array, whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F64, U64, Bools
from apes.mathematics.compiled import compiled, inlined
from apes.mathematics.uint128 import ONE, ZERO, add, divide_small, fraction_product, subtract, times_word

# A report is one byte per coordinate.
MAX_LEVELS = 256
_ONE_HI = np.uint64(1 << 63)
_MANTISSA_BITS = 53
_ALWAYS_PRIVATE = 46.0
# Below it a report is uniform: rounding to 64 bits would leave more than such a budget allows.
_UNIFORM = 2.0**-48
# Each term of the series is truncated by less than 2 units and there are fewer than 40 of them
# (x < 1/4, so the 40th is below 4^-40 / 40! < 2^-127); the tail behind the last is below 3 units.
_SERIES_ERROR = np.uint64(128)


def acceptance_thresholds(budgets: F64, levels: int) -> U64:
    """Build and check the thresholds of a block of users.

    Args:
        budgets: Local budgets epsilon of the users, per coordinate, each in (0, inf).
        levels: Number of levels K in [2, 256].

    Returns:
        Array (users, K): T_s = A_s - 1 for s = 0 .. K - 1.

    Guarantee:
        The law p(k | j) = A_|k-j| / Z_j of every row is epsilon-LDP, to the last bit.
    """
    budgets = positive_array("budgets", budgets)
    levels = whole("levels", levels, 2, MAX_LEVELS)
    table = np.empty((budgets.size, levels), dtype=np.uint64)
    checked = np.empty(budgets.size, dtype=np.bool_)
    fill_thresholds(budgets, table, checked)
    for user in np.flatnonzero(~checked):
        if not _is_private_exactly(table[user], float(budgets[user])):
            raise ParameterError(f"budgets[{user}] = {float(budgets[user])!r} gives no exact table at {levels} levels")
    return table


def flip_thresholds(budgets: F64) -> U64:
    """Thresholds F of a block of users who flip a bit when a uniform 64-bit draw is < F.

    Args:
        budgets: Local budgets epsilon of the users, per coordinate, each in (0, inf).

    Guarantee:
        1 <= F <= 2^63 and (2^64 - F) / F <= exp(epsilon), to the last bit: a flip is at least as likely as ideal.
    """
    budgets = positive_array("budgets", budgets)
    flips = np.empty(budgets.size, dtype=np.uint64)
    fill_flips(budgets, flips)
    return flips


@inlined
def proposal_mask(levels: int) -> int:
    """Low bits that hold a proposal: the smallest 2^b - 1 >= levels - 1."""
    mask = 1
    while mask < levels - 1:
        mask = 2 * mask + 1
    return mask


@compiled
def fill_thresholds(budgets: F64, table: U64, checked: Bools) -> None:
    """Fill one row of thresholds per user, and say which rows passed the check in integers."""
    levels = table.shape[1]
    for user in range(budgets.size):
        q_hi, q_lo = _decay(budgets[user], levels - 1)
        hi, lo = _ONE_HI, ZERO
        for s in range(levels):
            below_hi, below_lo = subtract(hi, lo, ZERO, ONE)
            # ceil(x / 2^63) - 1 = floor((x - 1) / 2^63) for x >= 1
            table[user, s] = (below_hi << ONE) | (below_lo >> np.uint64(63))
            hi, lo = fraction_product(hi, lo, q_hi, q_lo, True)
        checked[user] = budgets[user] >= _ALWAYS_PRIVATE or is_private(table[user])


@compiled
def fill_flips(budgets: F64, flips: U64) -> None:
    """Fill in ceil(2^64 q / (1 + q)) for an upper bound q of exp(-epsilon), user by user.

    It increases with q, so it is no smaller than what exp(-epsilon) itself gives. Long division, bit by bit, of
    x = ceil(2^126 q) by 2^126 + x <= 2^127, so that twice a remainder fits 128 bits.
    """
    for user in range(budgets.size):
        q_hi, q_lo = _decay(budgets[user], 1)
        up_hi, up_lo = add(q_hi, q_lo, ZERO, ONE)
        hi, lo = up_hi >> ONE, (up_hi << np.uint64(63)) | (up_lo >> ONE)
        by_hi, by_lo = hi + (_ONE_HI >> ONE), lo
        quotient = ZERO
        for _ in range(64):
            hi, lo = (hi << ONE) | (lo >> np.uint64(63)), lo << ONE
            quotient <<= ONE
            if hi > by_hi or (hi == by_hi and lo >= by_lo):
                hi, lo = subtract(hi, lo, by_hi, by_lo)
                quotient |= ONE
        flips[user] = quotient + np.uint64((hi | lo) != ZERO)


def _is_private_exactly(row: U64, epsilon: float) -> bool:
    """The theorem's chain with exp(-epsilon) itself instead of A_{K-1}, for the few rows that need it.

    Near epsilon = 44 the last A are 1 and 2, far above 2^64 q^s, and (iii) asks too much; what the proof needs is
    A_0 exp(-epsilon) Z_i <= A_{max(i, K-1-i)} Z_0, with exp(-epsilon) rounded up.
    """
    counts = [int(threshold) + 1 for threshold in row]
    last = len(counts) - 1
    sums = [sum(counts[abs(k - j)] for k in range(last + 1)) for j in range(last // 2 + 1)]
    scale = 2**200
    with localcontext() as context:
        context.prec, context.Emin = 100, -999_999
        decay = int((-Decimal(epsilon)).exp().next_plus(context) * scale) + 1
    return counts == sorted(counts, reverse=True) and all(
        counts[0] * decay * sums[i] <= counts[last - i] * sums[0] * scale for i in range(last // 2 + 1)
    )


@compiled
def is_private(row: U64) -> bool:
    """Check conditions (i) and (iii) of the theorem above, in integers."""
    last = row.size - 1
    z_hi, z_lo = ZERO, ZERO
    for s in range(row.size):
        if s > 0 and row[s] > row[s - 1]:
            return False
        z_hi, z_lo = add(z_hi, z_lo, ZERO, row[s])
    z_hi, z_lo = add(z_hi, z_lo, ZERO, np.uint64(row.size))
    end_hi, end_lo = z_hi, z_lo
    for j in range((last + 2) // 2):
        a2, a1, a0 = times_word(row[last], z_hi, z_lo)
        b2, b1, b0 = times_word(row[last - j], end_hi, end_lo)
        if a2 > b2 or (a2 == b2 and (a1 > b1 or (a1 == b1 and a0 > b0))):
            return False
        z_hi, z_lo = add(z_hi, z_lo, ZERO, row[j + 1] if j < last else ZERO)
        z_hi, z_lo = subtract(z_hi, z_lo, ZERO, row[last - j])
    return True


@compiled
def _decay(epsilon: float, steps: int) -> tuple[np.uint64, np.uint64]:
    """Upper bound of 2^127 exp(-epsilon / steps), at most 2^127.

    Write epsilon = x 2^h steps with x < 1/4: sum the series of exp(-x), add its error, square h times rounding up.
    """
    if epsilon < _UNIFORM:
        return _ONE_HI, ZERO
    mantissa, exponent = math.frexp(epsilon)
    halvings = max(0, exponent + 2)
    # x steps 2^127 as (high, low): a shift by 27 to 72 places, epsilon being 2^-48 at least.
    value, shift = np.uint64(mantissa * 2.0**_MANTISSA_BITS), 127 - _MANTISSA_BITS + exponent - halvings
    if shift >= 64:
        hi, lo = value << np.uint64(shift - 64), ZERO
    else:
        hi, lo = value >> np.uint64(64 - shift), value << np.uint64(shift)
    x_hi, x_lo = divide_small(hi, lo, np.uint64(steps))
    sum_hi, sum_lo = add(_ONE_HI, ZERO, ZERO, _SERIES_ERROR)
    term_hi, term_lo = x_hi, x_lo
    n = 1
    while (term_hi | term_lo) != ZERO:
        if n % 2 == 1:
            sum_hi, sum_lo = subtract(sum_hi, sum_lo, term_hi, term_lo)
        else:
            sum_hi, sum_lo = add(sum_hi, sum_lo, term_hi, term_lo)
        n += 1
        term_hi, term_lo = fraction_product(term_hi, term_lo, x_hi, x_lo, False)
        term_hi, term_lo = divide_small(term_hi, term_lo, np.uint64(n))
    if sum_hi >= _ONE_HI:
        return _ONE_HI, ZERO
    for _ in range(halvings):
        sum_hi, sum_lo = fraction_product(sum_hi, sum_lo, sum_hi, sum_lo, True)
    return sum_hi, sum_lo
