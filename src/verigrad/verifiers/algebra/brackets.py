"""Cutting tokens at signs that stand in no bracket."""

from collections.abc import Sequence

from verigrad.verifiers.algebra.tokens import Token

OPENING = ("(", "[", "{", "\\{", "langle", "lvert", "lfloor", "lceil")
CLOSING = (")", "]", "}", "\\}", "rangle", "rvert", "rfloor", "rceil")
PARTNERS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "lvert": "rvert",
    "lfloor": "rfloor",
    "lceil": "rceil",
    "|": "|",
}
"""Brackets around an expression, and how each is closed."""


def split(tokens: Sequence[Token], signs: Sequence[str]) -> tuple[list[Sequence[Token]], list[str]]:
    """The stretches between the given signs outside brackets, and those signs."""
    parts: list[Sequence[Token]] = []
    found: list[str] = []
    depth, start = 0, 0
    for position, token in enumerate(tokens):
        if token.is_sign(*OPENING) or token.text.startswith("begin "):
            depth += 1
        elif token.is_sign(*CLOSING) or token.text.startswith("end "):
            depth -= 1
        elif depth == 0 and token.is_sign(*signs):
            parts.append(tokens[start:position])
            found.append(token.text)
            start = position + 1
    return [*parts, tokens[start:]], found


def encloses(tokens: Sequence[Token]) -> bool:
    """Does the first bracket close at the very end?"""
    depth = 0
    for position, token in enumerate(tokens):
        depth += token.is_sign(*OPENING) - token.is_sign(*CLOSING)
        if depth == 0:
            return position == len(tokens) - 1
    return False


def trimmed(tokens: Sequence[Token]) -> Sequence[Token]:
    """Without the full stop or comma at the end and the equals sign at the start."""
    start, end = 0, len(tokens)
    while end > start and tokens[end - 1].is_sign(".", ",", ";", "\\\\"):
        end -= 1
    while start < end and tokens[start].is_sign("=", "approx", ":", "*"):
        start += 1
    return tokens[start:end]
