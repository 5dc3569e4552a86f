r"""A formula to the value it states: list, point, interval, relation, quantity, words.

The structure is split off first, from the outside in, at signs that stand in no bracket; what is
left are expressions.
"""

from collections.abc import Sequence
from dataclasses import replace

import sympy

from verigrad.verifiers.algebra import regions
from verigrad.verifiers.algebra.brackets import CLOSING, OPENING, encloses, split, trimmed
from verigrad.verifiers.algebra.chains import chain, is_constant, outcome
from verigrad.verifiers.algebra.grammar import parse_expression
from verigrad.verifiers.algebra.naming import (
    label,
    named_by_notation,
    symbol,
    without_announcement,
    without_option,
)
from verigrad.verifiers.algebra.quantities import read_quantity
from verigrad.verifiers.algebra.tokens import Kind, Token, Unreadable, tokenize
from verigrad.verifiers.algebra.values import (
    Grid,
    Items,
    Named,
    Point,
    Quantity,
    Ratio,
    Region,
    Relation,
    Value,
    Words,
)
from verigrad.verifiers.algebra.wording import read_words

INEQUALITIES = ("<", ">", "<=", ">=", "!=")
SEPARATORS = (",", ";", "or", "and", "\\\\")


def read(text: str) -> Value:
    """The value that a formula or a few words state.

    Example: read("x = 7 or x = -7") is Named("x", Items((7, -7))); read("[0, 5)") is a Region.

    Raises:
        Unreadable: it is neither mathematics that we know nor plain words.
    """
    text = without_option(text)
    words = read_words(text)
    if words is not None:
        return words
    sides = named_by_notation(text)
    if sides is not None:
        return Named(sides[0], read(sides[1]), sympy.Symbol(sides[0]))
    tokens = trimmed(without_announcement(trimmed(tokenize(text))))
    if not tokens:
        raise Unreadable("there is nothing to read")
    try:
        return _statement(tokens)
    except RecursionError:
        raise Unreadable("the formula is nested too deep") from None
    except ValueError as error:
        raise Unreadable(f"the formula cannot be computed: {error}") from None


def _statement(tokens: Sequence[Token]) -> Value:
    parts, separators = split(tokens, SEPARATORS)
    if len(parts) == 1:
        return _single(tokens)
    if any(_is_ellipsis(part) for part in parts):
        members = [Words("...") if _is_ellipsis(part) else _single(part) for part in parts]
        return Items(tuple(members), ordered=True)
    values = [value for part in parts if part for value in _each(part)]
    if not values:
        raise Unreadable("there is nothing between the separators")
    return _joined(values, any_of="or" in separators)


def _each(tokens: Sequence[Token]) -> tuple[Value, ...]:
    """The value of a part of a list; both of them where it has a plus-minus sign."""
    value = _single(tokens)
    if any(token.is_sign("pm", "mp") for token in tokens):
        match value:
            case Items(values=values):
                return values
            case Named(value=Items(values=values)):
                return tuple(Named(value.name, one, value.symbol) for one in values)
    return (value,)


def _is_ellipsis(tokens: Sequence[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].is_sign("...")


def _joined(values: list[Value], *, any_of: bool) -> Value:
    """Several statements as one: solutions of one name, conditions on one variable, or a list."""
    first = values[0]
    if len(values) == 1:
        return first
    region = regions.conditions(values, any_of=any_of)
    if region is not None:
        return region
    if isinstance(first, Named):
        names = {value.name for value in values if isinstance(value, Named)}
        if len(names) == 1:
            plain = [value.value if isinstance(value, Named) else value for value in values]
            return Named(first.name, Items(tuple(plain)), first.symbol)
    return Items(tuple(values))


def _single(tokens: Sequence[Token]) -> Value:
    """One value: no separator stands outside brackets."""
    tokens = trimmed(list(tokens))
    parts, signs = split(tokens, ("=", "approx", "in", *INEQUALITIES))
    if signs:
        return _relation(parts, signs)
    if not tokens:
        raise Unreadable("a part of a list is empty")
    parts, signs = split(tokens, (":",))
    if signs and parts[0] and all(token.kind is Kind.TEXT for token in parts[0]):
        return Named(label(parts[0]), _single(tokens[len(parts[0]) + 1 :]), symbol(parts[0]))
    if signs:
        return Ratio(tuple(parse_expression(part) for part in parts))
    if any(token.is_sign("pm", "mp") for token in tokens):
        return Items((_single(_signed(tokens, "+-")), _single(_signed(tokens, "-+"))))
    if tokens[0].is_sign("emptyset", "mathbb") or split(tokens, ("cup", "cap", "setminus"))[1]:
        return Region(_set(tokens))
    return _bracketed(tokens) or read_quantity(tokens)


def _signed(tokens: Sequence[Token], signs: str) -> list[Token]:
    r"""The tokens with the first sign for every ``\pm`` and the second for every ``\mp``."""
    chosen = dict(zip(("pm", "mp"), signs, strict=True))
    return [
        replace(token, text=chosen[token.text]) if token.is_sign(*chosen) else token
        for token in tokens
    ]


def _bracketed(tokens: Sequence[Token]) -> Value | None:
    """A point, interval, set or matrix whose brackets enclose everything; else None."""
    first, last = tokens[0], tokens[-1]
    if first.kind is Kind.COMMAND and first.text.startswith("begin "):
        return _grid(tokens)
    if not (first.is_sign(*OPENING) and last.is_sign(*CLOSING) and encloses(tokens)):
        return None
    inner = tokens[1:-1]
    if inner and inner[0].text.startswith("begin "):
        return _grid(inner)
    parts, _ = split(inner, (",", ";"))
    if first.is_sign("\\{") or (first.is_sign("{") and len(parts) > 1):
        return _braces(inner)
    if not inner:
        raise Unreadable("there is nothing in the brackets")
    if len(parts) == 1:
        return _statement(inner) if first.is_sign("(", "{") and last.is_sign(")", "}") else None
    values = tuple(_single(part) for part in parts)
    if first.is_sign("(", "langle") and last.is_sign(")", "rangle"):
        return Point(values, may_be_interval=first.is_sign("(") and len(values) == 2)
    if len(values) == 2:
        return Region(_interval(tokens))
    return Point(values)


def _braces(inner: Sequence[Token]) -> Value:
    """A set: its elements, or the condition after the bar."""
    parts, _ = split(inner, ("|", ":"))
    if len(parts) == 2 and inner:
        return _described(parts[0], parts[1])
    if not inner:
        return Region(sympy.S.EmptySet)
    value = _statement(inner)
    if not isinstance(value, Items):
        return Items((value,))
    return value if value.ordered else Items(tuple(dict.fromkeys(value.values)))


def _described(members: Sequence[Token], condition: Sequence[Token]) -> Value:
    r"""A set by the condition that its members fulfil: {x | x > 2}, {x in Z : x > 2}.

    Raises:
        Unreadable: its members are more than one variable: {2k | k in Z}.
    """
    parts, signs = split(members, ("in",))
    if len(parts[0]) != 1 or parts[0][0].kind is not Kind.NAME:
        raise Unreadable("a set of expressions is not read")
    value = _statement(condition)
    if not signs:
        return value
    fulfilled = regions.conditions([value], any_of=False)
    region = regions.as_region(fulfilled.value) if fulfilled is not None else None
    if region is None:
        raise Unreadable("the condition of a set is not read")
    return Region(regions.combined(_set(parts[1]), "cap", region))


def _grid(tokens: Sequence[Token]) -> Grid:
    if not tokens[-1].text.startswith("end ") or "matrix" not in tokens[0].text:
        raise Unreadable(f"{tokens[0].text!r} is not a matrix that ends where the answer does")
    rows, _ = split(tokens[1:-1], ("\\\\",))
    cells = [split(row, ("&",))[0] for row in rows if row]
    return Grid(tuple(tuple(parse_expression(cell) for cell in row) for row in cells))


def _set(tokens: Sequence[Token]) -> "sympy.Set":
    if not tokens:
        raise Unreadable("there is nothing in the brackets of a set")
    parts, signs = split(tokens, ("cup", "cap", "setminus"))
    if not signs and tokens[0].is_sign("mathbb"):
        parts, signs = split(tokens, ("-",))
    result = _set_term(parts[0])
    for sign, part in zip(signs, parts[1:], strict=True):
        result = regions.combined(result, sign, _set_term(part))
    return result


def _set_term(tokens: Sequence[Token]) -> "sympy.Set":
    spelled = "".join(token.text for token in tokens)
    if spelled in regions.NAMED:
        return regions.NAMED[spelled]
    if not tokens:
        raise Unreadable("a set is missing beside its operator")
    if tokens[0].is_sign("(") and encloses(tokens) and len(split(tokens[1:-1], (",",))[0]) == 1:
        return _set(tokens[1:-1])
    value = _bracketed(tokens)
    found = regions.as_region(value) if value is not None else None
    if found is None:
        raise Unreadable(f"{spelled!r} is not a set of numbers")
    return found


def _interval(tokens: Sequence[Token]) -> "sympy.Set":
    low, high = (parse_expression(part) for part in split(tokens[1:-1], (",", ";"))[0])
    return regions.interval(low, high, tokens[0].text == "(", tokens[-1].text == ")")


def _relation(parts: list[Sequence[Token]], signs: list[str]) -> Value:
    if not all(parts):
        raise Unreadable("a relation lacks a side")
    if signs == ["in"]:
        name = label(parts[0])
        return Named(name, _single(parts[1]), symbol(parts[0]))
    if set(signs) <= {"=", "approx"}:
        return _equality(parts, signs)
    if "=" in signs or "in" in signs or "approx" in signs:
        raise Unreadable("a relation mixes equality with inequality")
    sides = [parse_expression(part) for part in parts]
    relations: list[Value] = [
        Relation(left, sign, right)
        for left, sign, right in zip(sides, signs, sides[1:], strict=False)
    ]
    return regions.conditions(relations, any_of=False) or (
        relations[0] if len(relations) == 1 else Items(tuple(relations))
    )


def _equality(parts: list[Sequence[Token]], signs: list[str]) -> Value:
    """A named value, a computation with its result, or an equation."""
    if label(parts[0]):
        value = chain([_single(part) for part in parts[1:]])
        return Named(label(parts[0]), value, symbol(parts[0]))
    if len(parts) == 2 and label(parts[1]) and signs == ["="]:
        return Named(label(parts[1]), _single(parts[0]), symbol(parts[1]))
    values = [_single(part) for part in parts]
    if all(map(is_constant, values)):
        return chain(values)
    match values:
        case [Quantity(expr=left), Quantity(expr=right, unit=unit)]:
            return Relation(left, "=", right, unit)
        case [Quantity(expr=left), *others]:
            result = outcome(others)
            if result is not None:
                return Relation(left, "=", result.expr, result.unit)
    raise Unreadable("an equation between things that are not expressions")
