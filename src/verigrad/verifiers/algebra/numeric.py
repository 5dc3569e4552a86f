"""Are two expressions equal? Exactly when they are fractions, by many digits otherwise.

Two expressions that are not the same to SymPy are compared in value, with names replaced by several
numbers. Forty digits of agreement count as equality: no simplifier decides, so none can loop.
"""

import random
from collections.abc import Iterator, Mapping

import sympy
from sympy.core.function import AppliedUndef

from verigrad.verifiers.algebra.bounded import Expr

DIGITS = 40
"""Decimal digits to which two values must agree."""

POINTS = 4
"""How many assignments of numbers to names are tried."""

_NOT_FINITE = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)


def agree(one: Expr, other: Expr) -> bool:
    """Do two expressions have the same value, wherever both are defined?"""
    if one == other:
        return True
    if one.is_Rational and other.is_Rational:
        return False
    if one.has(*_NOT_FINITE) or other.has(*_NOT_FINITE):
        return False
    one, other = _without_unknown_functions(one, other)
    if one == other:
        return True
    outcomes = [
        _vanishes(one, other, point) for point in _points(one.free_symbols | other.free_symbols)
    ]
    seen = [outcome for outcome in outcomes if outcome is not None]
    return bool(seen) and all(seen)


def constant_ratio(one: Expr, other: Expr) -> Expr | None:
    """``one / other`` when it is the same number everywhere; else None."""
    one, other = _without_unknown_functions(one, other)
    if other == 0 or one == 0:
        return None
    points = _points(one.free_symbols | other.free_symbols)
    first, *others = [_value(one / other, point) for point in points]
    if first is None or first == 0 or None in others:
        return None
    gap = sympy.Float(10) ** -25 * abs(first)
    return first if all(abs(ratio - first) < gap for ratio in others) else None


def numerator(expr: Expr) -> Expr:
    """What must vanish for the expression to vanish."""
    return sympy.fraction(sympy.together(expr))[0]


def rounds_to(exact: Expr, decimal: Expr) -> bool:
    """Is the second the first as a decimal number, rounded or cut at its last digit?"""
    if not decimal.is_Rational or not exact.is_number or decimal.is_Integer:
        return False
    places = _decimals(decimal)
    if places is None:
        return False
    gap = abs(exact - decimal).evalf(DIGITS)
    return bool(gap.is_Float) and bool(gap < sympy.Rational(1, 10**places))


def _decimals(number: Expr) -> int | None:
    """Digits after the point; None when it is not a finite decimal."""
    for places in range(30):
        if (number * 10**places).is_Integer:
            return places
    return None


def _without_unknown_functions(one: Expr, other: Expr) -> tuple[Expr, Expr]:
    """f(x) is only ever equal to f(x), so it may as well be a name."""
    unknown = sorted(
        one.atoms(AppliedUndef) | other.atoms(AppliedUndef), key=sympy.default_sort_key
    )
    names = {call: sympy.Symbol(f"value {number}") for number, call in enumerate(unknown)}
    return one.xreplace(names), other.xreplace(names)


def _points(symbols: "set[Expr]") -> Iterator[Mapping[Expr, Expr]]:
    """Assignments of numbers, the same ones every time: positive, then of both signs."""
    names = sorted(symbols, key=str)
    if not names:
        yield {}
        return
    dice = random.Random(7)
    for number in range(POINTS):
        low = 300 if number < POINTS // 2 else -1700
        yield {name: sympy.Rational(_not_zero(dice.randint(low, 1700)), 1009) for name in names}


def _not_zero(number: int) -> int:
    return number or 311


def _vanishes(one: Expr, other: Expr, point: Mapping[Expr, Expr]) -> bool | None:
    """Is the difference zero there? None where it cannot be computed, or only one side is real."""
    difference = _value(one - other, point)
    if difference is None:
        return None
    parts = difference.as_real_imag()
    if all(part == 0 or part._prec == 1 for part in parts):
        return True
    negative = any(value < 0 for value in point.values())
    if negative and not (_is_real(one, point) and _is_real(other, point)):
        return None
    return False


def _is_real(expr: Expr, point: Mapping[Expr, Expr]) -> bool:
    """Is it, and every root and logarithm in it?"""
    parts = expr.atoms(sympy.Pow, sympy.log)
    values = [_value(part, point) for part in (expr, *parts)]
    return all(value is not None and bool(value.is_real) for value in values)


def _value(expr: Expr, point: Mapping[Expr, Expr]) -> Expr | None:
    try:
        value = expr.evalf(30, subs=dict(point), maxn=4 * DIGITS)
    except (ArithmeticError, ValueError, TypeError, NotImplementedError):
        return None
    return value if value.is_number and not value.has(*_NOT_FINITE) else None
