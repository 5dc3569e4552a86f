"""What an answer can be: a number with a unit, words, a list, a point, a region, a relation."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.units import Unit

NO_UNIT = Unit()


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression, and the unit it is measured in: 5 km, x + 1, 35 %."""

    expr: Expr
    unit: Unit = NO_UNIT


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words, in lower case without punctuation."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Several values. A list of solutions or a set has no order; "1, 4, ..., n" has."""

    values: "tuple[Value, ...]"
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """Values in brackets, in order; two in parentheses may also be an open interval."""

    values: "tuple[Value, ...]"
    may_be_interval: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix, row by row."""

    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """3 : 4, in order and up to a common factor."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A set of numbers: an interval, a union, a solution set."""

    set: Any


@dataclass(frozen=True, slots=True)
class Named:
    """A value with the name it is given: x = 3, f(x) = 0, E = (2, 3)."""

    name: str
    value: "Value"
    symbol: Expr
    """The name as an expression, for when the statement must be compared as an equation."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation or inequality between expressions: ``left sign right``."""

    left: Expr
    sign: str
    right: Expr
    unit: Unit = NO_UNIT
    """Of the right side."""


@dataclass(frozen=True, slots=True)
class Based:
    """A number with the base it is written in: 413 in base 6."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day in minutes after midnight."""

    minutes: int


@dataclass(frozen=True, slots=True)
class Rounded:
    """A value and a decimal that agrees with it to its last digit: 1/3 = 0.333."""

    exact: "Value"
    decimal: "Value"


Value: TypeAlias = (
    Quantity
    | Words
    | Items
    | Point
    | Grid
    | Ratio
    | Region
    | Named
    | Relation
    | Based
    | Clock
    | Rounded
)
