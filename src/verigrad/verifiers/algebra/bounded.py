"""Arithmetic that cannot grow without bound.

SymPy computes 7**7**7**7 as soon as it is written. Here a result that would have too many digits
stays an unknown function of its arguments: it equals itself and nothing else, and costs nothing.
"""

import math
from typing import Any, TypeAlias

import sympy

Expr: TypeAlias = Any
"""A SymPy expression; SymPy has no annotations."""

MOST_BITS = 14_000
"""Largest numerator, denominator or factorial that is computed, in bits; about 4,200 digits."""

MOST_BITS_OF_ROOT = 1000
"""Largest number whose root is taken: SymPy looks for its factors."""

MOST_TERMS = 1000
"""Largest whole power of something that is not a number."""


def power(base: Expr, exponent: Expr) -> Expr:
    """``base ** exponent``, or left standing when it is too large to compute."""
    if not _is_small_power(base, exponent):
        return opaque("power", base, exponent)
    return base**exponent


def factorial(argument: Expr) -> Expr:
    """``argument!``, or left standing when it is too large to compute."""
    size = magnitude(argument)
    if _depth(argument) > 1:
        return opaque("factorial", argument)
    if size is not None and size * max(1.0, math.log2(max(size, 1.0))) > MOST_BITS:
        return opaque("factorial", argument)
    return sympy.factorial(argument)


def binomial(above: Expr, below: Expr) -> Expr:
    """``above`` choose ``below``, or left standing when it is too large to compute."""
    if max(magnitude(above) or 0.0, magnitude(below) or 0.0) > MOST_BITS / 8:
        return opaque("binomial", above, below)
    return sympy.binomial(above, below)


def applied(function: Any, argument: Expr) -> Expr:
    """A function that grows at most exponentially, or left standing when it is too large."""
    size = magnitude(argument)
    if _depth(argument) > 2 or (size is not None and size > MOST_BITS):
        return opaque(str(function), argument)
    return function(argument)


def opaque(name: str, *arguments: Expr) -> Expr:
    """The value of a function that is not known: equal for equal arguments."""
    return sympy.Function(name)(*arguments)


def magnitude(expr: Expr) -> float | None:
    """The absolute value as a float, infinite when it overflows; None when it is not a number."""
    if expr.free_symbols or not expr.is_number:
        return None
    try:
        return float(abs(expr.evalf(8)))
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _is_small_power(base: Expr, exponent: Expr) -> bool:
    size = magnitude(exponent)
    if size is None:
        return _depth(exponent) <= 2
    if base.is_Rational:
        bits = max(abs(base.p).bit_length(), base.q.bit_length()) if abs(base) != 1 else 0
        most = MOST_BITS if exponent.is_Integer else MOST_BITS_OF_ROOT
        return bool(max(size, 1.0) * bits <= most)
    if base.free_symbols:
        return size <= MOST_TERMS or not exponent.is_Integer
    return size * max(1.0, abs(math.log2(magnitude(base) or 1.0))) <= MOST_BITS


def _depth(expr: Expr) -> int:
    """How many exponentials and factorials of something unknown are nested in each other."""
    below = max((_depth(argument) for argument in expr.args), default=0)
    grows = bool(expr.free_symbols) and (
        isinstance(expr, _GROWING) or (expr.is_Pow and not expr.exp.is_number)
    )
    return below + grows


_GROWING = (sympy.exp, sympy.factorial, sympy.sinh, sympy.cosh)
