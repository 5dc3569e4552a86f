"""What a computation comes to: "3 + 4 = 7"."""

from collections.abc import Sequence

from verigrad.verifiers.algebra.numeric import agree, rounds_to
from verigrad.verifiers.algebra.tokens import Unreadable
from verigrad.verifiers.algebra.values import Quantity, Rounded, Value


def is_constant(value: Value) -> bool:
    """Is it a number, without names in it?"""
    return isinstance(value, Quantity) and not value.expr.free_symbols


def outcome(values: Sequence[Value]) -> Quantity | None:
    """The number that a chain of numbers comes to; None where not all of them are numbers.

    Raises:
        Unreadable: they contradict each other.
    """
    if not all(map(is_constant, values)):
        return None
    result = chain(values)
    exact = result.exact if isinstance(result, Rounded) else result
    return exact if isinstance(exact, Quantity) else None


def chain(values: Sequence[Value]) -> Value:
    """The result of "a = b = c": the last, after a check that no two numbers contradict.

    Raises:
        Unreadable: two do.
    """
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
