"""Unsigned 128-bit integers for compiled code, as pairs (high, low) of 64-bit words.

Numba has no integer wider than 64 bits; the acceptance thresholds of the coded mechanism need twice that, so that they
can be rounded against us by less than one unit in the last place.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from apes.mathematics.arrays import Word
from apes.mathematics.compiled import compiled, inlined

Pair = tuple[Word, Word]
ONE, ZERO = Word(1), Word(0)
_HALF, _LOW_HALF = Word(32), Word(0xFFFFFFFF)
_TOP = Word(63)


def _mul_high(typing_context: Any, a: Any, b: Any) -> Any:
    """Upper 64 bits of the 128-bit product of two 64-bit words: one machine instruction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        uint128 = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], uint128), builder.zext(args[1], uint128))
        return builder.trunc(builder.lshr(product, uint128(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


# Inside compiled code it takes the two words alone.
mul_high = cast(Callable[[Word, Word], Word], intrinsic(_mul_high))


@inlined
def add(a_hi: Word, a_lo: Word, b_hi: Word, b_lo: Word) -> Pair:
    """Return a + b modulo 2^128."""
    lo = a_lo + b_lo
    return a_hi + b_hi + Word(lo < a_lo), lo


@inlined
def subtract(a_hi: Word, a_lo: Word, b_hi: Word, b_lo: Word) -> Pair:
    """Return a - b modulo 2^128."""
    return a_hi - b_hi - Word(a_lo < b_lo), a_lo - b_lo


@inlined
def divide_small(hi: Word, lo: Word, divisor: Word) -> Pair:
    """Return the floor of a / divisor, for divisor < 2^31: long division in base 2^32."""
    quotient_hi = hi // divisor
    carried = ((hi % divisor) << _HALF) | (lo >> _HALF)
    upper = carried // divisor
    carried = ((carried % divisor) << _HALF) | (lo & _LOW_HALF)
    return quotient_hi, (upper << _HALF) | (carried // divisor)


@compiled
def fraction_product(a_hi: Word, a_lo: Word, b_hi: Word, b_lo: Word, up: bool) -> Pair:
    """Return a b / 2^127 for a, b <= 2^127, rounded down, or up if ``up``.

    Read a and b as fractions a / 2^127 and b / 2^127 in [0, 1]: this is their product.
    """
    # a b = high 2^128 + middle 2^64 + low, summed word by word with carries.
    word0 = a_lo * b_lo
    middle_hi, middle_lo = add(mul_high(a_hi, b_lo), a_hi * b_lo, mul_high(a_lo, b_hi), a_lo * b_hi)
    middle_hi, word1 = add(middle_hi, middle_lo, ZERO, mul_high(a_lo, b_lo))
    word3, word2 = add(mul_high(a_hi, b_hi), a_hi * b_hi, ZERO, middle_hi)
    # Dividing by 2^127 is one shift to the left and dropping the two lowest words.
    hi = (word3 << ONE) | (word2 >> _TOP)
    lo = (word2 << ONE) | (word1 >> _TOP)
    if up and ((word1 << ONE) | word0) != ZERO:
        return add(hi, lo, ZERO, ONE)
    return hi, lo


@inlined
def times_word(a: Word, hi: Word, lo: Word) -> tuple[Word, Word, Word]:
    """Return (a + 1) times (hi, lo) as three words, highest first."""
    word2, word1 = add(mul_high(a, hi), a * hi, ZERO, mul_high(a, lo))
    # plus (hi, lo) once, for the one in (a + 1)
    word0 = a * lo + lo
    word2, word1 = add(word2, word1, ZERO, Word(word0 < lo))
    word2, word1 = add(word2, word1, ZERO, hi)
    return word2, word1, word0
