"""Tokens to a quantity: an expression with its unit, or a number in another base."""

from collections.abc import Sequence

from verigrad.verifiers.algebra.grammar import parse_expression
from verigrad.verifiers.algebra.tokens import Kind, Token, Unreadable
from verigrad.verifiers.algebra.units import read_unit
from verigrad.verifiers.algebra.values import Based, Quantity, Value, Words
from verigrad.verifiers.algebra.wording import plain_words

CURRENCIES = {"dollar": "$", "cent": "¢", "euro": "€", "pound": "£", "yen": "¥", "rupee": "₹"}
_UNIT_SIGNS = ("^", "/", "*", "{", "}", "(", ")", "degree", "%", ".")


def read_quantity(tokens: Sequence[Token]) -> Value:
    """An expression with the unit that stands before or after it, or words alone.

    Raises:
        Unreadable: it is neither.
    """
    sign = [tokens[0]] if tokens[0].is_sign("-", "+") else []
    rest = tokens[len(sign) :]
    unit = ""
    if rest and rest[0].is_sign(*CURRENCIES):
        unit, rest = CURRENCIES[rest[0].text], rest[1:]
    start = _unit_start(rest)
    if start == 0:
        return Words(plain_words(" ".join(token.text for token in rest)))
    unit += _spelled(rest[start:])
    based = _based(rest[:start])
    if based is not None:
        return based
    expr = parse_expression([*sign, *rest[:start]])
    return Quantity(expr, read_unit(unit)) if unit else Quantity(expr)


def _unit_start(tokens: Sequence[Token]) -> int:
    """Where the unit at the end begins: at words, a currency, or a final percent or degree sign."""
    for position, token in enumerate(tokens):
        if token.kind is Kind.TEXT or token.is_sign(*CURRENCIES):
            return position - (position > 0 and tokens[position - 1].is_sign("/"))
        if token.is_sign("degree", "%") and _is_final(tokens, position):
            raised = [before.text for before in tokens[max(0, position - 2) : position]]
            return position - (2 if raised == ["^", "{"] else raised[-1:].count("^"))
    return len(tokens)


def _is_final(tokens: Sequence[Token], position: int) -> bool:
    """Only a closing brace, or the C of Celsius, follows; and it is no argument of a function."""
    tail = [token.text for token in tokens[position + 1 :]]
    functions = any(token.kind is Kind.FUNCTION for token in tokens[:position])
    return not functions and all(text in ("}", "C", "F") for text in tail)


def _spelled(tokens: Sequence[Token]) -> str:
    """A unit as text.

    Raises:
        Unreadable: an expression goes on behind the unit.
    """
    words = ""
    before = ""
    for token in tokens:
        joins = token.kind is Kind.TEXT or token.is_sign(*_UNIT_SIGNS, *CURRENCIES)
        if not joins and before not in ("^", "{", "/", "*", "-", "degree", "}"):
            raise Unreadable(f"{token.text!r} is not expected after a unit")
        before = token.text
        words += " " + (CURRENCIES | {"degree": "°"}).get(token.text, token.text)
    return words.replace("- ", "-")


def _based(tokens: Sequence[Token]) -> Based | None:
    """A number with its base as a subscript."""
    bare = [token for token in tokens if not token.is_sign("{", "}")]
    if len(bare) == 3 and bare[1].is_sign("_") and bare[0].integer is not None:
        base = bare[2].integer
        if base is not None and 2 <= base <= 36:
            return Based(bare[0].text, base)
    return None
