r"""Tokens to an expression, by recursive descent.

    sum      := product (("+" | "-") product)*
    product  := unary (("*" | "/" | nothing) unary)*
    unary    := ("+" | "-") unary | power
    power    := atom ("!" | "%" | "^" exponent)*
    atom     := number | name | function argument | \frac.. | \sqrt.. | brackets | |sum|

A plus-minus sign is none of these: who reads a formula with one reads it twice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sympy

from verigrad.verifiers.algebra import bounded
from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.brackets import PARTNERS
from verigrad.verifiers.algebra.functions import (
    CONSTANTS,
    INVERSES,
    ONE_ARGUMENT,
    SEVERAL_ARGUMENTS,
    UNKNOWN_FUNCTIONS,
)
from verigrad.verifiers.algebra.mixed import mixed_part
from verigrad.verifiers.algebra.tokens import Kind, Token, Unreadable

MOST_NESTED = 80
"""Deepest nesting of brackets and operators."""

_END = Token(Kind.SIGN, "end")


def parse_expression(tokens: Sequence[Token]) -> Expr:
    """The expression that all of the tokens spell.

    Raises:
        Unreadable: they do not spell one, or it has no value (a division by zero).
    """
    parser = _Parser(tokens)
    expr = parser.sum()
    if parser.peek is not _END:
        raise Unreadable(f"{parser.peek.text!r} is not expected after an expression")
    if expr.has(sympy.zoo, sympy.nan):
        raise Unreadable("the expression has no value")
    return expr


class _Parser:
    """A position in the tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0

    @property
    def peek(self) -> Token:
        return self.ahead(0)

    def ahead(self, distance: int) -> Token:
        place = self.at + distance
        return self.tokens[place] if place < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.peek
        self.at += 1
        return token

    def accept(self, *signs: str) -> str | None:
        if self.peek.is_sign(*signs):
            return self.take().text
        return None

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise Unreadable(f"{sign!r} is expected before {self.peek.text!r}")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise Unreadable(f"the formula is nested more than {MOST_NESTED} deep")
        yield
        self.depth -= 1

    def sum(self) -> Expr:
        with self.deeper():
            total = self.product()
            while sign := self.accept("+", "-"):
                term = self.product()
                total = total - term if sign == "-" else total + term
            return total

    def product(self) -> Expr:
        result = self.unary()
        while True:
            if self.accept("*"):
                result = result * self.unary()
            elif self.accept("/"):
                result = _quotient(result, self.unary())
            elif self.starts_factor():
                result = result * self.power()
            else:
                return result

    def starts_factor(self) -> bool:
        """Does a factor follow without a sign? Not a number: "2 3" is not a product."""
        token = self.peek
        if token.kind is Kind.SIGN:
            return token.text in ("(", "[", "{", "lvert", "lfloor", "lceil", "sqrt", "cbrt") or (
                token.text == "|" and not self.bars
            )
        if token.kind is Kind.COMMAND:
            return not token.text.startswith(("begin", "end"))
        return token.kind in (Kind.NAME, Kind.FUNCTION)

    def unary(self) -> Expr:
        if sign := self.accept("+", "-"):
            with self.deeper():
                value = self.unary()
            return -value if sign == "-" else value
        return self.power()

    def power(self) -> Expr:
        result = self.atom()
        while sign := self.accept("!", "%", "^", "degree"):
            if sign == "!":
                result = bounded.factorial(result)
            elif sign == "%":
                result = result / 100
            elif sign == "degree" or self.takes_degree():
                result = result * sympy.pi / 180
            else:
                result = bounded.power(result, self.exponent())
        return result

    def takes_degree(self) -> bool:
        """After "^": is it the degree sign, bare or in a group?"""
        if self.accept("degree"):
            return True
        if (
            self.peek.is_sign("{")
            and self.ahead(1).is_sign("degree")
            and self.ahead(2).is_sign("}")
        ):
            self.at += 3
            return True
        return False

    def exponent(self) -> Expr:
        with self.deeper():
            if self.accept("-"):
                return -self.exponent()
            base = self.atom()
            return bounded.power(base, self.exponent()) if self.accept("^") else base

    def atom(self) -> Expr:
        with self.deeper():
            return self.shallow_atom()

    def shallow_atom(self) -> Expr:
        token = self.take()
        if token.kind is Kind.NUMBER:
            return self.number(token)
        if token.kind is Kind.NAME:
            return self.name(token)
        if token.kind is Kind.FUNCTION:
            return self.function(token.text)
        if token.kind is Kind.COMMAND:
            return self.command(token.text)
        if token.is_sign("sqrt", "cbrt"):
            return bounded.power(self.atom(), sympy.Rational(1, 2 if token.text == "sqrt" else 3))
        if token.kind is Kind.SIGN and token.text in PARTNERS:
            return self.bracketed(token.text)
        raise Unreadable(f"{token.text!r} is not expected here")

    def bracketed(self, opening: str) -> Expr:
        self.bars += 1 if opening == "|" else 0
        inner = self.sum()
        self.bars -= 1 if opening == "|" else 0
        self.expect(PARTNERS[opening])
        match opening:
            case "|" | "lvert":
                return sympy.Abs(inner)
            case "lfloor":
                return sympy.floor(inner)
            case "lceil":
                return sympy.ceiling(inner)
        return inner

    def number(self, token: Token) -> Expr:
        assert token.value is not None  # every number has one
        value = sympy.Rational(token.value.numerator, token.value.denominator)
        if self.peek.is_sign("_"):
            raise Unreadable("a number has a subscript")
        if token.integer is not None:
            part, length = mixed_part(self.tokens[self.at : self.at + 7])
            self.at += length
            value += sympy.Rational(part.numerator, part.denominator)
        return value

    def name(self, token: Token) -> Expr:
        name = token.text + self.primes_and_subscript()
        if name in UNKNOWN_FUNCTIONS and self.peek.is_sign("("):
            return bounded.opaque(name, *self.arguments())
        return CONSTANTS[name] if name in CONSTANTS else sympy.Symbol(name)

    def primes_and_subscript(self) -> str:
        text = ""
        while self.accept("'"):
            text += "'"
        if not self.accept("_"):
            return text
        return text + "_" + self.raw_argument()

    def raw_argument(self) -> str:
        """The text of a group or of one token, not read as an expression."""
        if not self.accept("{"):
            return self.take().text
        words, depth = "", 1
        while True:
            token = self.take()
            if token is _END:
                raise Unreadable("a group is never closed")
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            if not depth:
                return words
            words += token.text

    def arguments(self) -> list[Expr]:
        self.expect("(")
        found = [self.sum()]
        while self.accept(","):
            found.append(self.sum())
        self.expect(")")
        return found

    def function(self, name: str) -> Expr:
        if name in SEVERAL_ARGUMENTS:
            return SEVERAL_ARGUMENTS[name](*self.arguments())
        if name not in ONE_ARGUMENT:
            return bounded.opaque(name, *self.arguments())
        base = self.group_or_atom() if name == "log" and self.accept("_") else None
        raised = self.exponent() if self.accept("^") else sympy.Integer(1)
        if raised == -1 and name in INVERSES:
            name, raised = INVERSES[name], sympy.Integer(1)
        value = bounded.applied(ONE_ARGUMENT[name], self.argument())
        if base is not None:
            value = _quotient(value, sympy.log(base))
        return bounded.power(value, raised)

    def argument(self) -> Expr:
        r"""In parentheses, or the product up to the next sign: ``\sin 2x``."""
        if self.peek.is_sign("(", "{", "["):
            return self.atom()
        if self.peek.is_sign("-"):
            return self.unary()
        value = self.power()
        while self.peek.kind is Kind.NAME or self.peek.is_sign("sqrt"):
            value = value * self.power()
        return value

    def group_or_atom(self) -> Expr:
        """One TeX argument: a group, or a single digit or name."""
        token = self.peek
        if token.kind is Kind.NUMBER and len(token.text) > 1 and token.integer is not None:
            raise Unreadable(f"{token.text!r} is not one TeX argument")
        return self.atom()

    def command(self, name: str) -> Expr:
        if name == "frac":
            return _quotient(self.group_or_atom(), self.group_or_atom())
        if name == "binom":
            return bounded.binomial(self.group_or_atom(), self.group_or_atom())
        if name == "sqrt":
            degree = self.bracketed(self.take().text) if self.peek.is_sign("[") else 2
            return bounded.power(self.group_or_atom(), sympy.Integer(1) / degree)
        raise Unreadable(f"{name!r} is not expected in an expression")


def _quotient(above: Expr, below: Expr) -> Expr:
    if below == 0:
        raise Unreadable("a division by zero")
    return above / below
