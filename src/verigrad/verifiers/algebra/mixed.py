"""Mixed numbers: nine and two fifths is written without a sign."""

from collections.abc import Sequence
from fractions import Fraction

from verigrad.verifiers.algebra.tokens import Kind, Token

_LATEX = ["frac", "{", "n", "}", "{", "n", "}"]
_PLAIN = ["n", "/", "n"]


def mixed_part(following: Sequence[Token]) -> tuple[Fraction, int]:
    r"""The proper fraction at the start of what follows a whole number, and its length in tokens.

    Both are 0 without one. ``9\frac{2}{5}`` and ``9 2/5`` are mixed; ``3\frac{4}{2}`` is a product.
    """
    for shape in (_LATEX, _PLAIN):
        tokens = following[: len(shape)]
        parts = [token.integer for token in tokens if token.integer is not None]
        spelled = ["n" if token.kind is Kind.NUMBER else token.text for token in tokens]
        if spelled == shape and len(parts) == 2 and 0 < parts[0] < parts[1]:
            return Fraction(parts[0], parts[1]), len(shape)
    return Fraction(0), 0
