"""Logarithm and exponential in plain arithmetic, so that loops over them use vector instructions.

Each is a reduction to a small argument and a polynomial there: no branch, no call, no table. Rounding is strict, so a
result does not depend on whether an element falls into the vector part of a loop or into its remainder.
"""

import numpy as np

from apes.mathematics.compiled import inlined

# fdlibm's constants (Sun Microsystems 1993, e_log.c): log(2) in two parts, the first with 21 zero bits at its end, so
# that its product with an exponent is exact; and the polynomial of log((1 + s) / (1 - s)) = 2 s + s R(s^2), off by less
# than 2^-58 for |s| <= 0.1716.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_R1, _R2, _R3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_R4, _R5 = 2.222219843214978396e-01, 1.818357216161805012e-01
_R6, _R7 = 1.531383769920937332e-01, 1.479819860511658591e-01

_EXPONENT = np.uint64(52)
_MANTISSA = np.uint64(2**52 - 1)
_ONE = np.uint64(0x3FF0000000000000)
# About sqrt(1/2): mantissas are taken from there to sqrt(2), so that log is small where the exponent is 0.
_LOWEST = np.uint64(0x3FE6A09E00000000)
_TO_ONE = np.uint64(0x3FF0000000000000 - 0x3FE6A09E00000000)
# The bits of 2^52: with a whole number below 2^52 in its last places it is 2^52 plus that number.
_WHOLE = np.uint64(0x4330000000000000)
_WHOLE_BIAS = 2.0**52 + 1023
# Added to a number below 2^51 in size, it leaves the nearest whole number in the last places.
_ROUND = 1.5 * 2.0**52
_PER_LN2 = 1.4426950408889634
# The same for float32, with the polynomial of (exp(r) - 1 - r) / r^2 of Cephes (Moshier 1992, expf.c). exp(-87) is the
# least that is still a normal number, but for a third of a nat.
_LEAST = np.float32(-87)
_PER_LN2_32 = np.float32(1.44269504)
_LN2_HIGH_32, _LN2_LOW_32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_P3, _P4, _P5 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_ROUND_32 = np.float32(1.5 * 2.0**23)
_EXPONENT_32 = np.uint32(23)
_ONE_32 = np.uint32(0x3F800000)


@inlined
def log(x: float) -> float:
    """Natural logarithm of a normal number x > 0, in [2^-1022, 2^1024); relative error at most 2^-52."""
    bits = np.float64(x).view(np.uint64) + _TO_ONE
    exponent = np.uint64((bits >> _EXPONENT) | _WHOLE).view(np.float64) - _WHOLE_BIAS
    f = np.uint64((bits & _MANTISSA) + _LOWEST).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = w * (_R2 + w * (_R4 + w * _R6)) + z * (_R1 + w * (_R3 + w * (_R5 + w * _R7)))
    half = 0.5 * f * f
    # log(1 + f) = f - (half - s (half + r)): no large terms cancel, also next to x = 1.
    return exponent * _LN2_HIGH - ((half - (s * (half + r) + exponent * _LN2_LOW)) - f)


@inlined
def exp_both(x: float) -> tuple[float, float]:
    """exp(x) and exp(-x) for x in [-700, 700], from one polynomial; relative error at most 2^-50.

    With x = k log(2) + r, |r| <= 0.347, exp(+-r) = cosh(r) +- sinh(r). Their series end at r^12 / 12! and r^11 / 11!;
    what is left out is below 3e-16 of the result.
    """
    rounded = x * _PER_LN2 + _ROUND
    scale = np.float64(rounded).view(np.uint64) << _EXPONENT
    k = rounded - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    z = r * r
    tail = 1 / 40320 + z * (1 / 3628800 + z * (1 / 479001600))
    cosh = 1.0 + z * (1 / 2 + z * (1 / 24 + z * (1 / 720 + z * tail)))
    sinh = r * (1.0 + z * (1 / 6 + z * (1 / 120 + z * (1 / 5040 + z * (1 / 362880 + z * (1 / 39916800))))))
    up, down = np.uint64(_ONE + scale).view(np.float64), np.uint64(_ONE - scale).view(np.float64)
    return up * (cosh + sinh), down * (cosh - sinh)


@inlined
def exp_negative(x: np.float32) -> np.float32:
    """exp(x) for x <= 0, or NaN, in float32: relative error at most 2^-22, but exp(-87) = 1.6e-38 for any x below."""
    # Written so that NaN passes through: a model that diverged must not look like one that did not.
    x = _LEAST if x < _LEAST else x
    rounded = np.float32(x * _PER_LN2_32 + _ROUND_32)
    scale = np.uint32(rounded.view(np.uint32) << _EXPONENT_32)
    k = rounded - _ROUND_32
    r = (x - k * _LN2_HIGH_32) - k * _LN2_LOW_32
    p = _P0 + r * (_P1 + r * (_P2 + r * (_P3 + r * (_P4 + r * _P5))))
    return np.float32((p * r * r + r + np.float32(1)) * np.uint32(_ONE_32 + scale).view(np.float32))
