"""Is a given value the reference value? Each kind of value has its own meaning of "the same"."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import sympy

from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.numeric import agree
from verigrad.verifiers.algebra.regions import as_region, same_regions
from verigrad.verifiers.algebra.relations import as_relation, same_relations
from verigrad.verifiers.algebra.units import Unit, is_unit, read_unit
from verigrad.verifiers.algebra.values import (
    NO_UNIT,
    Based,
    Clock,
    Grid,
    Items,
    Named,
    Point,
    Quantity,
    Ratio,
    Region,
    Relation,
    Rounded,
    Value,
    Words,
)

Close: TypeAlias = Callable[[Expr, Expr], bool]
"""Are two expressions equal, or near enough where a tolerance is given? (reference, given)"""

_NUMBER_UNITS = ("percent", "degree")
"""Units that are numbers themselves: 35 % is 0.35, and 45 degrees are pi/4."""


def same(reference: Value, given: Value, close: Close = agree) -> bool:
    """Does a given value state the reference value?

    Args:
        reference: the right answer.
        given: the answer to judge.
        close: equality of expressions, with a tolerance if there is one.
    """
    for one in _readings(reference):
        for other in _readings(given):
            judge = _JUDGES.get((type(one), type(other)), _same_in_other_form)
            if judge(one, other, close):
                return True
    return False


def _readings(value: Value) -> tuple[Value, ...]:
    return (value.exact, value.decimal) if isinstance(value, Rounded) else (value,)


def _same_in_other_form(reference: Any, given: Any, close: Close) -> bool:
    """Values of two kinds: a name left out, one element for its set, a list for its point."""
    match reference, given:
        case Named(), _:
            return same(reference.value, given, close)
        case _, Named():
            return same(reference, given.value, close)
        case Items(values=(only,)), _:
            return same(only, given, close)
        case ((Quantity() | Clock() | Words()), Items(values=values)):
            return all(same(reference, value, close) for value in values)
        case Point(), Items() if _all_named(given):
            return _in_order(reference.values, _values(given), close)
        case Items(), Point() if _all_named(reference):
            return _in_order(_values(reference), given.values, close)
        case _:
            return _same_sets(reference, given, close)


def _same_named(reference: Named, given: Named, close: Close) -> bool:
    if reference.name.casefold() == given.name.casefold():
        return same(reference.value, given.value, close)
    match reference.value, given.value:
        case Quantity(), Quantity():
            return same_relations(as_relation(reference), as_relation(given))
    return False


def _same_named_and_relation(reference: Any, given: Any, close: Close) -> bool:
    """A name with its value is an equation too: y = 2x + 3 against 2x - y + 3 = 0."""
    named = reference if isinstance(reference, Named) else given
    if not isinstance(named.value, Quantity):
        return False
    one, other = (as_relation(value) for value in (reference, given))
    return same_relations(one, other)


def _is_value_of(reference: Quantity, given: Relation, close: Close) -> bool:
    """An expression with its value states the value: m + n = 25."""
    return (
        given.sign == "="
        and bool(given.left.free_symbols)
        and not (given.right.free_symbols or reference.expr.free_symbols)
        and _same_quantities(reference, Quantity(given.right, given.unit), close)
    )


def _same_quantities(reference: Quantity, given: Quantity, close: Close) -> bool:
    if given.expr.free_symbols and not reference.expr.free_symbols:
        given = _with_its_unit(given)
    mine, theirs = reference.unit, given.unit
    if mine == theirs:
        return close(reference.expr, given.expr)
    if NO_UNIT in (mine, theirs):
        # Left out, or a percentage as the number it is.
        return close(reference.expr, given.expr) or (
            _is_number_unit(mine, theirs) and close(_as_number(reference), _as_number(given))
        )
    if mine.is_plain or theirs.is_plain:
        return close(reference.expr, given.expr)
    if mine.words or theirs.words:
        one, other = set(mine.words.split()), set(theirs.words.split())
        compatible = bool(one and other) and (one <= other or other <= one)
        return compatible and close(reference.expr, given.expr)
    return mine.dimensions == theirs.dimensions and close(
        reference.expr, given.expr * _size(theirs) / _size(mine)
    )


def _with_its_unit(given: Quantity) -> Quantity:
    """Where a number is expected, a letter that is written to it is its unit: 5m, 5m^2."""
    if len(given.expr.free_symbols) == 1 and given.unit == NO_UNIT:
        (symbol,) = given.expr.free_symbols
        number, rest = given.expr.as_independent(symbol, as_Add=False)
        base, exponent = rest.as_base_exp()
        power = exponent if base == symbol and exponent.is_Integer else 0
        if number != 1 and 0 < abs(power) < 10 and is_unit(str(symbol)):
            return Quantity(number, read_unit(f"{symbol}^{power}"))
    return given


def _size(unit: Unit) -> Expr:
    return sympy.Rational(unit.factor.numerator, unit.factor.denominator)


def _is_number_unit(*units: Unit) -> bool:
    return any(unit.dimensions == ((name, 1),) for unit in units for name in _NUMBER_UNITS)


def _as_number(quantity: Quantity) -> Expr:
    if quantity.unit.dimensions == (("percent", 1),):
        return quantity.expr / 100
    return quantity.expr * sympy.pi / 180 if quantity.unit is not NO_UNIT else quantity.expr


def _same_items(reference: Items, given: Items, close: Close) -> bool:
    if reference.ordered or given.ordered:
        return _in_order(reference.values, given.values, close)
    if _all_named(reference):
        if _all_named(given):
            return _matched(reference.values, given.values, close)
        return _in_order(_values(reference), given.values, close)
    values = given.values
    if len(values) > len(reference.values):
        # A root named twice is still one root.
        values = _distinct(values, close)
    return _matched(reference.values, values, close)


def _matched(reference: Sequence[Value], given: Sequence[Value], close: Close) -> bool:
    """Does each value have a partner of its own?"""
    remaining = list(given)
    if len(remaining) != len(reference):
        return False
    for value in reference:
        partner = next((one for one in remaining if same(value, one, close)), None)
        if partner is None:
            return False
        remaining.remove(partner)
    return True


def _distinct(values: Sequence[Value], close: Close) -> tuple[Value, ...]:
    kept: list[Value] = []
    for value in values:
        if not any(same(one, value, close) for one in kept):
            kept.append(value)
    return tuple(kept)


def _in_order(reference: Sequence[Value], given: Sequence[Value], close: Close) -> bool:
    return len(reference) == len(given) and all(
        same(one, other, close) for one, other in zip(reference, given, strict=True)
    )


def _all_named(items: Items) -> bool:
    return all(isinstance(value, Named) for value in items.values)


def _values(items: Items) -> tuple[Value, ...]:
    return tuple(value.value if isinstance(value, Named) else value for value in items.values)


def _same_grids(reference: Grid, given: Grid, close: Close) -> bool:
    return [len(row) for row in reference.rows] == [len(row) for row in given.rows] and all(
        close(one, other)
        for mine, theirs in zip(reference.rows, given.rows, strict=True)
        for one, other in zip(mine, theirs, strict=True)
    )


def _is_column(reference: Any, given: Any, close: Close) -> bool:
    """A column of a matrix is the point with the same coordinates; a row is not."""
    grid, point = (reference, given) if isinstance(reference, Grid) else (given, reference)
    column = tuple(Quantity(row[0]) for row in grid.rows if len(row) == 1)
    return len(column) == len(grid.rows) and _in_order(column, point.values, close)


def _same_points(reference: Point, given: Point, close: Close) -> bool:
    return _in_order(reference.values, given.values, close)


def _same_words(reference: Words, given: Words, close: Close) -> bool:
    return reference.text == given.text


def _same_times(reference: Clock, given: Clock, close: Close) -> bool:
    return reference.minutes == given.minutes


def _same_ratio_and_number(reference: Any, given: Any, close: Close) -> bool:
    """3 : 4 is the number 3/4."""
    ratio, number = (
        (reference, given.expr) if isinstance(reference, Ratio) else (given, reference.expr)
    )
    if len(ratio.parts) != 2 or ratio.parts[1] == 0:
        return False
    quotient = ratio.parts[0] / ratio.parts[1]
    return close(quotient, number) if ratio is reference else close(number, quotient)


def _same_based(reference: Based, given: Based, close: Close) -> bool:
    return _amount(reference) is not None and _amount(reference) == _amount(given)


def _same_digits(reference: Based, given: Quantity, close: Close) -> bool:
    """The question names the base, so the digits alone will do; the value in base ten will not."""
    return bool(given.expr == sympy.Integer(reference.digits))


def _same_amount(reference: Quantity, given: Based, close: Close) -> bool:
    return bool(reference.expr == _amount(given))


def _same_ratios(reference: Ratio, given: Ratio, close: Close) -> bool:
    if len(reference.parts) != len(given.parts):
        return False
    mine, theirs = reference.parts, given.parts
    return all(agree(mine[0] * b, theirs[0] * a) for a, b in zip(mine, theirs, strict=True))


def _same_relations(reference: Relation, given: Relation, close: Close) -> bool:
    return same_relations(reference, given)


def _amount(based: Based) -> int | None:
    try:
        return int(based.digits, based.base)
    except ValueError:
        return None


def _same_sets(reference: Value, given: Value, close: Close) -> bool:
    if not isinstance(reference, Region) and not isinstance(given, Region):
        return False
    mine, theirs = as_region(reference), as_region(given)
    return mine is not None and theirs is not None and same_regions(mine, theirs)


_JUDGES: dict[tuple[type, type], Callable[[Any, Any, Close], bool]] = {
    (Quantity, Quantity): _same_quantities,
    (Items, Items): _same_items,
    (Point, Point): _same_points,
    (Named, Named): _same_named,
    (Quantity, Relation): _is_value_of,
    (Named, Relation): _same_named_and_relation,
    (Relation, Named): _same_named_and_relation,
    (Relation, Relation): _same_relations,
    (Words, Words): _same_words,
    (Clock, Clock): _same_times,
    (Grid, Grid): _same_grids,
    (Grid, Point): _is_column,
    (Point, Grid): _is_column,
    (Ratio, Ratio): _same_ratios,
    (Ratio, Quantity): _same_ratio_and_number,
    (Quantity, Ratio): _same_ratio_and_number,
    (Based, Based): _same_based,
    (Based, Quantity): _same_digits,
    (Quantity, Based): _same_amount,
}
"""How two kinds of values are compared; any other pair is compared in another form."""
