"""Sets of numbers: intervals, unions, and the solutions of simple inequalities."""

from collections.abc import Sequence

import sympy

from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.numeric import agree
from verigrad.verifiers.algebra.relations import FLIPPED
from verigrad.verifiers.algebra.tokens import Unreadable
from verigrad.verifiers.algebra.values import Items, Named, Point, Quantity, Region, Relation, Value

NAMED = {
    "emptyset": sympy.S.EmptySet,
    "mathbb{R}": sympy.S.Reals,
    "mathbb{Z}": sympy.S.Integers,
    "mathbb{N}": sympy.S.Naturals,
    "mathbb{Q}": sympy.S.Rationals,
    "mathbb{C}": sympy.S.Complexes,
    "mathbbR": sympy.S.Reals,
    "mathbbZ": sympy.S.Integers,
    "mathbbN": sympy.S.Naturals,
}


MOST_MEMBERS = 1000
"""Largest set of whole numbers that is listed."""


def interval(low: Expr, high: Expr, left_open: bool, right_open: bool) -> "sympy.Set":
    """The numbers between two ends.

    Raises:
        Unreadable: an end is not a real number.
    """
    if any(end.is_extended_real is False for end in (low, high)):
        raise Unreadable("an end of an interval is not real")
    return sympy.Interval(low, high, left_open, right_open)


def combined(left: "sympy.Set", sign: str, right: "sympy.Set") -> "sympy.Set":
    """Union (cup), intersection (cap) or difference (setminus, -)."""
    if sign == "cup":
        return sympy.Union(left, right)
    if sign == "cap":
        common = sympy.Intersection(left, right)
        is_list = isinstance(common, sympy.Range) and common.size <= MOST_MEMBERS
        return sympy.FiniteSet(*common) if is_list else common
    return sympy.Complement(left, right)


def as_region(value: Value) -> "sympy.Set | None":
    """A value as a set of numbers, where it can be one."""
    match value:
        case Region(set=found):
            return found
        case Point(values=(Quantity(expr=low), Quantity(expr=high)), may_be_interval=True):
            return interval(low, high, True, True)
        case Items(values=values) if all(isinstance(one, Quantity) for one in values):
            return sympy.FiniteSet(*(one.expr for one in values if isinstance(one, Quantity)))
        case Quantity(expr=expr):
            return sympy.FiniteSet(expr)
    return None


def conditions(values: Sequence[Value], *, any_of: bool) -> Named | None:
    """Conditions on one variable as the named set of what fulfils them; None for anything else.

    Conditions after a comma must all hold, unless nothing fulfils them all.
    """
    solved = [
        solution(value) if isinstance(value, Relation) else _named_set(value) for value in values
    ]
    if any(one is None for one in solved) or len({str(one[0]) for one in solved if one}) != 1:
        return None
    symbol = solved[0][0] if solved[0] else None
    sets = [one[1] for one in solved if one]
    found = sympy.Union(*sets) if any_of else sympy.Intersection(*sets)
    if found is sympy.S.EmptySet and not any_of:
        found = sympy.Union(*sets)
    return Named(str(symbol), Region(found), symbol)


def solution(relation: Relation) -> "tuple[Expr, sympy.Set] | None":
    """The variable and the set of an inequality that is linear in one variable, else None."""
    left, sign, right = relation.left, relation.sign, relation.right
    if right.is_Symbol and not left.free_symbols:
        left, sign, right = right, FLIPPED[sign], left
    if not left.is_Symbol or right.free_symbols:
        left, sign, right = _solved(left - right, sign)
    if not left.is_Symbol or right.is_extended_real is not True:
        return None
    match sign:
        case "<" | "<=":
            return left, sympy.Interval(-sympy.oo, right, True, sign == "<")
        case ">" | ">=":
            return left, sympy.Interval(right, sympy.oo, sign == ">", True)
        case "!=":
            return left, sympy.Complement(sympy.S.Reals, sympy.FiniteSet(right))
    return None


def _solved(gap: Expr, sign: str) -> tuple[Expr, str, Expr]:
    """Left side, sign and right side of what ``gap sign 0`` says of its only variable.

    Where it is not linear, or has several, it stays as it is.
    """
    if len(gap.free_symbols) == 1:
        (variable,) = gap.free_symbols
        slope = gap.diff(variable)
        if slope.is_positive or slope.is_negative:
            bound = -gap.subs(variable, 0) / slope
            return variable, sign if slope.is_positive else FLIPPED[sign], bound
    return gap, sign, sympy.S.Zero


def same_regions(one: "sympy.Set", other: "sympy.Set") -> bool:
    """Do two sets consist of the same pieces, with ends of equal value?"""
    if one == other:
        return True
    mine, theirs = _pieces(one), _pieces(other)
    return (
        mine is not None
        and theirs is not None
        and len(mine) == len(theirs)
        and all(_same_piece(a, b) for a, b in zip(mine, theirs, strict=True))
    )


def _named_set(value: Value) -> "tuple[Expr, sympy.Set] | None":
    match value:
        case Named(value=Region(set=found), symbol=symbol):
            return symbol, found
    return None


def _pieces(region: "sympy.Set") -> "list[tuple[Expr, Expr, bool, bool]] | None":
    """Intervals (low, high, left open, right open) from left to right; a number is a closed one."""
    pieces: list[tuple[Expr, Expr, bool, bool]] = []
    for part in region.args if isinstance(region, sympy.Union) else (region,):
        if isinstance(part, sympy.Interval):
            pieces.append((part.start, part.end, bool(part.left_open), bool(part.right_open)))
        elif isinstance(part, sympy.FiniteSet):
            pieces += [(element, element, False, False) for element in part.args]
        elif part == sympy.S.Reals:
            pieces.append((-sympy.oo, sympy.oo, True, True))
        else:
            return None
    return sorted(pieces, key=lambda piece: (_place(piece[0]), str(piece[0])))


def _place(end: Expr) -> float:
    return float(end) if end.is_extended_real and end.is_number else 0.0


def _same_piece(one: tuple[Expr, Expr, bool, bool], other: tuple[Expr, Expr, bool, bool]) -> bool:
    return one[2:] == other[2:] and agree(one[0], other[0]) and agree(one[1], other[1])
