"""The functions and constants that formulas may use, as SymPy knows them."""

from collections.abc import Callable

import sympy

from verigrad.verifiers.algebra.bounded import Expr

CONSTANTS: dict[str, Expr] = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "infty": sympy.oo}
UNKNOWN_FUNCTIONS = frozenset("fghFGHPO")
"""Letters that are functions when parentheses follow."""


def _log10(argument: Expr) -> Expr:
    return sympy.log(argument, 10)


ONE_ARGUMENT: dict[str, Callable[[Expr], Expr]] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "cot": sympy.cot,
    "sec": sympy.sec,
    "csc": sympy.csc,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "coth": sympy.coth,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "arccot": sympy.acot,
    "arcsinh": sympy.asinh,
    "arccosh": sympy.acosh,
    "arctanh": sympy.atanh,
    "exp": sympy.exp,
    "ln": sympy.log,
    "log": sympy.log,
    "lg": _log10,
}
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"} | {
    "sinh": "arcsinh",
    "cosh": "arccosh",
    "tanh": "arctanh",
}
SEVERAL_ARGUMENTS: dict[str, Callable[..., Expr]] = {
    "gcd": sympy.gcd,
    "lcm": sympy.lcm,
    "min": sympy.Min,
    "max": sympy.Max,
}
