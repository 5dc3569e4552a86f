"""Answers in words, times of day and dates."""

import re

import sympy

from verigrad.verifiers.algebra.tokens import Kind, tokenize
from verigrad.verifiers.algebra.values import Clock, Region, Value, Words
from verigrad.verifiers.algebra.vocabulary import SPELLED

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])\.?\s?m\.?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4}")
_MACRO = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}|\\[,;:!\s]|~|\\q?quad")
_FOREIGN = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0400-\u052f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
)
"""Letters that are in no formula: with accents, Cyrillic, Japanese, Chinese, Korean."""

_LETTERS_ONLY = re.compile(rf"[A-Za-z{_FOREIGN}][A-Za-z{_FOREIGN}\s.,'()&/-]*")
_NOT_WORDS = re.compile(r"[^\w\s]|_")
_PHRASES: dict[str, Value] = {
    **dict.fromkeys(
        ("no solution", "no solutions", "no real solution", "no real solutions", "none"),
        Region(sympy.S.EmptySet),
    ),
    **dict.fromkeys(
        ("all real numbers", "all reals", "all real x", "the real numbers"),
        Region(sympy.S.Reals),
    ),
}


def plain_words(text: str) -> str:
    """Words for comparison: lower case, without punctuation, articles or macros."""
    bare = _MACRO.sub(lambda macro: f" {macro.group(1) or ''} ", text.replace("\\_", "_"))
    words = _NOT_WORDS.sub(" ", bare.replace("'", "")).casefold().split()
    return " ".join(words[1:] if words[:1] in (["the"], ["an"]) else words)


def read_words(text: str) -> Value | None:
    """A time of day, a date, or letters that are no formula: a weekday, "no solution".

    None for anything else.
    """
    inner = _MACRO.sub(lambda macro: macro.group(1) or " ", text).strip(" .$")
    clock = _CLOCK.fullmatch(inner)
    if clock:
        return _clock(*clock.groups())
    if _DATE.fullmatch(inner):
        return Words(inner)
    if not _LETTERS_ONLY.fullmatch(inner):
        return None
    phrase = plain_words(inner)
    if phrase in _PHRASES:
        return _PHRASES[phrase]
    return Words(phrase) if _is_wordy(inner) and not _is_formula(inner) else None


def _is_wordy(letters: str) -> bool:
    """A run of three letters is a word; two are a product, unless in capitals, or "no"."""
    if re.search(f"[{_FOREIGN}]", letters):
        return True
    longest = max(len(run) for run in re.findall("[A-Za-z]+", letters))
    return longest >= 3 or (longest == 2 and (letters.isupper() or letters.casefold() == "no"))


def _is_formula(letters: str) -> bool:
    """Letters that name functions or constants: "n log n", "infinity"."""
    if re.search(f"[{_FOREIGN}]", letters):
        return False
    if any(run in SPELLED for run in letters.split()):
        return True
    tokens = tokenize(letters)
    return any(token.kind is Kind.FUNCTION for token in tokens) and not any(
        token.kind is Kind.TEXT for token in tokens
    )


def _clock(hour: str, minute: str, half: str) -> Clock:
    return Clock((int(hour) % 12 + (12 if half.lower() == "p" else 0)) * 60 + int(minute))
