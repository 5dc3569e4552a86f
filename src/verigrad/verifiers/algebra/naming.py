"""What stands on the left of an equals sign: the name that a value is given."""

import re
from collections.abc import Sequence

import sympy

from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.brackets import encloses
from verigrad.verifiers.algebra.grammar import parse_expression
from verigrad.verifiers.algebra.tokens import Kind, Token, Unreadable
from verigrad.verifiers.algebra.wording import plain_words

_LENGTH = re.compile(r"(?:\||lvert)[A-Z]{2}(?:\||rvert)")
_NOTATION = re.compile(r"\s*\\(?:lim|i*int|oint|sum|prod|max|min|sup|inf)(?![A-Za-z])")
_OPTION = re.compile(
    r"\s*\\text(?:bf|rm)?\s*\{\s*(?:\([A-Z]\)|[A-Z][).:])\s*\}(?:\\[,;:!\s]|~|\\q?quad|\s)*(?=\S)"
)


def named_by_notation(text: str) -> tuple[str, str] | None:
    r"""The two sides of ``\lim_{x \to 0} f(x) = 5``, whose left side is only a name here."""
    if not _NOTATION.match(text):
        return None
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {"}": 1, "{": -1}.get(text[place], 0)
        if text[place] == "=" and depth == 0:
            return "".join(text[:place].split()), text[place + 1 :]
    return None


def without_option(text: str) -> str:
    r"""A value without the label of its option: ``\textbf{(C) } 29``."""
    return _OPTION.sub("", text, count=1) if _OPTION.match(text) else text


def without_announcement(tokens: Sequence[Token]) -> Sequence[Token]:
    """What follows "the answer is" or "Final answer:"; the tokens themselves without it."""
    for place, token in enumerate(tokens):
        if token.kind is not Kind.TEXT:
            words = " ".join(one.text for one in tokens[:place]).casefold().split()
            announced = words[-1:] == ["answer"] and token.is_sign(":", "=")
            return tokens[place + 1 :] if announced else tokens
    return tokens


def label(tokens: Sequence[Token]) -> str:
    """The name on one side of an equals sign, or "": x, x_1, f(x), Area, angle ABC, (x, y)."""
    spelled = "".join(token.text.split()[-1] for token in tokens if not token.is_sign("{", "}"))
    if all(token.kind is Kind.TEXT for token in tokens):
        return plain_words(spelled)
    if any(token.is_sign("angle") for token in tokens) or re.fullmatch(r"[A-Z]{2,4}", spelled):
        return spelled
    if _LENGTH.fullmatch(spelled):
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


def symbol(tokens: Sequence[Token]) -> Expr:
    """The left side of a named value as an expression; its bare name where it is none."""
    try:
        return parse_expression(tokens)
    except Unreadable:
        return sympy.Symbol(label(tokens))
