r"""A formula to the value it states: list, point, interval, relation, quantity, words.

The structure is split off first, from the outside in, at signs that stand in no bracket; what is
left are expressions.
"""

import re
from collections.abc import Sequence

import sympy

from verigrad.verifiers.algebra import regions
from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.brackets import CLOSING, OPENING, encloses, split, trimmed
from verigrad.verifiers.algebra.grammar import parse_expression
from verigrad.verifiers.algebra.numeric import agree, rounds_to
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
    Rounded,
    Value,
    Words,
)
from verigrad.verifiers.algebra.wording import plain_words, read_words

INEQUALITIES = ("<", ">", "<=", ">=", "!=")
SEPARATORS = (",", ";", "or", "and")


def read(text: str) -> Value:
    """The value that a formula or a few words state.

    Example: read("x = 7 or x = -7") is Named("x", Items((7, -7))); read("[0, 5)") is a Region.

    Raises:
        Unreadable: it is neither mathematics that we know nor plain words.
    """
    words = read_words(text)
    if words is not None:
        return words
    tokens = trimmed(tokenize(text))
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
    values = [_single(part) for part in parts if part]
    if not values:
        raise Unreadable("there is nothing between the separators")
    return _joined(values, any_of="or" in separators)


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
    if signs:
        return Ratio(tuple(parse_expression(part) for part in parts))
    if any(token.is_sign("pm", "mp") for token in tokens):
        plus, minus = (read_quantity(tokens, minus=sign) for sign in (False, True))
        return Items((plus, minus))
    if tokens[0].is_sign("emptyset", "mathbb") or split(tokens, ("cup", "cap", "setminus"))[1]:
        return Region(_set(tokens))
    return _bracketed(tokens) or read_quantity(tokens)


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
        return _statement(parts[1])
    if not inner:
        return Region(sympy.S.EmptySet)
    value = _statement(inner)
    if not isinstance(value, Items):
        return Items((value,))
    return value if value.ordered else Items(tuple(dict.fromkeys(value.values)))


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
        name = _label(parts[0])
        return Named(name, _single(parts[1]), _symbol(parts[0]))
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
    if _label(parts[0]):
        value = _chain([_single(part) for part in parts[1:]])
        return Named(_label(parts[0]), value, _symbol(parts[0]))
    if len(parts) == 2 and _label(parts[1]) and signs == ["="]:
        return Named(_label(parts[1]), _single(parts[0]), _symbol(parts[1]))
    values = [_single(part) for part in parts]
    if all(isinstance(value, Quantity) and not value.expr.free_symbols for value in values):
        return _chain(values)
    match values:
        case [Quantity(expr=left), Quantity(expr=right)]:
            return Relation(left, "=", right)
    raise Unreadable("an equation between things that are not expressions")


def _chain(values: list[Value]) -> Value:
    """The result of "a = b = c": the last, after a check that no two numbers contradict."""
    result = values[-1]
    for value in reversed(values[:-1]):
        if not (isinstance(value, Quantity) and isinstance(result, Quantity)):
            continue
        if value.expr.free_symbols or agree(value.expr, result.expr):
            continue
        if not rounds_to(value.expr, result.expr):
            raise Unreadable("the two sides of an equals sign have different values")
        return Rounded(Quantity(value.expr, result.unit), result)
    return result


def _label(tokens: Sequence[Token]) -> str:
    """The name on one side of an equals sign, or "": x, x_1, f(x), Area, angle ABC, (x, y)."""
    spelled = "".join(token.text.split()[-1] for token in tokens if not token.is_sign("{", "}"))
    if all(token.kind is Kind.TEXT for token in tokens):
        return plain_words(spelled)
    if any(token.is_sign("angle") for token in tokens) or re.fullmatch(r"[A-Z]{2,4}", spelled):
        return spelled
    if tokens[0].kind is Kind.NAME and tokens[0].text not in ("pi", "e", "i", "infty"):
        if len(tokens) == 1 or tokens[1].is_sign("_", "'"):
            return spelled if not any(token.is_sign(*"+*/^") for token in tokens) else ""
        if tokens[1].is_sign("(") and encloses(tokens[1:]) and tokens[-1].is_sign(")"):
            return spelled
        if re.fullmatch(r"[fgh]\^-1\(\w\)", spelled):
            return spelled
    names = [token for token in tokens if token.kind is Kind.NAME]
    if tokens[0].is_sign("(") and len(names) * 2 + 1 == len(tokens):
        return spelled
    return ""


def _symbol(tokens: Sequence[Token]) -> Expr:
    """The left side of a named value as an expression; its bare name where it is none."""
    try:
        return parse_expression(tokens)
    except Unreadable:
        return sympy.Symbol(_label(tokens))
